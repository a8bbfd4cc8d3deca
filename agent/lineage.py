"""Which steps of a run's branches lead to its present state, as its progress records tell it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jobs import progress
from jobs.run_folder import RunFolder

TURNS = ("rollback", "resume")
"""Records after which training stands at another step than the one after the last."""
Pairs = Sequence[Sequence[int]]
"""(branch, last step of it that still counts), oldest first; the present branch comes last, with -1 for no end."""
ORIGIN: Pairs = ((0, -1),)


def leads(lineage: Pairs, branch: int, step: int) -> bool:
    """Whether that state is on the way to the present one."""
    return any(branch == root and (last < 0 or step <= last) for root, last in lineage)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run has come to. `step` is None before its first."""

    lineage: Pairs = ORIGIN
    step: int | None = None


def came_to(folder: RunFolder) -> Place:
    """From all records of the run. Raises OSError."""
    place = Place()
    for record in records(folder):
        if record.get("kind") == "step":
            place = Place(place.lineage, int(record["step"]))
        elif record.get("kind") in TURNS:
            place = Place(record.get("lineage") or ORIGIN, int(record["to_step"]))
    return place


def records(folder: RunFolder) -> Iterator[dict[str, Any]]:
    offset = 0
    while True:
        found, following = progress.records(folder.progress, offset)
        yield from found
        if following == offset:
            return
        offset = following
