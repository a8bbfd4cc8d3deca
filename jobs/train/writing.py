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


@dataclass(slots=True)
class Stall:
    """How long training stood still for a snapshot; grows while it is copied. `inline`: as long as it is written."""

    seconds: float = 0.0
    inline: bool = False


@dataclass(frozen=True, slots=True)
class Writing:
    """`facts` go into the manifest."""

    folder: RunFolder
    keep: Snapshots
    progress: Progress
    branch: int
    step: int
    parts: Mapping[str, Iterable[Buffer]]
    size_bytes: int
    facts: Mapping[str, Any]
    stall: Stall

    def publish(self, announce: Announce) -> None:
        """Writes, prunes, records, and tells `announce` the name or what went wrong."""
        began_s = time.perf_counter()
        name = snapshot.name_of(self.branch, self.step)
        try:
            snapshot_writer.write(self.folder, self.branch, self.step, self.parts, self.size_bytes, self.facts)
            pruned = retention.prune(self.folder, self.keep, name)
        except SnapshotError as wrong:
            self.failed(wrong.message, wrong.hint, announce)
            return
        write_s = time.perf_counter() - began_s
        stall_s = write_s if self.stall.inline else self.stall.seconds
        times = {"stall_s": round(stall_s, 6), "write_s": round(write_s, 6)}
        self._record("published", **times, badge=self.facts["badge"], pruned=pruned)
        announce(True, name)

    def failed(self, message: str, hint: str, announce: Announce) -> None:
        say(f"warning: {message}. {hint}")
        self._record("failed", message=message, hint=hint)
        announce(False, f"{message}. {hint}")

    def _record(self, state: str, **more: Any) -> None:
        name = snapshot.name_of(self.branch, self.step)
        same = {"branch": self.branch, "name": name, "step": self.step, "bytes": self.size_bytes}
        self.progress.write("snapshot", **same, reason=self.facts["reason"], state=state, **more)
