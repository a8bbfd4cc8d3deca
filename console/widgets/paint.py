"""What is painted: lines of spans, each a text and its role. Roles become colours only in the style sheet."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rich.cells import cell_len, set_cell_size

Span = tuple[str, str]
"""Text and role"""
Line = tuple[Span, ...]

ROLES = ("text", "dim", "strong", "title", "accent", "ok", "warn", "bad", "track", "dead", "badge", "key")
EMPTY: Line = ()


def cells(line: Line) -> int:
    return sum(cell_len(text) for text, _ in line)


def one_line(text: str) -> str:
    """Text of a node as one line: line feeds and tabs would break the grid."""
    return " ".join(text.split()) if "\n" in text or "\t" in text else text


def fit(text: str, width: int) -> str:
    """`text` in exactly `width` terminal cells, an ellipsis where it was cut; wide characters are never halved."""
    if width <= 0:
        return ""
    return set_cell_size(text, width) if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"


def crop(line: Line, width: int) -> Line:
    """The line in exactly `width` cells."""
    room, kept = width, []
    for text, role in line:
        taken = cell_len(text)
        if taken > room:
            if room > 0:
                kept.append((fit(text, room), role))
            return tuple(kept)
        kept.append((text, role))
        room -= taken
    return (*kept, (" " * room, "text")) if room else tuple(kept)


def aligned(line: Line, width: int, right: bool = False) -> Line:
    spare = width - cells(line)
    if spare <= 0:
        return crop(line, width)
    return ((" " * spare, "text"), *line) if right else (*line, (" " * spare, "text"))


def bar(fraction: float | None, width: int, role: str) -> Line:
    """A horizontal bar, exact to half a cell; heavy and light strokes differ without colour. Unknown is dotted."""
    if width <= 0:
        return EMPTY
    if fraction is None or not math.isfinite(fraction):
        return (("·" * width, "track"),)
    full, half = divmod(round(min(max(fraction, 0.0), 1.0) * width * 2), 2)
    filled = "━" * full + "╸" * half
    return tuple(span for span in ((filled, role), ("─" * (width - len(filled)), "track")) if span[0])


def join(parts: Iterable[Line], gap: str = "  ") -> Line:
    """Parts one after the other; empty ones leave no gap."""
    line: list[Span] = []
    for part in parts:
        if part:
            line += [(gap, "text"), *part] if line else part
    return tuple(line)


def spread(left: Line, right: Line, width: int) -> Line:
    """One part at each end; the right one gives way where there is no room for both."""
    spare = width - cells(left) - cells(right)
    return crop(left, width) if spare < 1 else (*left, (" " * spare, "text"), *right)


def heading(text: str, width: int) -> Line:
    """A quiet rule with a title in it."""
    return ((f"{text} ", "title"), ("─" * max(0, width - cell_len(text) - 1), "track"))


def pairs(items: Sequence[tuple[str, Line]], width: int, label: int, columns: int = 1) -> list[Line]:
    """Label and value in `columns` columns, filled row by row."""
    each = width // columns
    rows = []
    for start in range(0, len(items), columns):
        row: list[Span] = []
        for name, value in items[start : start + columns]:
            row += crop(((fit(name, label), "dim"), (" ", "text"), *value), each)
        rows.append(tuple(row))
    return rows


def wrapped(text: str, width: int, role: str, indent: str = "") -> list[Line]:
    """Words in as many lines as they need; a word longer than a line is cut into pieces."""
    room = max(1, width - len(indent))
    rows: list[str] = []
    row = ""
    for word in text.split():
        while cell_len(word) > room:
            head = set_cell_size(word, room).rstrip()
            rows, row, word = [*rows, row] if row else rows, "", word[len(head) :]
            rows = [*rows, head]
        if row and cell_len(row) + 1 + cell_len(word) > room:
            rows, row = [*rows, row], word
        else:
            row = f"{row} {word}" if row else word
    return [((indent + line, role),) for line in [*rows, row] if line]
