"""A fabric that is not there: nodes with a NIC on each rail, noise, and one fault."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from jobs.fabric.evidence import Edge
from jobs.fabric.schedule import Pair, pair
from jobs.fabric.search import SAMPLES
from jobs.fabric.suspicion import LINK, NIC, NODE, RAIL, Suspect, covers

GBPS = 390.0
FAULTS = ("slow NIC", "dead NIC", "flapping NIC", "slow node", "slow rail", "dead rail", "slow pair", "none")


@dataclass(slots=True)
class EmulatedFabric:
    """`factor`: what is left of the bandwidth where the culprit is involved; `duty`: the share of time it is slow."""

    nodes: Sequence[str]
    rails: Sequence[str]
    chance: random.Random
    culprit: Suspect | None = None
    factor: float = 1.0
    duty: float = 1.0
    noise: float = 0.1
    samples: int = SAMPLES
    bad: bool = field(default=True)

    def measure(self, pairs: Iterable[Pair]) -> dict[Edge, Sequence[float]]:
        """One round: repeated figures in Gb/s on each rail of each pair, all within the same seconds."""
        states = [self.passing() for _ in range(self.samples)]
        return {edge: self.figures(edge, states) for p in pairs for rail in self.rails for edge in [Edge(p, rail)]}

    def passing(self) -> bool:
        """Whether the culprit is slow now; a flapping one mostly stays as it was a moment ago."""
        if self.chance.random() < 0.5:
            self.bad = self.chance.random() < self.duty
        return self.bad

    def figures(self, edge: Edge, states: list[bool]) -> tuple[float, ...]:
        hit = self.culprit is not None and covers(self.culprit, edge)
        return tuple(
            max(0.0, GBPS * self.chance.gauss(1.0, self.noise)) * (self.factor if hit and bad else 1.0)
            for bad in states
        )


def broken(fault: str, seed: int, nodes: int = 64, rails: int = 8) -> EmulatedFabric:
    """A fabric with a fault of that sort somewhere, as severe as the seed has it."""
    chance = random.Random(f"{fault} {seed}")
    names, numbers = [f"n{i:02d}" for i in range(nodes)], [str(r) for r in range(rails)]
    fabric = EmulatedFabric(names, numbers, chance)
    if fault != "none":
        fabric.factor = 0.0 if "dead" in fault else chance.uniform(0.3, 0.7)
        fabric.duty = chance.uniform(0.3, 0.7) if "flapping" in fault else 1.0
        fabric.culprit = _culprit(fault.split()[1].lower(), chance, names, numbers)
        fabric.bad = chance.random() < fabric.duty
    return fabric


def _culprit(what: str, chance: random.Random, names: list[str], rails: list[str]) -> Suspect:
    if what == "pair":
        return Suspect(LINK, pair(*chance.sample(names, 2)), chance.choice([None, chance.choice(rails)]))
    if what == "rail":
        return Suspect(RAIL, (), chance.choice(rails))
    node = chance.choice(names)
    return Suspect(NIC, (node,), chance.choice(rails)) if what == "nic" else Suspect(NODE, (node,))
