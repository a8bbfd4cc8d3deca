"""JSON lines: one object a line, as it should be; rows over several lines are put together again."""

from __future__ import annotations

from collections.abc import Iterator

from jobs.data.json_value import Parser, fault, incomplete
from jobs.data.row import Row
from jobs.data.text import Line, Text

LOOK_AHEAD_LINES = 64
GIVE_UP = 20
"""A file in which so many rows could not be put together is broken otherwise; trying on would take for ever."""


def rows(text: Text) -> Iterator[Row]:
    """Every row, in order; what is not JSON comes with its fault."""
    parser, lines, waiting, failures = Parser(), text.lines(), list[Line](), 0
    while (line := waiting.pop(0) if waiting else next(lines, None)) is not None:
        stripped = line.text.strip(" \t\r")
        if line.fault is not None:
            yield Row(line.number, fault=line.fault)
        elif stripped:
            try:
                value = parser.row(stripped)
                yield Row(line.number, value, (*line.repairs, *parser.repairs))
            except ValueError as wrong:
                joined = None
                if incomplete(wrong, stripped) and line.end and failures < GIVE_UP:
                    joined = _joined(parser, line, lines, waiting)
                    failures += joined is None
                yield joined or Row(line.number, fault=fault(wrong, stripped, not line.end))


def _joined(parser: Parser, first: Line, lines: Iterator[Line], waiting: list[Line]) -> Row | None:
    """The row that begins at `first` and goes on in the next lines. Lines read for nothing stay in `waiting`."""
    text = first.text
    for used in range(LOOK_AHEAD_LINES):
        if used == len(waiting):
            more = next(lines, None)
            if more is None:
                return None
            waiting.append(more)
        line = waiting[used]
        if line.fault is not None or _stands_alone(parser, line.text):
            return None
        text = f"{text}\n{line.text}"
        try:
            value = parser.row(text.strip())
        except ValueError:
            continue
        del waiting[: used + 1]
        note = f"lines {first.number}–{line.number} are one row, broken by line ends"
        return Row(first.number, value, (note, *parser.repairs))
    return None


def _stands_alone(parser: Parser, text: str) -> bool:
    stripped = text.strip()
    if not stripped.startswith(("{", "[")) or len(stripped) < 8:
        return False
    try:
        parser.row(stripped)
    except ValueError:
        return False
    return True
