"""A small chart of known range without axis labels, for many beside each other: a title line and braille beneath."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from console.widgets.chart import Frame, Layers, dots, painted
from console.widgets.paint import EMPTY, Line, cells, crop


@dataclass(frozen=True, slots=True)
class Strip:
    """What one of them shows. `values` are evenly spaced up to now, nan where nothing is known."""

    title: Line
    now: Line
    values: Sequence[float]
    top: float
    """The range is 0 to this."""


def drawn(strip: Strip, width: int, height: int, role: str) -> list[Line]:
    """`height` lines of `width` cells."""
    rows, columns = height - 1, width - 1
    room = max(0, width - cells(strip.now) - 1)  # it is the title that gives way
    lines = [crop((*crop(strip.title, room), (" ", "text"), *strip.now), width)]
    if rows < 1 or columns < 2:
        return lines[:height]
    frame = Frame(0, max(1, len(strip.values) - 1), 0.0, max(strip.top, 1e-9), columns, rows)
    bits = dots(range(len(strip.values)), strip.values, frame)
    layers = Layers(bits, None, [[0] * columns for _row in range(rows)], set())
    return lines + [(("│", "track"), *painted(layers, row, columns, role)) for row in range(rows)]


def abreast(strips: Sequence[Strip], width: int, height: int, role: str, gap: int = 2) -> list[Line]:
    """Some beside each other, all of one size."""
    each = (width - gap * (len(strips) - 1)) // max(1, len(strips))
    pieces = [drawn(one, each, height, role) for one in strips]
    between: Line = ((" " * gap, "text"),)
    lines: list[Line] = []
    for parts in zip(*pieces, strict=True):
        line = EMPTY
        for part in parts:
            line = (*line, *(between if line else EMPTY), *part)
        lines.append(line)
    return lines
