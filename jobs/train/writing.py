"""One snapshot on its way to the disk, on a thread beside training or in line with it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from jobs import retention, snapshot, snapshot_writer
from jobs.progress import Progress
from jobs.run_folder import RunFolder
from jobs.settings import Snapshots
from jobs.snapshot import SnapshotError
from jobs.snapshot_writer import Buffer
from jobs.train.rank import say

Announce = Callable[[bool, str], None]


@dataclass(frozen=True, slots=True)
class Writing:
    folder: RunFolder
    keep: Snapshots
    progress: Progress
    branch: int
    step: int
    parts: Mapping[str, Iterable[Buffer]]
    size_bytes: int

    def publish(self, facts: Mapping[str, Any], announce: Announce, stall_s: float | None) -> None:
        """Writes, prunes, records, and tells `announce` the name or what went wrong.

        `stall_s`: how long training stood still for it; None when it does so all the while this runs.
        """
        began_s = time.perf_counter()
        name = snapshot.name_of(self.branch, self.step)
        record = {"branch": self.branch, "name": name, "step": self.step, "bytes": self.size_bytes}
        record["reason"] = facts["reason"]
        try:
            snapshot_writer.write(self.folder, self.branch, self.step, self.parts, self.size_bytes, facts)
            pruned = retention.prune(self.folder, self.keep, name)
        except SnapshotError as wrong:
            say(f"warning: {wrong}")
            self.progress.write("snapshot", **record, state="failed", message=wrong.message, hint=wrong.hint)
            announce(False, str(wrong))
            return
        write_s = time.perf_counter() - began_s
        times = {"stall_s": round(write_s if stall_s is None else stall_s, 6), "write_s": round(write_s, 6)}
        self.progress.write("snapshot", **record, **times, state="published", badge=facts["badge"], pruned=pruned)
        announce(True, name)
