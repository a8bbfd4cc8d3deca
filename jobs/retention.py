"""Which snapshots may go."""

from __future__ import annotations

import time

from jobs import snapshot, snapshot_writer
from jobs.run_folder import RunFolder
from jobs.settings import Snapshots
from jobs.snapshot import Snapshot

_DAY_S = 86_400
_CLOCK_TOLERANCE_S = 60


def expendable(found: list[Snapshot], keep: Snapshots, now_unix: float) -> list[Snapshot]:
    """Those that are neither pinned, nor young enough, nor among the last or best. `found` is oldest first.

    None at all when one seems to come from the future: then the clock is wrong, and ages mean nothing.
    """
    if any(one.created_unix > now_unix + _CLOCK_TOLERANCE_S for one in found):
        return []
    measured = [one for one in found if one.loss is not None and one.good]
    best = sorted(measured, key=lambda one: one.loss or 0.0)[: keep.keep_best]
    kept = {one.name for one in [*found[-keep.keep_last :], *best]}
    oldest_unix = now_unix - keep.keep_days * _DAY_S
    return [one for one in found if one.name not in kept and not one.pinned and one.created_unix < oldest_unix]


def prune(folder: RunFolder, keep: Snapshots, newest: str) -> list[str]:
    """Removes what may go and returns the names. Nothing goes unless `newest` verifies. Raises SnapshotError if not."""
    gone = expendable(snapshot.listing(folder), keep, time.time())
    if gone:
        snapshot.verify(folder, newest)
    for one in gone:
        snapshot_writer.remove(one)
    return [one.name for one in gone]
