"""A run's snapshots for the console: listed, verified, pinned, and the one to go on from chosen."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agent.codec import pack
from agent.preflight import Badge
from agent.refusal import Refusal
from agent.wire import NEWEST, SnapshotState
from jobs import snapshot
from jobs.lineage import Place
from jobs.run_folder import RunFolder
from jobs.snapshot import Snapshot, SnapshotError

MEASURABLE_BYTES = 1 << 20
"""Reading less than this is over before its speed means anything."""


@dataclass(slots=True)
class ReadSpeed:
    """How fast snapshots were read and hashed the last time; None until that was measured."""

    bytes_s: float | None = None

    def note(self, size_bytes: int, seconds: float) -> None:
        if size_bytes >= MEASURABLE_BYTES and seconds > 0:
            self.bytes_s = size_bytes / seconds

    def forecast_s(self, size_bytes: int) -> float | None:
        return None if self.bytes_s is None else round(size_bytes / self.bytes_s, 3)


def verified(folder: RunFolder, name: str, speed: ReadSpeed) -> Snapshot:
    """Every byte read. Raises SnapshotError, also for one that is pruned meanwhile."""
    began = time.monotonic()
    try:
        found = snapshot.verify(folder, name)
    except OSError as error:
        raise SnapshotError(f"snapshot {name} cannot be read: {error.strerror}", "Take another one.") from error
    speed.note(found.size_bytes, time.monotonic() - began)
    return found


def sound(folder: RunFolder) -> tuple[list[Snapshot], list[dict[str, str]]]:
    """Snapshots with a sound manifest, newest first; and name and reason of those without."""
    found, refused = [], []
    for name in snapshot.names(folder):
        try:
            found.append(snapshot.read(folder, name))
        except SnapshotError as error:
            refused.append({"name": name, "reason": error.message})
    return sorted(found, key=lambda one: (one.created_unix, one.step), reverse=True), refused


def listing(folder: RunFolder, verify: bool, judge: Callable[[Snapshot], Badge], speed: ReadSpeed) -> dict[str, Any]:
    """The answer to ListSnapshots. A snapshot whose manifest is sound but whose bytes are not is in both lists."""
    found, refused = sound(folder)
    states = []
    for one in found:
        good, badge = None, judge(one)
        if verify:
            try:
                good = verified(folder, one.name, speed).name == one.name
            except SnapshotError as error:
                good, badge = False, Badge("", (error.message,))
                refused.append({"name": one.name, "reason": error.message})
        states.append(shown(one, good, badge))
    return {"snapshots": pack(states, tagged=False), "refused": refused, "read_bytes_s": speed.bytes_s}


def shown(one: Snapshot, good: bool | None, badge: Badge) -> SnapshotState:
    return SnapshotState(
        name=one.name,
        branch=one.branch,
        step=one.step,
        created_unix=one.created_unix,
        size_bytes=one.size_bytes,
        loss=one.loss,
        pinned=one.pinned,
        verified=good,
        badge=badge.label,
        why=badge.why,
    )


def pin(folder: RunFolder, name: str, pinned: bool) -> None:
    """Raises Refusal or OSError."""
    try:
        snapshot.pin(folder, name, pinned)
    except SnapshotError as error:
        raise Refusal(error.message, "`tunedeck snapshots` lists them.") from error


@dataclass(frozen=True, slots=True)
class Choice:
    """`refused`: those that were not believed, and why, in words."""

    found: Snapshot
    refused: tuple[str, ...] = ()


def choose(folder: RunFolder, name: str, place: Place, speed: ReadSpeed) -> Choice:
    """The snapshot meant by `name`, or the newest on the way to `place`; every byte verified. Raises Refusal."""
    if name != NEWEST:
        try:
            return Choice(verified(folder, name, speed))
        except SnapshotError as error:
            raise Refusal(error.message, offer(folder, name, speed)) from error
    found, unreadable = sound(folder)
    reasons = [one["reason"] for one in unreadable]
    for one in found:
        if place.lineage.holds(one.branch, one.step):
            try:
                return Choice(verified(folder, one.name, speed), tuple(reasons))
            except SnapshotError as error:
                reasons.append(error.message)
    words = "; ".join(reasons) or "none was taken"
    raise Refusal(f"{folder.name} has no snapshot to go on from: {words}", "Start it anew with `tunedeck run`.")


def offer(folder: RunFolder, name: str, speed: ReadSpeed) -> str:
    """The next older one that verifies, by name; else the newest of the others."""
    others = sorted((one for one in sound(folder)[0] if one.name != name), key=lambda one: by_age(one.name))
    older = [one for one in others if by_age(one.name) < by_age(name)]
    for one in [*reversed(older), *(one for one in reversed(others) if one not in older)]:
        try:
            good = verified(folder, one.name, speed)
        except SnapshotError:
            continue
        which = "The next older good one" if one in older else "Another good one"
        return f"{which} is {good.name} (step {good.step}): take that."
    return "No other snapshot of this run verifies."


def by_age(name: str) -> tuple[int, str]:
    """Names of later branches and steps sort later, also where the branch has more digits."""
    return len(name), name
