"""The trail of orders: who gave which, from where, about what, and what came of it. Appended, never changed."""

from __future__ import annotations

import logging
import time
from typing import Any

from agent import wire
from agent.journal import Journal
from agent.state import StateFolder

LIMIT_BYTES = 4 << 20
"""Then the file begins anew; the one before is kept."""
ENTRIES_LIMIT = 5000
LOG = logging.getLogger("agent")


class Audit:
    def __init__(self, state: StateFolder) -> None:
        self.journal = Journal(state.audit)

    def note(self, order: wire.Order, operator: str, reply: wire.Reply) -> dict[str, Any]:
        """Writes one order down, as far as the disk takes it."""
        entry = {
            "unix": round(time.time(), 3),
            "operator": operator,
            "verb": verb_of(order.body),
            "run": getattr(order.body, "run", None) or reply.result.get("run"),
            "step": step_of(order.body, reply),
            "outcome": "done" if reply.ok else reply.error,
            "order": order.id,
        }
        self.write(entry)
        return entry

    def write(self, entry: dict[str, Any]) -> None:
        """As far as the disk takes it; what it does not take stands in the log."""
        try:
            self.journal.rotate(LIMIT_BYTES)
            self.journal.append(entry)
        except OSError as error:
            LOG.warning("audit entry not written: %s: %s", error, entry)


def newest(state: StateFolder, limit: int) -> list[dict[str, Any]]:
    """The last entries, newest first, also out of the file before."""
    limit = max(0, min(limit, ENTRIES_LIMIT))
    found = Journal(state.audit).entries()
    if len(found) < limit:
        found = Journal(state.audit.with_name(f"{state.audit.name}.1")).entries() + found
    return found[len(found) - limit :][::-1] if limit < len(found) else found[::-1]


def verb_of(body: wire.Body) -> str:
    """What the trail calls it. A check starts nothing and must not read as if it had."""
    if isinstance(body, wire.Resume) and body.check:
        return "check resume"
    if isinstance(body, wire.Cordon) and not body.cordoned:
        return "uncordon"
    if isinstance(body, (wire.Acknowledge, wire.Mute)):
        return f"{type(body).__name__.lower()} {body.alert[:100]}"
    return body.verb if isinstance(body, wire.Steer) else type(body).__name__.lower()


def step_of(body: wire.Body, reply: wire.Reply) -> int | None:
    """The step it was about, where it was about one."""
    asked = body.args.get("step") if isinstance(body, wire.Steer) else None
    step = reply.result.get("step", asked)
    return step if isinstance(step, int) else None
