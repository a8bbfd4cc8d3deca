"""What has begun to fire since the console last looked: for pop-ups and the bell."""

from __future__ import annotations

from agent import wire
from console.fleet import Fleet

SHOWN_AT_ONCE = 3
"""More at the same moment are said as a number: a rack that loses its power must not cover the screen."""


class Herald:
    """What a node was firing when it was first heard is no news; the header counts it."""

    def __init__(self) -> None:
        self.known: dict[str, set[tuple[str, float | None]]] = {}

    def news(self, fleet: Fleet) -> list[tuple[str, wire.Alert]]:
        """Node and alert, for each that is new, unattended and not muted."""
        found: list[tuple[str, wire.Alert]] = []
        for node in fleet.nodes.values():
            if node.level_at is None:
                continue
            now = {(alert.id, alert.since_unix) for alert in node.state.alerts.values()}
            before = self.known.get(node.name, now)
            self.known[node.name] = now
            found += [
                (node.name, alert)
                for alert in node.state.alerts.values()
                if (alert.id, alert.since_unix) not in before and not alert.acked_by and not alert.muted_until_unix
            ]
        return found
