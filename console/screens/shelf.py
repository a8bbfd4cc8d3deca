"""What a node says of a run's snapshots: asked for once, and again only when there is reason to."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from agent import wire
from console.fleet import History, Run
from console.screens.desk import Desk
from console.screens.figures import number
from console.strings import _

LIST_S = 60.0
VERIFY_S = 3600.0
"""Hashing tens of GiB from a slow disk."""
KINDS = ("snapshot", "rollback", "resume", "end")
"""Records after which the list is another one."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A snapshot that must not be used, and why, in the node's words."""

    name: str
    reason: str


@dataclass(slots=True)
class Shelf:
    snapshots: tuple[wire.SnapshotState, ...] = ()
    """Newest first"""
    refused: tuple[Refused, ...] = ()
    trouble: str = ""
    """Why there is no list"""
    heard: bool = False
    verifying: bool = False
    verified: dict[str, bool] = field(default_factory=dict)
    """What hashing found, as long as this is looked at"""
    future: Future[wire.Reply] | None = None
    known: object = None

    def turn(self, desk: Desk, run: Run | None, history: History | None) -> None:
        """Take in the answer if it has come; ask if something has happened since."""
        if self.future is not None and self.future.done():
            reply, self.future = self.future.result(), None
            self.take(reply)
        node = desk.node(run.node) if run is not None else None
        if run is None or node is None or desk.session is None or self.future is not None:
            return
        marks = sum(mark.get("kind") in KINDS for mark in history.marks) if history is not None else 0
        state = run.state
        reason = (marks, state.phase, state.snapshot_step, node.link.phase)
        if reason != self.known and node.live(desk.clock()):
            self.known = reason
            self.future = desk.session.ask(run.node, wire.ListSnapshots(state.run), LIST_S)

    def again(self) -> None:
        """The list is no longer what it was."""
        self.known = None

    def take(self, reply: wire.Reply) -> None:
        if not reply.ok:
            self.trouble = reply.error
            return
        try:
            listed = [snapshot(one) for one in reply.result.get("snapshots") or ()]
            refused = [Refused(str(one["name"]), str(one["reason"])) for one in reply.result.get("refused") or ()]
        except (KeyError, TypeError, ValueError, AttributeError):
            self.trouble = _("the node sent something that is no list of snapshots")
            return
        self.verified |= {one.name: one.verified for one in listed if one.verified is not None}
        self.snapshots = tuple(replace(one, verified=self.verified.get(one.name)) for one in listed)
        self.refused = tuple(one for one in refused if one.name)
        self.heard, self.trouble = True, ""

    def named(self, name: str | None) -> wire.SnapshotState | None:
        return next((one for one in self.snapshots if one.name == name), None)

    def reason(self, name: str | None) -> str:
        """Why a snapshot must not be used; empty when it may."""
        return next((one.reason for one in self.refused if one.name == name), "")

    def usable(self) -> list[wire.SnapshotState]:
        return [one for one in self.snapshots if not self.reason(one.name)]


def snapshot(raw: dict[str, Any]) -> wire.SnapshotState:
    """Raises KeyError, TypeError, ValueError or AttributeError for something else."""
    verified = raw.get("verified")
    return wire.SnapshotState(
        name=str(raw["name"]),
        branch=int(raw["branch"]),
        step=int(raw["step"]),
        created_unix=float(raw["created_unix"]),
        size_bytes=int(raw["size_bytes"]),
        loss=number(raw.get("loss")),
        pinned=bool(raw.get("pinned")),
        verified=None if verified is None else bool(verified),
        badge=str(raw.get("badge") or ""),
        why=str(raw.get("why") or ""),
    )
