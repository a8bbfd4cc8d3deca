"""What was measured between pairs of nodes, made comparable: how much of it is slow, against what is usual here."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from jobs.fabric.schedule import Pair

NORMAL_SHARE = 0.75
"""Below this share of the usual a figure takes no part in saying what usual is."""
SLOW_SHARE = 0.85
"""A single figure below this share of the usual counts as slow, where noise does not ask for more distance."""
NOISE_SIGMAS = 2.0
LEAST_SIGMA = 0.01
LEAST_CHANCE = 0.005
"""Even a quiet fabric has a slow figure once in 200: other jobs, retransmissions."""
MAD_TO_SIGMA = 1.4826
"""Of a normal distribution: 1 / Φ⁻¹(3/4)."""


class Edge(NamedTuple):
    """Where one figure comes from: two nodes, and the rail on which both their NICs are."""

    pair: Pair
    rail: str


@dataclass(frozen=True, slots=True)
class Usual:
    """What is usual here. `bandwidth` in the unit of the figures, `sigma` of single figures as a share of it.

    `cut`: what is below is slow, in the unit of the figures; `chance`: that a healthy figure is below it.
    """

    bandwidth: float
    sigma: float
    cut: float
    chance: float


@dataclass(slots=True)
class Evidence:
    """Figures by edge and, within it, by round. 0 means that nothing came through; what was not tried is absent."""

    figures: dict[Edge, dict[int, tuple[float, ...]]] = field(default_factory=lambda: defaultdict(dict))
    rounds: int = 0

    def add(self, measured: dict[Edge, Sequence[float]]) -> None:
        """One round: the repeated figures of each edge, all in one unit."""
        for edge, figures in measured.items():
            self.figures[edge][self.rounds] = tuple(figures)
        self.rounds += 1

    def pairs(self) -> set[Pair]:
        return {edge.pair for edge in self.figures}

    def all(self) -> Iterator[float]:
        for by_round in self.figures.values():
            for figures in by_round.values():
                yield from figures


def usual(figures: Sequence[float], expected: float | None = None) -> Usual | None:
    """What healthy figures are like. None when there are none that came through.

    The usual is the median of the upper cluster, found from the top down: of three nodes with one bad cable two pairs
    in three are slow, and the median of all would call that usual. `expected` replaces it when it is higher, so that a
    fabric slow everywhere is seen to be so.
    """
    ordered = sorted(figures)
    if not ordered or ordered[-1] <= 0:
        return None
    middle = ordered[min(len(ordered) - 1, int(len(ordered) * 0.9))] or ordered[-1]
    for _ in range(6):
        normal = ordered[bisect_left(ordered, NORMAL_SHARE * middle) :]
        middle, before = normal[len(normal) // 2], middle
        if abs(middle - before) < 1e-3 * before:
            break
    deviations = [abs(f - middle) for f in ordered[bisect_left(ordered, NORMAL_SHARE * middle) :]]
    sigma = max(MAD_TO_SIGMA * statistics.median(deviations) / middle, LEAST_SIGMA)
    level = max(middle, expected or 0.0)
    share = min(SLOW_SHARE, 1 - NOISE_SIGMAS * sigma)
    chance = max(_below((1 - share) / sigma), LEAST_CHANCE)
    return Usual(level, sigma, share * level, chance)


def _below(sigmas: float) -> float:
    """The chance of a normal variable to lie so many sigmas below its mean."""
    return 0.5 * math.erfc(sigmas / math.sqrt(2))


class Count(NamedTuple):
    """`slow` of `of` figures were slow."""

    slow: int = 0
    of: int = 0

    def __add__(self, other: Count) -> Count:  # type: ignore[override]
        return Count(self.slow + other.slow, self.of + other.of)


def count(by_round: dict[int, tuple[float, ...]], cut: float) -> Count:
    figures = [f for group in by_round.values() for f in group]
    return Count(sum(f < cut for f in figures), len(figures))
