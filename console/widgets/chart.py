"""A small line chart in braille: 2 × 4 dots a cell, no numpy. Raw values stay visible behind a smoothed line, and
steps that a rollback left behind as a dotted line beside it.

Chosen over textual-plot and plotext by measurement, see `tests/bench/charts.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from textual.content import Content

from console.format import UNKNOWN, count, figure
from console.strings import _
from console.widgets.lines import Lines
from console.widgets.paint import Line, Span, aligned, cells, fit, spread
from console.widgets.panel import entitle

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_AXIS = 9
_CHEQUER = 0x95
"""Every other dot, so that a dotted line differs from a full one without colour and no stroke is lost wholly."""
TURN = "◆"
Points = tuple[Sequence[int], Sequence[float]]


@dataclass(frozen=True, slots=True)
class Curve:
    """What one chart shows."""

    title: str
    points: Points
    state: str = ""
    """live, paused, stale or ended, in the user's words"""
    show: Callable[[float | None], str] = figure
    smooth: bool = False
    from_zero: bool = False
    stale: bool = False
    left: Sequence[Points] = ()
    """Abandoned pieces"""
    turns: Sequence[int] = ()
    """Steps that training went back to"""

    def span(self) -> tuple[int, int]:
        """First and last step of all that is shown."""
        steps = [xs for xs, _ys in (self.points, *self.left) if xs]
        return min(xs[0] for xs in steps), max(xs[-1] for xs in steps)


class Chart(Lines):
    """A framed pane with one curve; title and newest value stand in the frame."""

    def __init__(self, curve: Callable[[], Curve], *, id: str | None = None) -> None:
        super().__init__(self.drawn, id=id, classes="panel chart", focus=False)
        self.curve = curve

    def drawn(self, width: int, height: int) -> list[Line]:
        curve = self.curve()
        ys = curve.points[1]
        value = (curve.show(ys[-1]) if ys else UNKNOWN, "$ink-dim" if curve.stale else "$ink-strong")
        entitle(self, Content.assemble(curve.title + "  ", value), curve.state)
        return plot(curve, width, height)


