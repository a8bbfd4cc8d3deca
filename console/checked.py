"""What checks of nodes came to, and equal results of several nodes together. No screen, no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from agent import wire
from console.strings import _

HEALTHS = ("fault", "watch", "unknown", "good")
"""Most pressing first"""
SIGNS = {"fault": ("✕", "bad"), "watch": ("!", "warn"), "unknown": ("?", "dim"), "good": ("✓", "ok")}
QUICK_S, FULL_S = 60.0, 120.0
"""Until an answer is given up; the node itself gives up its slowest check long before"""
ALIKE = frozenset(
    {"driver/nvml", "gpus/models", "gpus/vbios", "rdma/firmware", "rdma/roce", "rdma/rate", "network/mtu"}
)
"""What should be the same on all nodes of one run, as far as it is well by itself"""


@dataclass(frozen=True, slots=True)
class Checked:
    """One node's answer."""

    node: str
    at_unix: float
    checks: tuple[wire.Check, ...] = ()
    trouble: str = ""
    """Why it could not be checked"""
    hint: str = ""

    def count(self, health: str) -> int:
        return sum(one.health == health for one in self.checks)

    @property
    def worst(self) -> str:
        """Empty where it could not be checked."""
        return next((health for health in HEALTHS if self.count(health)), "")

    def ordered(self) -> list[wire.Check]:
        """Most pressing first; otherwise as the node gave them."""
        return sorted(self.checks, key=lambda one: HEALTHS.index(one.health))


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes on which a check came to the same."""

    check: wire.Check
    evidence: Mapping[str, str] = field(default_factory=dict)
    """By node"""

    @property
    def nodes(self) -> list[str]:
        return list(self.evidence)


def read(node: str, reply: wire.Reply, now_unix: float) -> Checked:
    if not reply.ok:
        return Checked(node, now_unix, (), reply.error or _("no answer"), reply.hint)
    found = reply.result.get("checks")
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        return Checked(node, now_unix, (), _("the answer holds no checks"), _("The node's agent may be older."))
    return Checked(node, now_unix, tuple(check(one) for one in found))


def check(raw: Mapping[str, Any]) -> wire.Check:
    words = {one.name: str(raw.get(one.name) or "") for one in fields(wire.Check)}
    return wire.Check(**words | {"health": words["health"] if words["health"] in HEALTHS else "unknown"})


def name_of(one: wire.Check) -> str:
    return f"{one.family}/{one.name}"


def grouped(results: Sequence[Checked]) -> list[Group]:
    """Equal results together: most pressing first, of one check the fewest nodes first."""
    found: dict[tuple[str, ...], Group] = {}
    for result in results:
        for one in result.checks:
            key = one.family, one.name, one.health, one.reason, one.action
            group = found.setdefault(key, Group(one, {}))
            found[key] = Group(group.check, {**group.evidence, result.node: one.evidence})
    order = {name: place for place, name in enumerate(dict.fromkeys(name_of(one.check) for one in found.values()))}
    groups = [*unlike(list(found.values())), *found.values()]
    return sorted(
        groups, key=lambda one: (HEALTHS.index(one.check.health), order[name_of(one.check)], len(one.evidence))
    )


def unlike(groups: Iterable[Group]) -> list[Group]:
    """What is well on each node, but not the same on all: those that differ from most."""
    found = []
    for group in groups:
        one, values = group.check, Counter(group.evidence.values())
        if one.health != "good" or name_of(one) not in ALIKE or len(values) < 2:
            continue
        usual, count = values.most_common(1)[0]
        odd = {node: value for node, value in group.evidence.items() if 2 * count <= len(group.nodes) or value != usual}
        others = _(" (most: {usual})").format(usual=usual) if len(odd) < len(group.nodes) else ""
        reason = _("differs from node to node") + others
        action = _("Nodes of one run should be alike: one driver, one firmware, one kind of card.")
        found.append(Group(wire.Check(one.family, one.name, "watch", reason, "", action), odd))
    return found


def summary(results: Sequence[Checked]) -> dict[str, int]:
    """How many checks came to what, over all nodes."""
    return {health: sum(one.count(health) for one in results) for health in HEALTHS}
