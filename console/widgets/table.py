"""A list with a cursor and a fixed heading. The cursor belongs to a key, so it stays with its row when rows move."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.message import Message
from textual.strip import Strip

from console.bindings import bindings
from console.widgets.lines import Lines
from console.widgets.paint import Line, Span, aligned, crop


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    width: int
    right: bool = False
    drop: int = 0
    """Where room is short the highest goes first; 0 stays"""
    grow: bool = False
    """Takes the room that is left"""


@dataclass(frozen=True, slots=True)
class Row:
    key: str
    cells: tuple[Line, ...]


RowSource = Callable[[], Sequence[Row]]


class Table(Lines):
    COMPONENT_CLASSES: ClassVar[set[str]] = {"table--cursor", "table--resting"}
    BINDINGS = bindings("table")
    keys_place = "table"

    class Moved(Message):
        """The cursor is on another row."""

        def __init__(self, table: Table) -> None:
            super().__init__()
            self.table = table

        @property
        def control(self) -> Table:
            return self.table

    class Chosen(Moved):
        """The row under the cursor was opened."""

    def __init__(self, columns: Sequence[Column], rows: RowSource, *, empty: str = "", id: str | None = None) -> None:
        super().__init__(id=id)
        self.columns, self.row_source, self.empty = tuple(columns), rows, empty
        self.rows: list[Row] = []
        self.cursor: str | None = None

    @property
    def index(self) -> int:
        """Row of the cursor, 0 when its row is gone."""
        return next((i for i, row in enumerate(self.rows) if row.key == self.cursor), 0)

    def renew(self) -> None:
        rows = list(self.row_source())
        before, index = self.cursor, self.index
        if all(row.key != self.cursor for row in rows):
            self.cursor = rows[min(index, len(rows) - 1)].key if rows else None
        self.rows = rows
        width = self.scrollable_content_region.width
        if width > 0:
            self.show(self.laid_out(width))
        if self.cursor != before:
            self.refresh()
            self.post_message(self.Moved(self))

    def laid_out(self, width: int) -> list[Line]:
        """Heading and rows as lines."""
        fitting = self.fitting(width - 1)
        spare = width - 1 - sum(self.columns[i].width + 1 for i in fitting)
        widths = {i: self.columns[i].width + (max(0, spare) if self.columns[i].grow else 0) for i in fitting}
        head: list[Span] = [(" ", "text")]
        for i in fitting:
            head += [*aligned(((self.columns[i].title, "dim"),), widths[i], self.columns[i].right), (" ", "text")]
        lines: list[Line] = [tuple(head)]
        for row in self.rows:
            spans: list[Span] = [(" ", "text")]
            for i in fitting:
                spans += [*aligned(row.cells[i], widths[i], self.columns[i].right), (" ", "text")]
            lines.append(tuple(spans))
        if not self.rows and self.empty:
            lines.append(((f" {self.empty}", "dim"),))
        return lines

    def fitting(self, width: int) -> list[int]:
        """Columns that fit, dropping the least important first."""
        kept = list(range(len(self.columns)))
        while sum(self.columns[i].width + 1 for i in kept) > width:
            worst = max(kept, key=lambda i: self.columns[i].drop)
            if self.columns[worst].drop == 0:
                break
            kept.remove(worst)
        return kept

    def line_at(self, y: int) -> Line:
        return self.lines[0] if y == 0 and self.lines else super().line_at(y)

    def render_line(self, y: int) -> Strip:
        index = y + round(self.scroll_y) - 1
        if y == 0 or not 0 <= index < len(self.rows) or self.rows[index].key != self.cursor:
            return super().render_line(y)
        name = "table--cursor" if self.has_focus else "table--resting"
        mark = "▌" if self.has_focus else "▏"
        line = crop(self.line_at(y), self.scrollable_content_region.width)
        marked: Line = ((mark, "accent"), *line[1:])
        return self.strip(marked, self.get_component_rich_style(name))

    def place(self, index: int) -> None:
        """Put the cursor on a row and bring it into view."""
        if not self.rows:
            return
        index = min(max(index, 0), len(self.rows) - 1)
        self.cursor = self.rows[index].key
        visible = max(1, self.scrollable_content_region.height - 1)
        top = round(self.scroll_y)
        if index < top or index >= top + visible:
            self.scroll_to(y=index if index < top else index - visible + 1, animate=False)
        self.refresh()
        self.post_message(self.Moved(self))

    def action_move(self, by: int) -> None:
        self.place(self.index + by)

    def action_page(self, direction: int) -> None:
        self.place(self.index + direction * max(1, self.scrollable_content_region.height - 2))

    def action_edge(self, direction: int) -> None:
        self.place(0 if direction < 0 else len(self.rows) - 1)

    def action_open(self) -> None:
        if self.rows:
            self.post_message(self.Chosen(self))

    def on_click(self, event: events.Click) -> None:
        offset = event.get_content_offset(self)
        if offset is None or offset.y == 0:
            return
        index = offset.y + round(self.scroll_y) - 1
        if index < len(self.rows):
            self.place(index)
            if event.chain > 1:
                self.action_open()

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()
