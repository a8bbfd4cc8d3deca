"""The short way to a bad part of the fabric: who is measured with whom next, given what was seen so far.

Every round takes all nodes in disjoint pairs, so a suspect meets another partner each time while the others go on
being watched: after two rounds a slow NIC stands alone in two slow pairs. Only a way between two nodes has to be
measured again on purpose.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from jobs.fabric import schedule
from jobs.fabric.evidence import Edge, Evidence
from jobs.fabric.schedule import Pair, Round
from jobs.fabric.suspicion import LINK
from jobs.fabric.verdict import WELL_KNOWN, Verdict, judge

SHORT = 7
"""Rounds that isolate a node, NIC or rail. Without a fault all are measured: in fewer a flapping NIC can hide."""
LEAST = 2
AGAIN = 3
"""Rounds more than all pairs take, where too few nodes were seen often enough to do without repetition."""
SAMPLES = 9
"""Repeated figures of each edge in a round, spread over some seconds: fewer let a flapping NIC hide."""


@dataclass(slots=True)
class Search:
    """Ask `next` for a round, measure its pairs on all rails, `take` the figures; `verdict` says what they mean.

    `thorough`: all pairs, in N - 1 rounds (at least 7); else at most 7 rounds, in which a slow way between two nodes is
    found only if it is among those measured.
    """

    nodes: Sequence[str]
    rails: Sequence[str]
    thorough: bool = False
    expected: float | None = None
    evidence: Evidence = field(default_factory=Evidence)
    verdict: Verdict = field(default_factory=lambda: Verdict("none"))
    planned: tuple[Round, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.planned = schedule.rounds(self.nodes)

    @property
    def limit(self) -> int:
        if not self.thorough:
            return SHORT
        every = len(self.planned)
        return max(SHORT, every if every > WELL_KNOWN else every + AGAIN)

    def next(self) -> Round | None:
        """The pairs to measure at the same time; None when there is no more to learn."""
        done = self.evidence.rounds
        planned = self.planned
        if done >= self.limit or not planned or self.settled():
            return None
        return schedule.with_again(planned[done % len(planned)], self.doubted())

    def settled(self) -> bool:
        return self.evidence.rounds >= LEAST and bool(self.verdict.culprits) and not self.verdict.doubts

    def doubted(self) -> Iterator[Pair]:
        """Ways that are suspected alone and were not slow often enough to be blamed; each node once.

        Where an end is suspected too, meeting others tells them apart.
        """
        seen: set[str] = set()
        for suspect, *rivals in self.verdict.doubts:
            if suspect.kind == LINK and not rivals and seen.isdisjoint(suspect.nodes):
                seen.update(suspect.nodes)
                yield schedule.pair(*suspect.nodes)

    def take(self, measured: dict[Edge, Sequence[float]]) -> None:
        self.evidence.add(measured)
        done = self.evidence.rounds
        if self.worth_a_look(measured):
            self.verdict = judge(self.evidence, self.nodes, self.rails, self.expected, done >= self.limit)

    def worth_a_look(self, measured: dict[Edge, Sequence[float]]) -> bool:
        """In the long run of a thorough search most rounds hold nothing that could change the verdict."""
        done, known = self.evidence.rounds, self.verdict.usual
        if done <= SHORT or done >= self.limit or known is None or self.verdict.doubts:
            return True
        return any(statistics.median(figures) < known.cut for figures in measured.values())
