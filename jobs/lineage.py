"""Which branch of a run is under way, which steps of older branches lead to it, and where the run has come to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from jobs import progress
from jobs.run_folder import RunFolder

Pair = tuple[int, int]
TURNS = ("rollback", "resume")
"""Records after which training stands at another step than the one after the last."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """`roots`: (branch, last step of it that still counts), oldest first; `branch` is the present one."""

    branch: int = 0
    roots: tuple[Pair, ...] = ()

    def holds(self, branch: int, step: int) -> bool:
        """Whether that state is on the way to the present one."""
        return branch == self.branch or any(branch == root and step <= last for root, last in self.roots)

    def fork(self, branch: int, step: int, new_branch: int) -> Lineage:
        """The lineage of `new_branch`, which begins at `step` of `branch`, one of this lineage."""
        older = [pair for pair in self.roots if pair[0] < branch]
        return Lineage(new_branch, (*older, (branch, step)))

    def to_json(self) -> list[list[int]]:
        return [list(pair) for pair in (*self.roots, (self.branch, -1))]

    @classmethod
    def from_json(cls, value: Sequence[Sequence[int]]) -> Lineage:
        """Raises ValueError or IndexError for what is none."""
        *roots, present = value
        return cls(int(present[0]), tuple((int(branch), int(last)) for branch, last in roots))

    @classmethod
    def told_by(cls, record: dict[str, Any]) -> Lineage:
        """Of a record of a turn; the plain one where it tells none."""
        return cls.from_json(record["lineage"]) if record.get("lineage") else cls()


@dataclass(frozen=True, slots=True)
class Place:
    """The last step on record, and what led to it. `step` is None before the first."""

    branch: int = 0
    step: int | None = None
    lineage: Lineage = field(default_factory=Lineage)


def came_to(folder: RunFolder) -> Place:
    """From all records of the run. Raises OSError."""
    place = Place()
    for record in records(folder):
        if record.get("kind") == "step":
            place = Place(int(record.get("branch", 0)), int(record["step"]), place.lineage)
        elif record.get("kind") in TURNS:
            lineage = Lineage.told_by(record)
            place = Place(lineage.branch, int(record["to_step"]), lineage)
    return place


def records(folder: RunFolder) -> Iterator[dict[str, Any]]:
    offset = 0
    while True:
        found, following = progress.records(folder.progress, offset)
        yield from found
        if following == offset:
            return
        offset = following
