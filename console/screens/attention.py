"""What needs a look right now, as plain statements about the state."""

from __future__ import annotations

from dataclasses import dataclass

from console.fleet import Fleet, Node
from console.format import age
from console.strings import _


@dataclass(frozen=True, slots=True)
class Concern:
    node: str
    text: str
    role: str = "bad"


def attention(fleet: Fleet, now: float) -> list[Concern]:
    return [concern for node in fleet.nodes.values() for concern in about(node, now)]


def about(node: Node, now: float) -> list[Concern]:
    found: list[Concern] = []
    old = node.level_age_s(now)
    if node.link.phase == "down":
        since = age(now - node.link.since_monotonic)
        found.append(Concern(node.name, _("down for {since}: {why}").format(since=since, why=node.link.why)))
    elif node.link.phase == "stale" or (node.link.phase == "live" and old is not None and not node.live(now)):
        found.append(Concern(node.name, _("silent for {old}").format(old=age(old)), "warn"))
    if node.link.kind == "garbled":
        found.append(Concern(node.name, node.link.why, "warn"))
    lost = [gpu for gpu in node.state.gpus.values() if gpu.lost]
    found += [Concern(node.name, _("GPU {i}: {why}").format(i=gpu.index, why=gpu.lost)) for gpu in lost]
    return found
