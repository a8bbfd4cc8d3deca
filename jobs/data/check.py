"""Everything that is wrong with a data set, row by row; then what rows have in common that they should not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from jobs.data.example import Example
from jobs.data.finding import NOTICED, REJECTED, Finding
from jobs.data.near import Near
from jobs.data.reading import DataSet, Read
from jobs.data.row import Fault
from jobs.data.spill import Member, Place, Spill


class Check:
    """One pass over the data. `held_back[i]` says whether file i is for evaluation.

    `length` gives tokens or characters of an example (`unit` says which); beyond `longest` it is noticed.
    """

    def __init__(
        self,
        data: DataSet,
        held_back: Sequence[bool],
        near: Near | None = None,
        length: Callable[[Example], int] | None = None,
        longest: int | None = None,
        unit: str = "characters",
    ) -> None:
        self._data, self._held_back, self._near = data, held_back, near
        self._length, self._longest, self._unit = length, longest, unit
        self.usable: Counter[int] = Counter()
        self.kinds: Counter[tuple[str, str]] = Counter()

    @property
    def rejected(self) -> int:
        return sum(times for (level, _kind), times in self.kinds.items() if level == "rejected")

    @property
    def leaks(self) -> int:
        return sum(times for (_level, kind), times in self.kinds.items() if kind.startswith("leak"))

    def findings(self) -> Iterator[Finding]:
        """All of them, rows first, as they are found. Raises JobError as DataSet.read does."""
        for finding in self._all():
            self.kinds[finding.level, finding.kind] += 1
            yield finding

    def _all(self) -> Iterator[Finding]:
        with Spill() as same:
            for item in self._data.read():
                if isinstance(item, Finding):
                    yield item
                    continue
                self.usable[item.file] += 1
                question, whole = item.example.digests()
                same.add(question, whole[:8], item.file, item.place)
                if self._near is not None:
                    self._near.add(item.example, item.file, item.place)
                if self._length is not None and self._longest is not None:
                    yield from self._measured(item, self._length, self._longest)
            for _key, members in same.groups():
                yield from self._alike(members)
            if self._near is not None:
                yield from self._almost(self._near)

    def _measured(self, item: Read, measure: Callable[[Example], int], longest: int) -> Iterator[Finding]:
        try:
            length = measure(item.example)
        except Fault as fault:
            self.usable[item.file] -= 1
            yield self._data.finding(REJECTED, fault.kind, fault.reason, item.file, item.place)
            return
        if length > longest:
            reason = f"has {length} {self._unit}, {length - longest} more than {longest}: training cuts it"
            yield self._data.finding(NOTICED, "over-long", reason, item.file, item.place)

    def _alike(self, members: Sequence[Member]) -> Iterator[Finding]:
        """Of rows with one question: answers given twice, and what is on both sides of the split."""
        first: dict[tuple[bytes, bool], Place] = {}
        for whole, place in members:
            side = self._held_back[place.file]
            if (whole, side) in first:
                yield self._noticed("duplicate", "is the same as", place, first[whole, side])
            first.setdefault((whole, side), place)
        trained = [place for (_whole, side), place in first.items() if not side]
        for (whole, side), place in first.items():
            if side and (whole, False) in first:
                yield self._noticed("leak", "held back, but trained on as", place, first[whole, False])
            elif side and trained:
                yield self._noticed("leak-question", "held back, but its question is trained on in", place, trained[0])

    def _almost(self, near: Near) -> Iterator[Finding]:
        for place, first, share in near.pairs():
            if share == 1.0 and place == first:
                continue
            leak = self._held_back[place.file] != self._held_back[first.file]
            if leak and self._held_back[first.file]:
                place, first = first, place
            words = f"shares about {share:.0%} of its words with"
            yield self._noticed("leak-near" if leak else "near-duplicate", words, place, first)

    def _noticed(self, kind: str, words: str, place: Place, other: Place) -> Finding:
        source = self._data.sources[other.file]
        where = f"{source.unit} {other.place}"
        if other.file != place.file:
            where = f"{self._data.name(other.file)}, {where}"
        return self._data.finding(NOTICED, kind, f"{words} {where}", place.file, place.place)
