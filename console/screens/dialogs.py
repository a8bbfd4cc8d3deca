"""Questions and notices over a screen. A question about something that cannot be undone defaults to No."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button

from console.bindings import bindings
from console.strings import _
from console.widgets.lines import Lines
from console.widgets.paint import EMPTY, Line, wrapped
from console.widgets.panel import entitle

T = TypeVar("T")


class Asking(ModalScreen[T]):
    """A question in words that may be longer than the screen."""

    def action_scroll_words(self, by: int) -> None:
        self.query_one("#words", Lines).scroll_relative(y=by, animate=False)


class Question(Asking[bool]):
    """Dismissed with True only when the user said yes."""

    BINDINGS = bindings("question")

    def __init__(self, title: str, text: Sequence[str], yes: str) -> None:
        super().__init__()
        self.heading, self.text, self.yes = title, text, yes

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog") as box:
            entitle(box, self.heading)
            yield Lines(lambda width, _height: paragraphs(self.text, width), id="words", focus=False)
            with Horizontal(id="answers"):
                yield Button(_("No (n)"), id="no", compact=True)
                yield Button(f"{self.yes} (y)", id="yes", variant="error", compact=True)

    def on_mount(self) -> None:
        self.query_one("#no", Button).focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "yes")

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)


class Notice(ModalScreen[None]):
    """One clear error: what is wrong, and what to do."""

    BINDINGS = bindings("notice")

    def __init__(self, title: str, error: str, hint: str = "") -> None:
        super().__init__()
        self.heading, self.error, self.hint = title, error, hint

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog") as box:
            entitle(box, self.heading)
            yield Lines(lambda width, _height: self.words(width), id="words", focus=False)
            with Horizontal(id="answers"):
                yield Button(_("Close (esc)"), id="close", compact=True)

    def words(self, width: int) -> list[Line]:
        lines = [line for part in self.error.splitlines() for line in wrapped(part, width, "bad")]
        return lines + ([EMPTY, *wrapped("→ " + self.hint, width, "text")] if self.hint else [])

    def on_button_pressed(self) -> None:
        self.dismiss()


def paragraphs(text: Sequence[str], width: int) -> list[Line]:
    """The first paragraph strong, the others plain."""
    lines: list[Line] = []
    for i, part in enumerate(filter(None, text)):
        lines += [EMPTY] if lines else []
        lines += wrapped(part, width, "strong" if i == 0 else "text")
    return lines
