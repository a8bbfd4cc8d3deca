"""What slow pairs of nodes mean: a node, a NIC, a rail, the way between two nodes, the fabric, or not decided."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from jobs.fabric import schedule
from jobs.fabric.evidence import Count, Edge, Evidence, Usual, count, usual
from jobs.fabric.schedule import Pair
from jobs.fabric.suspicion import FALSE_ODDS, LINK, SLOW_RATES, SUSPICIOUS, Suspect, Weight, covers, weigh

FABRIC, NONE, UNDETERMINED = "fabric", "none", "undetermined"
MARGIN = 4.6
"""Nats: whoever fits the figures a hundred times worse is out."""
EVERYWHERE = 0.8
"""When so many of all figures are slow, it is not one part."""
TOGETHER = 0.6
"""So much of what a part covers has to be slow whenever any of it is: the rest may be lost in noise."""
SCATTERED = 3
"""So many slow ways between nodes without a common one are the fabric's."""
WELL_KNOWN = 20
"""Rounds in which both ends of a way were good with others: then a flapping end is out of the question."""
MOST = 8


@dataclass(frozen=True, slots=True)
class Blame:
    suspect: Suspect
    percent: float | None
    """Its median as a percentage of what is usual"""
    flapping: bool
    rounds: int
    """In how many rounds it was slow"""
    score: float

    @property
    def words(self) -> str:
        slow = "is dead" if not self.percent else f"gives {self.percent:.0f}% of what is usual"
        if self.flapping:
            slow = "is slow now and then"
        return f"{self.suspect.words} {slow} (seen in {self.rounds} round{'' if self.rounds == 1 else 's'})"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`kind`: node | nic | rail | link | fabric | none | undetermined."""

    kind: str
    culprits: tuple[Blame, ...] = ()
    doubts: tuple[tuple[Suspect, ...], ...] = ()
    """Between whom the evidence does not decide, or whose fault was seen once only; the likeliest first"""
    untested: tuple[Pair, ...] = ()
    usual: Usual | None = None
    rounds: int = 0

    @property
    def words(self) -> str:
        if self.kind == FABRIC:
            return "the fabric is slow, not one part of it: " + (
                "; ".join(b.words for b in self.culprits) or "nearly every pair is below what its links should give"
            )
        if self.culprits:
            return "; ".join(blame.words for blame in self.culprits)
        if self.doubts:
            return "; ".join(_doubt(doubt) for doubt in self.doubts)
        if self.usual is None:
            return "nothing came through between any two nodes" if self.rounds else "nothing was measured"
        return "nothing slower than the rest"


@dataclass(slots=True)
class _Trial:
    """The figures and what has been concluded from them so far."""

    evidence: Evidence
    usual: Usual
    nodes: int
    rails: int
    counts: dict[Edge, Count]
    last: bool
    culprits: list[Blame] = field(default_factory=list)
    doubts: list[tuple[Suspect, ...]] = field(default_factory=list)

    def conclude(self) -> None:
        """Name the strongest suspect, set aside what it explains, look again."""
        for _ in range(MOST):
            weighed = weigh(self.counts, self.usual.chance, self.nodes, self.rails)
            weights = [w for w in weighed if w.score >= FALSE_ODDS and self.whole(w.suspect)]
            if not weights:
                return
            best = weights[0]
            rivals = [w.suspect for w in weights[1:] if w.score > best.score - MARGIN and self.shared(best, w)]
            if rivals or not self.confirmed(best):
                self.doubts.append((best.suspect, *rivals))
            else:
                self.culprits.append(self.blame(best))
            explained = [best.suspect, *rivals]
            self.counts = {e: c for e, c in self.counts.items() if not any(covers(s, e) for s in explained)}

    def shared(self, one: Weight, other: Weight) -> bool:
        """Whether both would explain some of the same slow figures."""
        both = (c for e, c in self.counts.items() if covers(one.suspect, e) and covers(other.suspect, e))
        return any(c.slow for c in both)

    def confirmed(self, weight: Weight) -> bool:
        """Seen in two rounds at least, in three if now and then; a node, NIC or rail against two others at least.

        Two nodes alone cannot accuse each other: somebody else has to have been measured. In few rounds a flapping NIC
        can look like a slow way to whom it met while it was down, so that takes three; of nodes that were good in many
        rounds, two, or one where there is `last` no time for another.
        """
        suspect = weight.suspect
        slow = len(self.slow_rounds(suspect))
        if suspect.kind != LINK:
            enough = 3 if weight.rate < SLOW_RATES[0] else 2
            return slow >= enough and len({edge.pair for edge in self.slow_edges(suspect)}) > 1
        good = min(self.good_rounds(node, suspect) for node in suspect.nodes)
        if good >= WELL_KNOWN:
            return slow >= (1 if self.last else 2)
        return good > 0 and slow >= 3 and weight.rate == SLOW_RATES[0]

    def whole(self, suspect: Suspect) -> bool:
        """Whether what it covers is slow together: two bad NICs on a rail are not half a bad rail."""
        slow = self.slow_rounds(suspect)
        seen = [self.slow_then(e, n) for e in self.covered(suspect) for n in self.evidence.figures[e] if n in slow]
        return sum(seen) >= TOGETHER * len(seen)

    def covered(self, suspect: Suspect) -> list[Edge]:
        return [edge for edge in self.counts if covers(suspect, edge)]

    def slow_edges(self, suspect: Suspect) -> list[Edge]:
        return [e for e in self.covered(suspect) if self.counts[e].slow >= SUSPICIOUS * self.counts[e].of]

    def slow_then(self, edge: Edge, number: int) -> bool:
        """Whether a good part of the edge's figures in that round were slow."""
        figures = self.evidence.figures[edge][number]
        return sum(f < self.usual.cut for f in figures) >= SUSPICIOUS * len(figures)

    def slow_rounds(self, suspect: Suspect) -> set[int]:
        return {n for e in self.slow_edges(suspect) for n in self.evidence.figures[e] if self.slow_then(e, n)}

    def good_rounds(self, node: str, way: Suspect) -> int:
        """Rounds in which the node was good with others than on the way in question."""
        return len(
            {
                number
                for edge in self.counts
                if node in edge.pair and edge.pair != way.nodes and way.rail in (None, edge.rail)
                for number, figures in self.evidence.figures[edge].items()
                if statistics.median(figures) >= self.usual.cut
            }
        )

    def blame(self, weight: Weight) -> Blame:
        figures = [
            f for edge in self.covered(weight.suspect) for group in self.evidence.figures[edge].values() for f in group
        ]
        percent = 100 * statistics.median(figures) / self.usual.bandwidth
        flapping = weight.rate < SLOW_RATES[0]
        return Blame(weight.suspect, percent, flapping, len(self.slow_rounds(weight.suspect)), weight.score)


