"""CSV and its relatives: which delimiter, rows over several lines, rows with too few or too many fields."""

from __future__ import annotations

import csv
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator

from jobs.data.row import Fault, Row
from jobs.data.text import Text

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
        self._faults: list[Fault] = []
        self._repairs: list[str] = []

    def _lines(self) -> Iterator[str]:
        for line in self._text.lines():
            if line.fault is not None:
                self._faults.append(line.fault)
            self._repairs += line.repairs
            if "\0" in line.text:
                self._repairs.append("NUL characters were left out")
            yield line.text.replace("\0", "") + (line.end or "\n")

    def rows(self) -> Iterator[Row]:
        """One row per record. Raises nothing: a record that cannot be cut comes as a fault."""
        csv.field_size_limit(FIELD_LIMIT_CHARS)
        reader = csv.reader(self._lines(), delimiter=self.delimiter, strict=True)
        header: list[str] = []
        for place, end, record in self._records(reader):
            faults, repairs = self._faults[:], tuple(self._repairs)
            self._faults.clear()
            self._repairs.clear()
            if isinstance(record, Fault):
                yield Row(place, fault=record)
            elif faults:
                yield Row(place, fault=faults[0])
            elif not header and record:
                header = [name.strip().lstrip("\ufeff") for name in record]
                if clash := _clash(header):
                    yield Row(place, fault=clash)
            elif record and any(field.strip() for field in record):
                yield _row(place, end, header, record, repairs)

    def _records(self, reader: Iterable[list[str]]) -> Iterator[tuple[int, int, list[str] | Fault]]:
        """(first line, last line, record)."""
        records, last = iter(reader), 0
        while True:
            try:
                record: list[str] | Fault = next(records)
            except StopIteration:
                return
            except csv.Error as wrong:
                record = _fault(wrong, last + 1, reader.line_num)  # type: ignore[attr-defined]
            now = reader.line_num  # type: ignore[attr-defined]
            yield last + 1, now, record
            last = now


def _row(place: int, end: int, header: list[str], record: list[str], repairs: tuple[str, ...]) -> Row:
    if len(record) == len(header):
        return Row(place, dict(zip(header, record, strict=True)), repairs)
    over = "" if end == place else f" (lines {place}–{end})"
    more = "a delimiter without quotes around the field?" if len(record) > len(header) else "fields are missing"
    return Row(place, fault=Fault("columns", f"has {len(record)} fields{over}, the header has {len(header)}: {more}"))


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
