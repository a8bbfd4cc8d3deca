"""One run as its folder tells it, read a piece at a time."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from agent import keepers, kept
from agent.events import Events
from agent.kept import Kept
from agent.preflight import WEIGHTS_ONLY
from agent.records import describe, real, whole
from agent.stall import Pace
from agent.wire import RunState
from jobs import orders, progress
from jobs.lineage import TURNS, Lineage
from jobs.run_folder import RunFolder

SLICE_BYTES = 1 << 20
SKIM_BYTES = 1 << 17
CLOCK_S = 0.01
"""Records carry their time in milliseconds."""
BORN_S = 30.0
"""A run without a keeper's word after this long never began."""
ADOPT_EVERY_S = 10.0


@dataclass(slots=True)
class Followed:
    """One run while it is read: where reading stands and what the records said so far."""

    folder: RunFolder
    record: dict[str, Any]
    kept: Kept | None = None
    kept_stamp: tuple[int, int] = (0, 0)
    offset: int = 0
    count: int = 0
    last: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The latest record of each kind. After a turn to another step there is no step until the next one is done."""
    saved: list[tuple[int, int]] = field(default_factory=list)
    """(branch, step) of the snapshots published on the way to the present state."""
    adopt_after: float = 0.0
    pace: Pace = field(default_factory=Pace)
    stalled: bool = False
    """Told, and not yet moving again."""
    closed: bool = False
    """Ended and read to its end: nothing more will come."""

    def refresh(self, events: Events) -> None:
        """Reads what is new and queues the events that are due."""
        if self.closed:
            return
        self.read_state()
        cursor = events.cursor(self.name)
        if self.offset == 0 and self.phase == "ended" and cursor.ended and cursor.resumed == self.resumed:
            self.skim()
        more = True
        while more:
            records, offset = progress.records(self.folder.progress, self.offset, SLICE_BYTES)
            more, self.offset = offset > self.offset, offset
            for one in records:
                self.count += 1
                self.take(one, events)
        self.tell(events)
        self.tell_stall(events)
        self.closed = self.phase == "ended"

    def skim(self) -> None:
        """Head and tail are enough of a run that has ended and been told: both hold all that a list shows."""
        for one in progress.records(self.folder.progress, 0, SKIM_BYTES)[0]:
            self.remember(one)
        try:
            self.offset = max(0, self.folder.progress.stat().st_size - SKIM_BYTES)
        except FileNotFoundError:
            return

    def read_state(self) -> None:
        """Again only when it was replaced. An unreadable one is as good as none."""
        try:
            status = self.folder.state.stat()
            stamp = (status.st_mtime_ns, status.st_ino)
            if stamp != self.kept_stamp:
                self.kept, self.kept_stamp = kept.read(self.folder), stamp
        except (FileNotFoundError, ValueError):
            return

    def take(self, record: dict[str, Any], events: Events) -> None:
        kind = str(record.get("kind"))
        self.remember(record)
        told = describe(kind, record)
        if told is not None and self.count > events.cursor(self.name).record:
            severity, text = told
            if kind == "resume":
                text += self.waited(record)
            events.add(f"run.{kind}", text, severity, self.name, record, record_number=self.count)

    def waited(self, record: dict[str, Any]) -> str:
        """How long it took from the order until the next step could begin. A fork was no order to this run."""
        asked, ready = real((self.record.get("resume") or {}).get("unix")), real(record.get("time_unix"))
        if asked is None or ready is None or ready < asked:
            return ""
        imports = real(record.get("import_s"))
        return f"; ready {ready - asked:.1f} s after the order" + (
            f", {imports:.1f} s of it imports" if imports is not None else ""
        )

    def remember(self, record: dict[str, Any]) -> None:
        kind, step = str(record.get("kind")), whole(record.get("step"))
        self.last[kind] = record
        self.pace.take(record)
        if kind == "snapshot" and record.get("state") == "published" and step is not None:
            self.saved.append((whole(record.get("branch")) or 0, step))
        if kind in TURNS:
            self.last.pop("step", None)
            self.last["turn"] = record
            leading = Lineage.told_by(record)
            self.saved = [one for one in self.saved if leading.holds(*one)]
        if kind == "resume" and not self.saved and record.get("badge") != WEIGHTS_ONLY:  # a fork: taken by another run
            self.saved = [(whole(record.get("branch")) or 0, whole(record.get("to_step")) or 0)]

    @property
    def resumed(self) -> int:
        """How often this run was resumed, the present session included."""
        again = self.record.get("resume") or {}
        begun = self.kept is not None and (self.kept.started_unix or 0.0) >= (real(again.get("unix")) or 0.0)
        return (whole(again.get("number")) or 0) - (0 if begun or not again else 1)

    def tell(self, events: Events) -> None:
        cursor = events.cursor(self.name)
        title = str(self.record.get("name") or self.name)
        if not cursor.started:
            by = str(self.record.get("launched_by") or "unknown")
            forked = self.record.get("forked_from") or {}
            origin = f" from {forked.get('snapshot')} of {forked.get('run')}" if forked else ""
            said = str((self.record.get("forecast") or {}).get("text") or "")
            text = f"{title} started by {by}{origin}" + (f": {said}" if said else "")
            events.add("run.started", text, "info", self.name, {})
        if self.resumed > cursor.resumed:
            again = self.record["resume"]
            text = f"{title} resumed from {again.get('snapshot')} by {again.get('operator')}"
            events.add("run.resumed", text, "info", self.name, {"number": self.resumed})
            cursor = events.cursor(self.name)
        if self.phase == "ended" and self.kept is not None and not cursor.ended:
            reason = self.kept.reason or "lost"
            severity = {"failed": "critical", "lost": "critical", "killed": "warn"}.get(reason, "info")
            text = f"{title} {reason}" + (f": {self.ending}" if self.ending else "")
            events.add("run.ended", text, severity, self.name, {"reason": reason, "detail": self.ending})

    def stalled_s(self) -> float | None:
        """See RunState. An order that is being carried out may take its time."""
        if self.phase != "training":
            return None
        found = self.pace.stalled_s(time.time())
        if found is not None and orders.waiting(self.folder):
            found = self.pace.stalled_s(time.time(), waiting=True)
        return None if found is None else float(round(found))

    def tell_stall(self, events: Events) -> None:
        found, title = self.stalled_s(), str(self.record.get("name") or self.name)
        if found is not None and not self.stalled:
            usual = self.pace.step_s
            text = f"{title} stands still: no step for {found + (usual or 0):.0f} s" + (
                f", one takes {usual:.1f} s" if usual is not None else ""
            )
            events.add("run.stalled", text, "warn", self.name, {"stalled_s": found})
        elif found is None and self.stalled and self.phase == "training":
            events.add("run.moving", f"{title} moves again", "info", self.name, {})
        self.stalled = found is not None

    @property
    def ending(self) -> str:
        """How it ended: for one that stopped as told, its own words say whether that was for good or a pause."""
        if self.kept is None:
            return ""
        own = self.recent("end").get("detail") if self.kept.reason == "stopped" else None
        return str(own or self.kept.detail)

    def recent(self, kind: str) -> dict[str, Any]:
        """The latest record of that kind of the present session: a resumed run has those of earlier ones too."""
        found = self.last.get(kind, {})
        began = self.kept.started_unix if self.kept is not None else None
        return found if began is None or (real(found.get("time_unix")) or 0.0) >= began - CLOCK_S else {}

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def phase(self) -> str:
        if self.kept is None:
            return "starting"
        if self.kept.phase in ("ended", "stopping"):
            return self.kept.phase
        if any(one is not None and one.state() == "unknown" for one in (self.kept.keeper, self.kept.launcher)):
            return "unknown"
        return str(self.recent("phase").get("phase") or "starting")

    @property
    def orphaned(self) -> bool:
        """Not ended, and its keeper is certainly gone."""
        if self.kept is None:
            return time.time() > float(self.record.get("created_unix") or 0) + BORN_S
        return self.kept.phase != "ended" and (self.kept.keeper is None or self.kept.keeper.state() == "gone")

    def adopt(self) -> None:
        """Gives an orphaned run a new keeper, at most every few seconds."""
        if self.orphaned and time.monotonic() > self.adopt_after:
            self.adopt_after = time.monotonic() + ADOPT_EVERY_S
            keepers.spawn(self.folder, adopt=True)

    def view(self) -> RunState:
        start, step, end, turn = (self.last.get(kind, {}) for kind in ("start", "step", "end", "turn"))
        ended = self.phase == "ended"
        kept_now = self.kept or Kept("starting")
        return RunState(
            run=self.name,
            name=str(self.record.get("name") or self.name),
            phase=self.phase,
            reason=(kept_now.reason or "lost") if ended else None,
            detail=self.ending if ended else str(self.recent("phase").get("detail") or ""),
            step=whole(step.get("step", turn.get("to_step", end.get("step")))),
            total_steps=whole(step.get("total_steps", start.get("total_steps"))),
            branch=max((whole(one.get("branch")) or 0 for one in self.last.values()), default=0),
            loss=real(step.get("loss")),
            learning_rate=real(step.get("learning_rate")),
            tokens_per_s=real(step.get("tokens_per_s")),
            step_time_s=real(step.get("step_time_s")),
            memory_bytes=tuple(whole(one) or 0 for one in step.get("memory_bytes") or ()),
            world_size=whole(self.record.get("world_size")) or 1,
            model=str(self.record.get("model") or start.get("model") or ""),
            method=str(self.record.get("method") or start.get("method") or ""),
            gpu_uuids=tuple(str(one) for one in self.record.get("gpu_uuids") or ()),
            started_unix=kept_now.started_unix or real(self.record.get("created_unix")),
            ended_unix=kept_now.ended_unix,
            last_progress_unix=max((real(one.get("time_unix")) or 0.0 for one in self.last.values()), default=None),
            snapshot_step=self.snapshot_step(),
            stalled_s=self.stalled_s(),
        )

    def snapshot_step(self) -> int | None:
        """Of the newest snapshot on disk that led to the present state."""
        return self.saved[-1][1] if self.saved else None
