"""A pane of lines, painted by the line interface: only rows that changed are drawn again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from console.bindings import bindings
from console.widgets.paint import EMPTY, Line, crop
from console.widgets.themes import style

Source = Callable[[int, int], Sequence[Line]]
"""Lines for a pane of (width, height) cells"""


def nothing(width: int, height: int) -> Sequence[Line]:  # noqa: ARG001
    return ()


class Lines(ScrollView, can_focus=True):
    BINDINGS = bindings("lines")
    keys_place = "lines"
    """What the table of bindings calls this kind of pane"""

    def __init__(
        self, source: Source = nothing, *, id: str | None = None, classes: str | None = None, focus: bool = True
    ) -> None:
        super().__init__(id=id, classes=classes)
        self.source = source
        self.can_focus = focus
        self.lines: list[Line] = []
        self.roles: dict[str, Style] = {}

    def renew(self) -> None:
        """Ask the source and draw what differs."""
        width, height = self.scrollable_content_region.size
        if width > 0:
            self.show(self.source(width, height))

    def show(self, lines: Sequence[Line]) -> None:
        before, self.lines = self.lines, list(lines)
        if len(before) != len(self.lines):
            self.virtual_size = Size(self.virtual_width(), len(self.lines))
            self.refresh()
            return
        top = round(self.scroll_y)
        for y in range(top, min(top + self.size.height, len(before))):
            if before[y] != self.lines[y]:
                self.refresh_lines(y)

    def virtual_width(self) -> int:
        """0: never wider than the pane."""
        return 0

    def on_resize(self) -> None:
        self.renew()

    def notify_style_update(self) -> None:
        self.roles = {}
        super().notify_style_update()

    def style_of(self, role: str) -> Style:
        if role not in self.roles:
            self.roles[role] = style(role, self.app.theme_variables)
        return self.roles[role]

    def render_line(self, y: int) -> Strip:
        return self.strip(self.line_at(y))

    def line_at(self, y: int) -> Line:
        """The line at row `y` of the pane."""
        index = y + round(self.scroll_y)
        return self.lines[index] if index < len(self.lines) else EMPTY

    def strip(self, line: Line, over: Style | None = None) -> Strip:
        width = self.scrollable_content_region.width
        segments = [Segment(text, self.style_of(role)) for text, role in crop(line, width)]
        return Strip(segments, width).apply_style(over or self.ground())

    def ground(self) -> Style:
        """The pane's own background, which a strip must bring along."""
        if "" not in self.roles:
            self.roles[""] = self.rich_style
        return self.roles[""]
