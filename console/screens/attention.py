"""What needs a look right now: what the nodes' own rules say, and what only the console sees, a silent node."""

from __future__ import annotations

import time
from dataclasses import dataclass

from agent import wire
from console.fleet import Fleet, Node
from console.format import age
from console.strings import _

LOST = "gpu-lost"
"""The agent's rule about cards that do not answer"""


@dataclass(frozen=True, slots=True)
class Concern:
    node: str
    text: str
    role: str = "bad"
    since_s: float | None = None
    """Seconds that it has been so"""
    alert: wire.Alert | None = None
    """None: seen from here, so there is nothing on the node to acknowledge"""

    @property
    def quiet(self) -> bool:
        """Somebody looks after it, or it was muted."""
        return self.alert is not None and bool(self.alert.acked_by or muted(self.alert))

    @property
    def key(self) -> str:
        return f"{self.node}\n{self.alert.id if self.alert is not None else self.text.partition(' ')[0]}"


def muted(alert: wire.Alert) -> bool:
    return alert.muted_until_unix is not None and alert.muted_until_unix > time.time()


def attention(fleet: Fleet, now: float) -> list[Concern]:
    """What calls for somebody; acknowledged and muted alerts do not."""
    return [one for node in fleet.nodes.values() for one in about(node, now) if not one.quiet]


def about(node: Node, now: float) -> list[Concern]:
    return [*link_concerns(node, now), *lost_gpus(node), *(of_alert(node, one) for one in node.state.alerts.values())]


def link_concerns(node: Node, now: float) -> list[Concern]:
    found: list[Concern] = []
    old = node.level_age_s(now)
    if node.link.phase == "down":
        down_s = now - node.link.since_monotonic
        text = _("down for {since}: {why}").format(since=age(down_s), why=node.link.why)
        found.append(Concern(node.name, text, since_s=down_s))
    elif node.link.phase == "stale" or (node.link.phase == "live" and old is not None and not node.live(now)):
        found.append(Concern(node.name, _("silent for {old}").format(old=age(old)), "warn", old))
    if node.link.kind == "garbled":
        found.append(Concern(node.name, node.link.why, "warn"))
    return found


def lost_gpus(node: Node) -> list[Concern]:
    """As the state tells them, where the node's rules do not."""
    if any(alert.rule == LOST for alert in node.state.alerts.values()):
        return []
    lost = [gpu for gpu in node.state.gpus.values() if gpu.lost]
    return [Concern(node.name, _("GPU {i}: {why}").format(i=gpu.index, why=gpu.lost)) for gpu in lost]


def of_alert(node: Node, alert: wire.Alert) -> Concern:
    wall = time.time() + (node.clock_offset_s or 0.0)
    since = None if alert.since_unix is None else max(0.0, wall - alert.since_unix)
    return Concern(node.name, alert.text, "bad" if alert.severity == "critical" else "warn", since, alert)


def ordered(concerns: list[Concern]) -> list[Concern]:
    """Most pressing first: unattended before attended, critical before warnings, then the newest."""
    return sorted(concerns, key=lambda one: (one.quiet, one.role != "bad", one.since_s or 0.0, one.node, one.text))
