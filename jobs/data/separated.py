"""CSV and its relatives: which delimiter, rows over several lines, rows with too few or too many fields."""

from __future__ import annotations

import csv
import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

from jobs.data.row import Fault, Row
from jobs.data.text import Text, holds_escaped

DELIMITERS = (",", "\t", ";", "|")
FIELD_LIMIT_CHARS = 4 * 1024 * 1024
SAMPLE_RECORDS = 50


def delimiter(head: str, suffix: str) -> str:
    """The character that cuts the first records into the most fields of one number; the suffix decides a draw."""
    likely = "\t" if suffix == ".tsv" else ","
    best = (0.0, 1, likely)
    for mark in (likely, *(d for d in DELIMITERS if d != likely)):
        widths = Counter(_widths(head, mark))
        if not widths:
            continue
        width, times = widths.most_common(1)[0]
        agreed = times / sum(widths.values())
        if width > 1 and (agreed > best[0] + 0.05 or best[1] == 1):
            best = (agreed, width, mark)
    return best[2]


def _widths(head: str, mark: str) -> Iterator[int]:
    lines = head.splitlines(keepends=True)
    if len(lines) > 1 and not head.endswith("\n"):
        lines = lines[:-1]
    reader = csv.reader(lines, delimiter=mark)
    try:
        for record in itertools.islice(reader, SAMPLE_RECORDS):
            if record:
                yield len(record)
    except csv.Error:
        return


class Separated:
    """The records of one file as objects named by its header."""

    def __init__(self, text: Text) -> None:
        self._text = text
        self.delimiter = delimiter(text.head(), text.path.suffixes[0].lower() if text.path.suffixes else "")
        self._repairs: tuple[str, ...] = ()

    def _lines(self) -> Iterator[str]:
        for line in self._text.plain_lines():
            if "\0" in line:  # csv of Python 3.10 stops at it
                self._repairs = ("NUL characters were left out",)
                line = line.replace("\0", "")
            yield line

    def rows(self) -> Iterator[Row]:
        """One row per record. Raises nothing: a record that cannot be cut comes as a fault."""
        csv.field_size_limit(FIELD_LIMIT_CHARS)
        reader = csv.reader(self._lines(), delimiter=self.delimiter, strict=True)
        header: list[str] = []
        for place, end, record in self._records(reader):
            repairs, self._repairs = self._repairs, ()
            if isinstance(record, Fault):
                yield Row(place, fault=record)
            elif header and len(record) == len(header):
                if any(record) and not all(field.isspace() or not field for field in record):
                    yield self._named(place, header, record, repairs)
            elif not header and record:
                header = [name.strip().lstrip("\ufeff") for name in record]
                if clash := _clash(header):
                    yield Row(place, fault=clash)
            elif any(field.strip() for field in record):
                yield Row(place, fault=_misfit(place, end, len(header), len(record)))

    def _named(self, place: int, header: list[str], record: list[str], repairs: tuple[str, ...]) -> Row:
        value = dict(zip(header, record, strict=True))
        text = "".join(record)
        if text.isascii() or not self._broken(text):
            return Row(place, value, repairs)
        mended = {name: _joined(field) for name, field in value.items()}
        if any(self._broken(field) for field in mended.values()):
            bad = Fault("bad-bytes", f"has bytes that are not {self._text.charset.name.upper()}")
            return Row(place, fault=bad)
        return Row(place, mended, (*repairs, "surrogate halves written one by one were joined"))

    def _broken(self, text: str) -> bool:
        return "\ufffd" in text if self._text.charset.wide else holds_escaped(text)

    def _records(self, reader: Any) -> Iterator[tuple[int, int, list[str] | Fault]]:
        """(first line, last line, record)."""
        last = 0
        while True:
            try:
                for record in reader:
                    now = reader.line_num
                    yield last + 1, now, record
                    last = now
                return
            except csv.Error as wrong:
                now = reader.line_num
                yield last + 1, now, _fault(wrong, last + 1, now)
                last = now


def _joined(field: str) -> str:
    """Bytes that could not be decoded, once more: halves of surrogate pairs written as UTF-8 can be told."""
    try:
        halves = field.encode("utf-8", "surrogateescape").decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return field
    return halves.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _misfit(place: int, end: int, wanted: int, found: int) -> Fault:
    over = "" if end == place else f" (lines {place}–{end})"
    why = "a delimiter without quotes around the field?" if found > wanted else "fields are missing"
    return Fault("columns", f"has {found} fields{over}, the header has {wanted}: {why}")


def _clash(header: list[str]) -> Fault | None:
    twice = [name for name, times in Counter(header).items() if times > 1]
    if not twice:
        return None
    return Fault(
        "columns", f"the header names {', '.join(f'`{n}`' for n in twice)} more than once; the last one counts"
    )


def _fault(wrong: csv.Error, first: int, last: int) -> Fault:
    reason = str(wrong)
    lines = f"line {first}" if first == last else f"lines {first}–{last}"
    if "unexpected end of data" in reason or "larger than field limit" in reason:
        return Fault("quotes", f"a quote is opened here and never closed: it swallows {lines}")
    return Fault("quotes", f"cannot be cut into fields ({lines}): {reason}")


def rows(text: Text) -> Iterator[Row]:
    """Every record of the file."""
    return Separated(text).rows()