def plot(curve: Curve, width: int, height: int) -> list[Line]:
    """The drawing as `height` lines of `width` cells, its axis on the left, steps beneath."""
    xs, ys = curve.points
    lines: list[Line] = []
    rows, columns = height - 1, width - _AXIS
    if rows < 1 or columns < 4:
        return lines
    if not ys and not curve.left:
        middle: Line = ((fit(" " * _AXIS + _("no values yet"), width), "dim"),)
        return [*[()] * (rows // 2), middle]
    low, high = bounds([*ys, *(y for _xs, old in curve.left for y in old)], curve.from_zero)
    frame = Frame(*curve.span(), low, high, columns, rows)
    raw = dots(xs, ys, frame)
    line = smoothed(ys) if curve.smooth and len(ys) > 8 else None
    over = None if line is None else dots(xs, line, frame)
    turns = places(curve.turns, (xs, ys if line is None else line), frame)
    layers = Layers(raw, over, dotted(curve.left, frame), turns)
    role = "dim" if curve.stale else "accent"
    for row in range(rows):
        lines.append((*axis(row, rows, low, high, curve.show), *painted(layers, row, columns, role)))
    lines.append(foot(curve, frame, width))
    return lines


@dataclass(frozen=True, slots=True)
class Frame:
    """What stands where: steps `first`..`last` and values `low`..`high` in `columns` × `rows` cells."""

    first: int
    last: int
    low: float
    high: float
    columns: int
    rows: int

    def across(self, step: int) -> int:
        """Dot column of a step."""
        most = self.columns * 2 - 1
        return min(max(round((step - self.first) * (most / max(self.last - self.first, 1))), 0), most)

    def down(self, value: float) -> int:
        """Dot row of a finite value."""
        most = self.rows * 4 - 1
        return min(max(round((self.high - value) * (most / (self.high - self.low))), 0), most)


def places(turns: Sequence[int], line: Points, frame: Frame) -> set[tuple[int, int]]:
    """Cells, as (row, column), where training took up again after going back."""
    at = dict(zip(*line, strict=True)) if turns else {}
    found = ((step, at.get(step)) for step in turns)
    return {(frame.down(y) >> 2, frame.across(step) >> 1) for step, y in found if y is not None and math.isfinite(y)}


def foot(curve: Curve, frame: Frame, width: int) -> Line:
    """First and last step, and between them those that training went back to, as far as there is room."""
    line: Line = ((" " * _AXIS + count(frame.first), "dim"),)
    right: Line = ((_("step {n}").format(n=count(frame.last)), "dim"),)
    for step in sorted(set(curve.turns)):
        text, column = f"{TURN} {count(step)}", _AXIS + (frame.across(step) >> 1)
        gap = column - cells(line)
        if gap > 0 and column + len(text) + 1 + cells(right) <= width:
            line = (*line, (" " * gap, "text"), (text, "warn"))
    return spread(line, right, width)


def bounds(ys: Sequence[float], from_zero: bool) -> tuple[float, float]:
    """Range of the axis; a flat line gets room around it."""
    finite = [y for y in ys if math.isfinite(y)] or [0.0]
    low, high = min(finite), max(finite)
    if from_zero:
        low = min(low, 0.0)
    if high - low < 1e-12 * max(abs(high), 1.0):
        pad = abs(high) * 0.1 or 1.0
        return (low if from_zero and low == 0 < high else low - pad), high + pad
    return low, high


def smoothed(ys: Sequence[float], weight: float = 0.9) -> list[float]:
    """Exponential mean with bias correction (Kingma & Ba 2015, §3), so that the first values are not dragged to 0."""
    out: list[float] = []
    mean, bias = 0.0, 1.0
    for y in ys:
        if math.isfinite(y):
            mean, bias = weight * mean + (1 - weight) * y, bias * weight
        out.append(mean / (1 - bias) if bias < 1 else y)
    return out


def dots(xs: Sequence[int], ys: Sequence[float], frame: Frame) -> list[list[int]]:
    """Braille bits by row and column.

    All values that share a dot column are drawn as one stroke from lowest to highest: no spike is lost to sampling, and
    the work is bounded by the screen, not by the run's length.
    """
    bits = [[0] * frame.columns for _row in range(frame.rows)]
    strokes: dict[int, list[float]] = {}
    after_hole: set[int] = set()
    hole = False
    right, most, first = (frame.columns * 2 - 1) / max(frame.last - frame.first, 1), frame.columns * 2 - 1, frame.first
    for x, y in zip(xs, ys, strict=True):
        px = min(max(round((x - first) * right), 0), most)
        if y - y != 0:  # nan or infinite: a hole in the curve is shown as one
            hole = True
        elif (stroke := strokes.get(px)) is None:
            strokes[px] = [y, y, y, y]
            after_hole |= {px} if hole else set()
            hole = False
        else:
            stroke[1], stroke[2], stroke[3] = min(stroke[1], y), max(stroke[2], y), y
    before: tuple[int, int] | None = None
    for px, values in strokes.items():
        start, lowest, highest, last = (frame.down(y) for y in values)
        draw(bits, before if before is not None and px not in after_hole else (px, start), (px, start))
        draw(bits, (px, highest), (px, lowest))
        before = (px, last)
    return bits


def dotted(pieces: Sequence[Points], frame: Frame) -> list[list[int]]:
    """All abandoned pieces in one layer, every other dot of them."""
    bits = [[0] * frame.columns for _row in range(frame.rows)]
    for xs, ys in pieces:
        for row, drawn in zip(bits, dots(xs, ys, frame), strict=True):
            row[:] = [old | (new & _CHEQUER) for old, new in zip(row, drawn, strict=True)]
    return bits


def draw(bits: list[list[int]], start: tuple[int, int], end: tuple[int, int]) -> None:
    """A straight line between two dots."""
    (x0, y0), (x1, y1) = start, end
    length = max(abs(x1 - x0), abs(y1 - y0), 1)
    for i in range(length + 1):
        x = x0 + (x1 - x0) * i // length
        y = y0 + (y1 - y0) * i // length
        bits[y >> 2][x >> 1] |= _DOTS[y & 3][x & 1]


def axis(row: int, rows: int, low: float, high: float, show: Callable[[float | None], str]) -> Line:
    """The label in front of a row: top, middle and bottom carry a value."""
    labelled = row in (0, rows - 1) or (rows >= 7 and row == rows // 2)
    at = low if row == rows - 1 else high - (high - low) * row / (rows - 1)
    label = show(at).split(" ")[0] if labelled else ""
    return (*aligned(((label, "dim"),), _AXIS - 2, right=True), (" ┤" if labelled else " │", "track"))


@dataclass(frozen=True, slots=True)
class Layers:
    """Braille bits by row and column; `over` is the smoothed line where there is one."""

    raw: list[list[int]]
    over: list[list[int]] | None
    left: list[list[int]]
    turns: set[tuple[int, int]]

    def cell(self, row: int, column: int, role: str) -> Span:
        if (row, column) in self.turns:
            return TURN, "warn"
        raw, left = self.raw[row][column], self.left[row][column]
        top = raw if self.over is None else self.over[row][column]
        # the empty braille cell is a box in some fonts
        char = chr(0x2800 | bits) if (bits := raw | top | left) else " "
        return char, role if top else "dim" if left else "track"


def painted(layers: Layers, row: int, columns: int, role: str) -> Line:
    """One row of dots, cells of one colour merged."""
    spans: list[Span] = []
    for column in range(columns):
        char, colour = layers.cell(row, column, role)
        if spans and (spans[-1][1] == colour or char == " "):
            spans[-1] = (spans[-1][0] + char, spans[-1][1])
        else:
            spans.append((char, colour))
    return tuple(spans)
