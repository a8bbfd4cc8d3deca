"""Plain text: each block of lines between empty lines is one passage, as in training."""

from __future__ import annotations

from collections.abc import Iterator

from jobs.data.row import ROW_LIMIT_CHARS, Fault, Row
from jobs.data.text import Text


def rows(text: Text) -> Iterator[Row]:
    """Passages as {"text": ...}, each at its first line."""
    block: list[str] = []
    start, size = 0, 0
    fault: Fault | None = None
    for line in text.lines():
        if not line.text.strip() and line.fault is None:
            if block or fault:
                yield _passage(start, block, fault)
            block, size, fault = [], 0, None
            continue
        if not block and fault is None:
            start = line.number
        fault = fault or line.fault
        size += len(line.text)
        if size > ROW_LIMIT_CHARS:
            fault = fault or Fault("too-long", "is a passage without end: no empty line in 16 Mi characters")
            block = block[:1]
        else:
            block.append(line.text)
    if block or fault:
        yield _passage(start, block, fault)


def _passage(start: int, block: list[str], fault: Fault | None) -> Row:
    return Row(start, fault=fault) if fault else Row(start, {"text": "\n".join(block)})
