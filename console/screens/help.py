"""The keys of the screen in front, from the table of bindings."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen

from console.bindings import Key, bindings, carried, spelled
from console.strings import _
from console.widgets.lines import Lines
from console.widgets.paint import EMPTY, Line, heading
from console.widgets.panel import entitle


class Help(ModalScreen[None]):
    BINDINGS = bindings("notice")

    def __init__(self, title: str, near: tuple[str, ...], far: tuple[str, ...]) -> None:
        super().__init__()
        self.heading, self.near, self.far = title, near, far

    def compose(self) -> ComposeResult:
        with Vertical(id="help") as box:
            entitle(box, _("Keys"), _("esc closes"))
            yield Lines(self.keys_lines, id="words")

    def on_mount(self) -> None:
        self.query_one(Lines).focus()

    def keys_lines(self, width: int, _height: int) -> Sequence[Line]:
        keys = carried(*self.near, *self.far)
        here = [key for key in keys if set(key.screens) & set(self.near)]
        anywhere = [key for key in keys if key not in here]
        lines = [heading(self.heading, width), *map(explained, here)]
        return [*lines, EMPTY, heading(_("Everywhere"), width), *map(explained, anywhere)]


def explained(key: Key) -> Line:
    names = " ".join(spelled(one) for one in key.keys.split(","))
    return ((f" {names:<10} ", "key"), (f"{key.description:<11} ", "strong"), (key.tooltip, "text"))
