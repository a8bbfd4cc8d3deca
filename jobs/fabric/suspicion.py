"""Who may be to blame for slow figures, and how strongly they speak for it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from jobs.fabric.evidence import Count, Edge

NODE, NIC, RAIL, LINK = "node", "nic", "rail", "link"
SLOW_RATES = (0.95, 0.5, 0.3)
"""How often a bad part is slow: always, or now and then (flapping)."""
SUSPICIOUS = 0.3
"""So many of the figures of one edge have to be slow for anybody to be suspected because of it."""
FALSE_ODDS = math.log(1 / 0.0005)
"""Blame needs this much more than what the number of those who could be blamed asks for."""


class Suspect(NamedTuple):
    """A part of the fabric: a node, one NIC of it, a rail, or the way between two nodes (on one rail or on all)."""

    kind: str
    nodes: tuple[str, ...] = ()
    rail: str | None = None

    @property
    def words(self) -> str:
        on = f" on rail {self.rail}" if self.rail is not None else ""
        if self.kind == RAIL:
            return f"rail {self.rail}"
        if self.kind == LINK:
            return f"the way between {' and '.join(self.nodes)}{on}"
        return f"the NIC of {self.nodes[0]}{on}" if self.kind == NIC else f"node {self.nodes[0]}"


@dataclass(frozen=True, slots=True)
class Weight:
    """How strongly the figures of a suspect speak for a fault, in nats over "nothing is wrong with it"."""

    suspect: Suspect
    score: float
    rate: float
    """How often it seems to be slow: one of SLOW_RATES"""
    count: Count


def suspects(edge: Edge, rails: int) -> list[Suspect]:
    """All who could be to blame for a slow figure on `edge`. With one rail a NIC cannot be told from its node."""
    (a, b), rail = edge
    found = [Suspect(NODE, (a,)), Suspect(NODE, (b,)), Suspect(LINK, edge.pair)]
    if rails > 1:
        found += [Suspect(NIC, (a,), rail), Suspect(NIC, (b,), rail), Suspect(LINK, edge.pair, rail)]
        found.append(Suspect(RAIL, (), rail))
    return found


def how_many(nodes: int, rails: int) -> dict[str, int]:
    """How many there are of each kind that could be to blame."""
    ways = nodes * (nodes - 1) // 2
    return {NODE: nodes, NIC: nodes * rails, RAIL: rails, LINK: ways * (rails + 1) if rails > 1 else ways}


def weigh(counts: Mapping[Edge, Count], chance: float, nodes: int, rails: int) -> list[Weight]:
    """The strongest first. `chance`: that a healthy figure counts as slow.

    The log of the likelihood ratio of two binomials: slow at one of SLOW_RATES against slow by chance, less the log of
    how many there are of the kind. It finds the right size by itself: a NIC that is slow to all explains more than any
    of its pairs, and does not have to explain the good figures of its node's other NICs.
    """
    accused = {s for edge, c in counts.items() if c.slow >= SUSPICIOUS * c.of for s in suspects(edge, rails)}
    involved, on_rails = {n for s in accused for n in s.nodes}, {s.rail for s in accused if s.kind == RAIL}
    totals: dict[Suspect, Count] = defaultdict(Count)
    for edge, found in counts.items():
        if edge.rail in on_rails or not involved.isdisjoint(edge.pair):
            for suspect in accused.intersection(suspects(edge, rails)):
                totals[suspect] += found
    many = how_many(nodes, rails)
    weights = []
    for suspect, total in totals.items():
        score, rate = max((likelihood(total, rate, chance), rate) for rate in SLOW_RATES)
        weights.append(Weight(suspect, score - math.log(many[suspect.kind]), rate, total))
    return sorted(weights, key=lambda w: -w.score)


def likelihood(count: Count, rate: float, chance: float) -> float:
    good = count.of - count.slow
    return count.slow * math.log(rate / chance) + good * math.log((1 - rate) / (1 - chance))


def covers(suspect: Suspect, edge: Edge) -> bool:
    """Whether a fault of `suspect` slows what is measured on `edge`."""
    if suspect.rail is not None and suspect.rail != edge.rail:
        return False
    if suspect.kind == LINK:
        return suspect.nodes == edge.pair
    return suspect.kind == RAIL or suspect.nodes[0] in edge.pair
