"""Which branch of a run is under way, and which steps of older branches lead to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Pair = tuple[int, int]


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
