"""A list with a cursor and a fixed heading. The cursor belongs to a key, so it stays with its row when rows move."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from console.bindings import bindings
from console.widgets.lines import Lines
from console.widgets.paint import EMPTY, Line, Span, aligned, crop


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    width: int
    right: bool = False
    drop: int = 0
    """Where room is short the highest goes first; 0 stays"""
    grow: bool = False
    """Takes the room that is left"""


Cells = tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Row:
    key: str
    cells: Cells | Callable[[], Cells]
    """Or what makes them, which is called only while the row is in sight"""

    def made(self) -> Cells:
        return self.cells() if callable(self.cells) else self.cells


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
        self.laid: dict[int, Line] = {}
        """Lines in sight since the rows were renewed; 0 is the heading"""
        self.layout_of: tuple[int, list[tuple[int, int]]] = (0, [])
        """Width, and for it the columns that fit with the width of each"""
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
        self.draw()
        if self.cursor != before:
            self.refresh()
            self.post_message(self.Moved(self))

    def draw(self) -> None:
        """Draw again what is in sight and differs. A thousand rows cost no more than those that are seen."""
        width = self.scrollable_content_region.width
        if width <= 0:
            return
        before, self.laid = self.laid, {}
        count = 1 + (len(self.rows) or bool(self.empty))
        if (count, width) != (self.virtual_size.height, self.layout_of[0]):
            self.layout_of = width, self.columns_in(width - 1)
            self.virtual_size = Size(self.virtual_width(), count)
            self.refresh()
            return
        top = round(self.scroll_y)
        for index in range(top, min(top + self.size.height, count)):
            if before.get(index) != self.laid_out(index):
                self.refresh_lines(index)

    def laid_out(self, index: int) -> Line:
        """A line by its number: the heading, then the rows."""
        if index not in self.laid:
            self.laid[index] = self.lay_out(index)
        return self.laid[index]

    def lay_out(self, index: int) -> Line:
        if index > len(self.rows):
            return ((f" {self.empty}", "dim"),) if index == 1 and self.empty else EMPTY
        cells = self.rows[index - 1].made() if index else tuple(((one.title, "dim"),) for one in self.columns)
        spans: list[Span] = [(" ", "text")]
        for i, width in self.layout_of[1]:
            spans += [*aligned(cells[i], width, self.columns[i].right), (" ", "text")]
        return tuple(spans)

    def columns_in(self, width: int) -> list[tuple[int, int]]:
        """Columns that fit, each with its width."""
        fitting = self.fitting(width)
        spare = max(0, width - sum(self.columns[i].width + 1 for i in fitting))
        return [(i, self.columns[i].width + (spare if self.columns[i].grow else 0)) for i in fitting]

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
        return self.laid_out(y + round(self.scroll_y) if y else 0)

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
