"""A data set: several files, the examples in them, and everything that had to be said on the way."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from jobs.data import columns
from jobs.data.columns import SAMPLE_ROWS, Columns
from jobs.data.example import Example
from jobs.data.finding import REJECTED, REPAIRED, Finding
from jobs.data.interpret import Reading
from jobs.data.row import Fault, Row
from jobs.data.source import Source
from jobs.failure import JobError

PROGRESS_ROWS = 2048


@dataclass(frozen=True, slots=True)
class Choices:
    """What the user says about the data, where detection is not to decide. `roles`: word in the data → role."""

    layout: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)
    encoding: str | None = None


class Read(NamedTuple):
    """One usable row: its example, its file's number, its place, and the row as it was."""

    example: Example
    file: int
    place: int
    value: Any


def _quiet(_done_bytes: int, _rows: int) -> None:
    return None


class DataSet:
    """Iterates over examples; counts and findings come along. May be iterated again: files are read anew."""

    def __init__(
        self,
        paths: Sequence[Path],
        choices: Choices | None = None,
        progress: Callable[[int, int], None] = _quiet,
    ) -> None:
        self._choices, self._progress = choices or Choices(), progress
        self.sources = [Source(path, self._choices.encoding) for path in paths]
        self.columns: list[Columns] = []
        self.rows = 0

    @property
    def size_bytes(self) -> int:
        return sum(source.size_bytes for source in self.sources)

    def name(self, file: int) -> str:
        return str(self.sources[file].path)

    def finding(self, level: str, kind: str, reason: str, file: int, place: int) -> Finding:
        source = self.sources[file]
        return Finding(level, kind, reason, str(source.path), place, source.unit)

    def prepare(self) -> None:
        """Finds the layout of every file, so that nothing is begun that cannot be finished. Raises JobError."""
        for source in self.sources[len(self.columns) :]:
            self.columns.append(self._detected(source, list(itertools.islice(source.rows(), SAMPLE_ROWS))))

    def read(self) -> Iterator[Read | Finding]:
        """Every row of every file: as an example, or as the finding why it is none; repairs come before the example.

        Raises JobError where a file cannot be read as a whole, or its layout is not known.
        """
        self.rows = 0
        self.prepare()
        before = 0
        for number, source in enumerate(self.sources):
            reading = Reading(self.columns[number], self._choices.roles)
            for row in source.rows():
                self.rows += 1
                if not self.rows % PROGRESS_ROWS:
                    self._progress(before + source.position_bytes, self.rows)
                try:
                    example, repairs = reading.example(row)
                except Fault as fault:
                    yield self.finding(REJECTED, fault.kind, fault.reason, number, row.place)
                    continue
                for repair in repairs:
                    yield self.finding(REPAIRED, "repaired", repair, number, row.place)
                yield Read(example, number, row.place, row.value)
            before += source.size_bytes
        self._progress(before, self.rows)

    def _detected(self, source: Source, first: Sequence[Row]) -> Columns:
        try:
            return columns.detect(first, self._choices.layout, self._choices.columns)
        except JobError as wrong:
            raise JobError(f"{source.path}: {wrong.message}", wrong.hint) from wrong
