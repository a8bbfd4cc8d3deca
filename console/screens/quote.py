"""A quoted line in its place: the file it is from, as the node sent it."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult

from console.bindings import bindings
from console.screens.base import DeckScreen
from console.screens.desk import Desk
from console.screens.log import log_role
from console.strings import _
from console.widgets.lines import Lines
from console.widgets.paint import Line
from console.widgets.panel import Panel

ABOVE = 5
"""Lines seen before the quoted one"""
AROUND = 500
"""Lines that can be scrolled to, before and after it"""


def numbered(number: int, text: str, quoted: bool) -> Line:
    text = text.expandtabs(4)
    if quoted:
        return ((f"▶{number:>6} ", "accent"), (text, "strong"))
    return ((f" {number:>6} ", "track"), (text, log_role(text)))


class QuoteScreen(DeckScreen):
    """`number`: of the quoted line, from 1."""

    PLACE = "quote"
    BINDINGS = bindings("screen")

    def __init__(self, desk: Desk, file: str, texts: Sequence[str], number: int) -> None:
        super().__init__(desk)
        self.file, self.texts, self.number = file, texts, number
        self.in_sight = False

    def content(self) -> ComposeResult:
        with Panel(_("{file}, line {n}").format(file=self.file, n=self.number), id="log-panel"):
            yield Lines(self.lines, id="quote")

    def title_line(self) -> Line:
        return ((_("Evidence"), "title"), (f"  {self.file}", "strong"))

    def lines(self, _width: int, _height: int) -> Sequence[Line]:
        near = enumerate(self.texts[self.first - 1 : self.number + AROUND], self.first)
        return [numbered(number, text, number == self.number) for number, text in near]

    @property
    def first(self) -> int:
        return max(1, self.number - AROUND)

    def on_mount(self) -> None:
        super().on_mount()
        self.query_one("#quote", Lines).focus()

    def tick(self) -> None:
        super().tick()
        pane = self.query_one("#quote", Lines)
        if pane.lines and not self.in_sight:
            self.in_sight = True
            pane.scroll_to(y=max(0, self.number - self.first - ABOVE), animate=False)
