"""A JSON list, a document with a list in it, or objects one after another, read piece by piece.

The list is never held as a whole: the memory is that of one row, however long the file and even on a single line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from jobs.data.json_value import Parser, fault, incomplete, may_be_half
from jobs.data.row import ROW_LIMIT_CHARS, Fault, Row
from jobs.data.text import Text, holds_escaped

KEPT_CHARS = 1 << 20
OVERLAP_CHARS = 256
"""Kept of a piece in which the next row was not found: its beginning may be cut in two."""
_SCALAR = r'(?:"(?:[^"\\]|\\.)*"|[-\d.eE+]+|null|true|false)'
WRAPPER = re.compile(
    rf'\s*\{{\s*(?:"[^"]*"\s*:\s*{_SCALAR}\s*,\s*)*'
    r'"(data|dataset|train|test|validation|rows|examples|items|instances|samples)"\s*:\s*\[(?=\s*[\[{\]])'
)
_SPACE = re.compile(r"[ \t\r\n]*")
_FIRST_KEY = re.compile(r'\{\s*("(?:[^"\\]|\\.)*")')


class Stream:
    """The rows of one text, with the line where each begins."""

    def __init__(self, text: Text) -> None:
        self._chunks, self._parser = text.chunks(), Parser()
        self._encoding = text.charset.name
        self._carriage = text.charset.newline == "\r"
        self._buffer, self._at, self._line, self._ended = "", 0, 1, False

    def rows(self) -> Iterator[Row]:
        self._more()
        wrapper = WRAPPER.match(self._buffer)
        opened = wrapper is not None
        if wrapper is not None:
            self._go(wrapper.end())
        inside, comma, whole = opened, True, True
        while (mark := self._mark()) != "":
            if mark == "," or (mark == "]" and inside) or (mark == "[" and not inside):
                inside = inside if mark == "," else mark == "["
                opened, comma = opened or inside, True
                self._go(self._at + 1)
                if mark == "]" and wrapper is not None:
                    return
                continue
            row = self._row()
            yield row if comma or not inside or row.fault else _with(row, "the comma before this row is missing")
            comma, whole = row.fault is not None, row.fault is None
        if inside and whole:
            yield Row(self._line, fault=Fault("truncated", "the list is never closed: the file was cut off"))

    def _more(self) -> bool:
        chunk = next(self._chunks, None)
        if chunk is None:
            self._ended = True
            return False
        if self._at > KEPT_CHARS // 2:
            self._buffer, self._at = self._buffer[self._at :], 0
        self._buffer += chunk.replace("\r", "\n") if self._carriage else chunk
        return True

    def _go(self, to: int) -> None:
        self._line += self._buffer.count("\n", self._at, to)
        self._at = to

    def _mark(self) -> str:
        """The next character that is no space; empty at the end."""
        while True:
            found = _SPACE.match(self._buffer, self._at)
            assert found is not None
            self._go(found.end())
            if self._at < len(self._buffer):
                return self._buffer[self._at]
            if not self._more():
                return ""

    def _row(self) -> Row:
        line = self._line
        while True:
            try:
                value, end = self._parser.value(self._buffer, self._at)
            except ValueError as wrong:
                if len(self._buffer) - self._at > ROW_LIMIT_CHARS:
                    return self._skipped(line, Fault("too-long", "goes on without end: a quote or bracket is missing"))
                if incomplete(wrong, self._buffer) and self._filled():
                    continue
                return self._skipped(line, self._fault(wrong), getattr(wrong, "pos", self._at))
            if end == len(self._buffer) and self._more():
                continue  # a number may go on in the next piece
            return self._made(line, value, end)

    def _filled(self) -> bool:
        """Twice as much text as before, so that a long row is not parsed anew for every chunk of it."""
        want = 2 * (len(self._buffer) - self._at)
        grown = False
        while len(self._buffer) - self._at < want and self._more():
            grown = True
        return grown

    def _made(self, line: int, value: object, end: int) -> Row:
        escaped = holds_escaped(self._buffer[self._at : end])
        start = self._at
        self._go(end)
        if escaped:
            return Row(line, fault=Fault("bad-bytes", f"has bytes that are not {self._encoding.upper()}"))
        if may_be_half(self._buffer, start, end):
            value = self._parser.mended(value)
        return Row(line, value, tuple(self._parser.repairs))

    def _fault(self, wrong: ValueError) -> Fault:
        """`wrong` speaks of the buffer; the user wants to know of the row."""
        if self._ended and incomplete(wrong, self._buffer):
            return Fault("truncated", "the file ends in the middle of this row")
        if isinstance(wrong, json.JSONDecodeError):
            at = self._line + self._buffer.count("\n", self._at, wrong.pos)
            return Fault("not-json", f"is not JSON: {wrong.msg.lower()}, line {at}")
        return fault(wrong, "")

    def _skipped(self, line: int, why: Fault, error_at: int = 0) -> Row:
        """Goes on where the next row seems to begin: an object with the same first key as the broken one."""
        key = _FIRST_KEY.match(self._buffer, self._at)
        begin = re.compile(r"\{\s*" + re.escape(key.group(1))) if key else re.compile(r"[{\]]")
        start = max(error_at, self._at + 1)
        while True:
            found = begin.search(self._buffer, start)
            if found is not None:
                self._go(found.start())
                return Row(line, fault=why)
            self._go(max(start, len(self._buffer) - OVERLAP_CHARS))
            if not self._more():
                self._go(len(self._buffer))
                return Row(line, fault=why)
            start = self._at


def _with(row: Row, repair: str) -> Row:
    return row._replace(repairs=(*row.repairs, repair))


def rows(text: Text) -> Iterator[Row]:
    """Every row of the list."""
    return Stream(text).rows()
