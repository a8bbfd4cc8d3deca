"""What became of one kill, and of many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

KINDS = ("rank", "torchrun", "writer", "keeper", "agent")


@dataclass
class Outcome:
    kind: str
    world: int
    where: str
    exact: bool = False
    lost: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    fault: str = ""

    @property
    def good(self) -> bool:
        return self.exact and not (self.lost or self.left or self.fault)


def table(outcomes: Sequence[Outcome]) -> str:
    lines = [f"{'kind':10}{'kills':>7}{'exact':>7}{'lost':>6}{'left':>6}{'faults':>8}  where"]
    for kind in [*KINDS, "all"]:
        some = [one for one in outcomes if kind in (one.kind, "all")]
        where = ", ".join(f"{count} {place}" for place, count in sorted(Counter(one.where for one in some).items()))
        counts = [len(some), sum(one.exact for one in some)]
        counts += [sum(len(one.lost) for one in some), sum(len(one.left) for one in some)]
        faults = sum(bool(one.fault) for one in some)
        lines.append(f"{kind:10}{counts[0]:7}{counts[1]:7}{counts[2]:6}{counts[3]:6}{faults:8}  {where}")
    return "\n".join(lines)
