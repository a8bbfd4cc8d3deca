"""Who ordered what on a node, and what came of it: its audit trail, as far as a screen has room."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from agent import wire
from console.fleet import Node
from console.format import UNKNOWN, clock
from console.screens.desk import Desk
from console.strings import _
from console.widgets.paint import EMPTY, Line, crop, heading, one_line

SHOWN = 8
EVERY_S = 10.0
ASK_S = 30.0
DONE = "done"


@dataclass(slots=True)
class Trail:
    """The newest entries; kept while the node is silent."""

    entries: tuple[dict[str, Any], ...] = ()
    future: Future[wire.Reply] | None = None
    due_s: float = 0.0

    def turn(self, desk: Desk, node: Node) -> None:
        """Take in the answer if it has come; ask anew now and then."""
        if self.future is not None and self.future.done():
            reply, self.future = self.future.result(), None
            found = reply.result.get("entries")
            if reply.ok and isinstance(found, list):
                self.entries = tuple(entry for entry in found if isinstance(entry, dict))
        now = desk.clock()
        if self.future is None and now >= self.due_s and desk.session is not None and node.live(now):
            self.due_s = now + EVERY_S
            self.future = desk.session.ask(node.name, wire.ReadAudit(SHOWN), ASK_S)

    def lines(self, width: int) -> list[Line]:
        """Nothing where nothing was ever ordered."""
        if not self.entries:
            return []
        title = _("Orders (`tunedeck audit` has them all)")
        return [EMPTY, heading(title, width), *(order_line(entry, width) for entry in self.entries)]


def order_line(entry: dict[str, Any], width: int) -> Line:
    def said(name: str) -> str:
        value = entry.get(name)
        return UNKNOWN if value in (None, "") else one_line(str(value))

    unix = entry.get("unix")
    at = clock(float(unix) if isinstance(unix, (int, float)) else None)
    step = "" if entry.get("step") is None else " " + _("step {n}").format(n=said("step"))
    run = "" if not entry.get("run") else f" {said('run')}"
    outcome = said("outcome")
    return crop(
        (
            (f"{at} ", "dim"),
            (said("verb"), "strong"),
            (f"{run}{step}  ", "text"),
            (f"{said('operator')}  ", "dim"),
            (outcome, "ok" if outcome == DONE else "warn"),
        ),
        width,
    )
