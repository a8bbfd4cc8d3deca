"""One data set → a part to train on and a part held back. Rows that ask the same stay together.

Which side a question goes to depends on the seed and on the question alone: by the hash of both, lowest first. So the
same rows in another order, or in other files, give the same two sides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from jobs.data.example import DIGEST_BYTES, Example
from jobs.data.finding import REJECTED, Finding
from jobs.data.reading import DataSet, Read
from jobs.data.row import Fault
from jobs.data.sink import Sink, kind_of
from jobs.data.spill import Spill
from jobs.failure import JobError


@dataclass(frozen=True, slots=True)
class Amount:
    """How much is held back: a number of `rows`, or a `share` of them."""

    rows: int | None = None
    share: float | None = None

    @classmethod
    def parse(cls, word: str) -> Amount:
        """`500`, `0.05` or `5%`. Raises JobError."""
        hint = "Write a number of rows (500), or a share (0.05 or 5%)."
        try:
            if word.endswith("%"):
                amount = cls(share=float(word[:-1]) / 100)
            else:
                amount = cls(rows=int(word)) if word.isdigit() else cls(share=float(word))
        except ValueError:
            raise JobError(f"{word} is no amount", hint) from None
        if not (amount.rows or 0 < (amount.share or 0) < 1):
            raise JobError(f"{word} holds back nothing or everything", hint)
        return amount

    def of(self, rows: int) -> int:
        return self.rows if self.rows is not None else max(1, round((self.share or 0) * rows))


class Split:
    """Writes `train` and `held_back`; afterwards `rows` says how many each has."""

    def __init__(self, data: DataSet, amount: Amount, seed: int, train: Path, held_back: Path, force: bool) -> None:
        self._data, self._amount, self._seed = data, amount, seed
        self._paths, self._force = (train, held_back), force
        self.rows = (0, 0)
        self.rejected = 0
        for path in self._paths:
            kind_of(path, force)
        read = {source.path.resolve() for source in data.sources}
        if both := [path for path in self._paths if path.resolve() in read]:
            raise JobError(f"{both[0]} is both read and written", "Name another folder.")

    def findings(self) -> Iterator[Finding]:
        """Writes both files; rows that are in neither are named. Raises JobError where nothing is left to train."""
        last = self._last_key()
        columns = tuple(dict.fromkeys(n for c in self._data.columns for n in (*c.column.values(), *c.left_out)))
        train, held_back = self._paths
        with Sink(train, columns, self._force) as first, Sink(held_back, columns, self._force) as second:
            for item in self._data.read():
                if isinstance(item, Finding):
                    self.rejected += item.level == REJECTED
                    yield item
                    continue
                side = second if self._key(item.example) <= last else first
                value = item.value if isinstance(item.value, dict) else {"text": item.value}
                try:
                    side.add(value if not isinstance(item.value, list) else {"messages": item.value})
                except Fault as fault:
                    self.rejected += 1
                    yield self._data.finding(REJECTED, fault.kind, fault.reason, item.file, item.place)
            first.close()
            second.close()
            self.rows = (first.rows, second.rows)
            first.publish()
            second.publish()

    def _key(self, example: Example) -> bytes:
        question, _whole = example.digests()
        return blake2b(question, digest_size=DIGEST_BYTES, key=str(self._seed).encode()).digest()

    def _last_key(self) -> bytes:
        """The greatest key that is held back: keys in order, as many as rows are wanted, its equals included."""
        rows = 0
        with Spill() as spill:
            for item in self._data.read():
                if isinstance(item, Read):
                    rows += 1
                    spill.add(self._key(item.example), b"", item.file, item.place)
            wanted = self._amount.of(rows)
            last = b""
            for number, key in enumerate(spill.in_order(), 1):
                if number > wanted and key != last:
                    return last
                last = key
        raise JobError(
            f"{wanted} of {rows} usable rows held back leave nothing to train on", "Hold back less, or check the data."
        )
