"""Rows of one layout → a file in another, read back and compared before it takes its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from jobs.data import sink, write
from jobs.data.example import Example
from jobs.data.finding import NOTICED, REJECTED, Finding
from jobs.data.reading import Choices, DataSet, Read
from jobs.data.row import Fault
from jobs.data.sink import Sink
from jobs.data.spill import Spill
from jobs.failure import JobError

MARK_BYTES = 16


class Conversion:
    """`written` rows are in the file; `keep` names columns that come along although the layout does not know them."""

    def __init__(
        self,
        data: DataSet,
        layout: str,
        target: Path,
        keep: Sequence[str] = (),
        unique: bool = False,
        force: bool = False,
    ) -> None:
        self._data, self._layout, self._target = data, layout, target
        self._keep, self._unique, self._force = tuple(keep), unique, force
        self.written = self.rejected = 0
        sink.kind_of(target, force)
        if any(source.path.resolve() == target.resolve() for source in data.sources):
            raise JobError(f"{target} is both read and written", "Name another file to write.")

    def findings(self) -> Iterator[Finding]:
        """Writes, verifies and publishes; every row that is not in the file, or not whole, is named.

        Raises JobError where the file cannot be written or does not read back as it was meant.
        """
        again = self._again() if self._unique else set()
        names = (*sink.columns_for(self._layout), *self._keep)
        with Sink(self._target, names, self._force) as out, TemporaryFile(prefix="tunedeck-data-") as meant:
            for item in self._rows(out, meant, again):
                self.rejected += item.level == REJECTED
                yield item
            out.close()
            if not out.rows:
                raise JobError(f"no row could be written to {self._target}", "Look at the reasons above.")
            self._verify(out.staging, meant)
            out.publish()
            self.written = out.rows

    def _rows(self, out: Sink, meant: IO[bytes], again: set[tuple[int, int]]) -> Iterator[Finding]:
        for item in self._data.read():
            if isinstance(item, Finding):
                yield item
                continue
            if (item.file, item.place) in again:
                yield self._said(item, NOTICED, "duplicate", "is left out: the same as an earlier row")
                continue
            try:
                example, lost = write.fitted(item.example, self._layout)
                out.add({**write.row(example, self._layout), **self._kept(item)})
            except Fault as fault:
                yield self._said(item, REJECTED, fault.kind, fault.reason)
                continue
            meant.write(_mark(example))
            if lost:
                yield self._said(item, NOTICED, "left-out", lost)

    def _said(self, item: Read, level: str, kind: str, reason: str) -> Finding:
        return self._data.finding(level, kind, reason, item.file, item.place)

    def _kept(self, item: Read) -> dict[str, object]:
        return {name: item.value[name] for name in self._keep if isinstance(item.value, dict) and name in item.value}

    def _again(self) -> set[tuple[int, int]]:
        """Rows that repeat an earlier one. The set grows with their number, not with that of all rows."""
        found: set[tuple[int, int]] = set()
        with Spill() as same:
            for item in self._data.read():
                if isinstance(item, Read):
                    _question, whole = item.example.digests()
                    same.add(whole, b"", item.file, item.place)
            for _key, members in same.groups():
                found.update((place.file, place.place) for _detail, place in members[1:])
        return found

    def _verify(self, staging: Path, meant: IO[bytes]) -> None:
        """Reads the file as anybody would and compares row by row. Raises JobError for the first difference."""
        back = DataSet([staging], Choices(self._layout))
        meant.seek(0)
        for found in back.read():
            if isinstance(found, Finding) and found.level != REJECTED:
                continue
            if isinstance(found, Finding) or _mark(found.example) != meant.read(MARK_BYTES):
                why = found.reason if isinstance(found, Finding) else "it reads back otherwise than it was meant"
                raise JobError(
                    f"{self._target} was not written: its {back.sources[0].unit} {found.place} would be wrong: {why}",
                    "Write another kind of file; .jsonl holds everything.",
                )
        if meant.read(1):
            raise JobError(f"{self._target} was not written: rows would be missing", "Write .jsonl instead.")


def _mark(example: Example) -> bytes:
    """Equal for equal examples, down to the last space."""
    return blake2b(repr(example).encode("utf-8", "surrogatepass"), digest_size=MARK_BYTES).digest()