def judge(
    evidence: Evidence, nodes: Sequence[str], rails: Sequence[str], expected: float | None = None, last: bool = False
) -> Verdict:
    """What the evidence says about the fabric that connects `nodes`.

    `expected`: what one edge should give, in the figures' unit. `last`: nothing more will be measured.
    """
    untested = tuple(sorted(schedule.all_pairs(nodes) - evidence.pairs()))
    found = usual(list(evidence.all()), expected)
    if found is None:
        kind = UNDETERMINED if evidence.rounds else NONE
        return Verdict(kind, untested=untested, rounds=evidence.rounds)
    counts = {edge: count(by_round, found.cut) for edge, by_round in evidence.figures.items()}
    whole = sum(counts.values(), Count())
    if whole.slow > EVERYWHERE * whole.of and len(nodes) > 3:
        return Verdict(FABRIC, untested=untested, usual=found, rounds=evidence.rounds)
    trial = _Trial(evidence, found, len(nodes), len(rails), counts, last)
    trial.conclude()
    kind = _kind(trial.culprits, trial.doubts)
    return Verdict(kind, tuple(trial.culprits), tuple(trial.doubts), untested, found, evidence.rounds)


def _doubt(suspects: tuple[Suspect, ...]) -> str:
    if len(suspects) == 1:
        return f"{suspects[0].words} was slow, but not often enough to be blamed"
    return "not decided between " + ", ".join(suspect.words for suspect in suspects)


def _kind(culprits: Sequence[Blame], doubts: Sequence[tuple[Suspect, ...]]) -> str:
    if not culprits:
        return UNDETERMINED if doubts else NONE
    ways = [b.suspect for b in culprits if b.suspect.kind == LINK]
    if len(ways) >= SCATTERED and not set.intersection(*(set(way.nodes) for way in ways)):
        return FABRIC
    return culprits[0].suspect.kind
