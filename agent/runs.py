"""The runs of a node as its disk tells them: the run folder is the truth, nothing is remembered beside it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent import kept, launch
from agent.events import Events
from agent.kept import Kept
from agent.wire import RunState
from jobs import durable, progress
from jobs.identity import ProcessIdentity
from jobs.run_folder import RUN_ID, RunFolder

SHOWN_ENDED = 30
"""Ended runs in every level; the rest are asked for."""
SLICE_BYTES = 1 << 20
SKIM_BYTES = 1 << 17
BORN_S = 30.0
"""A run without a keeper's word after this long never began."""
ADOPT_EVERY_S = 10.0
SAVED_KINDS = ("published",)


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
    """The latest record of each kind."""
    adopt_after: float = 0.0
    closed: bool = False
    """Ended and read to its end: nothing more will come."""

    def refresh(self, events: Events) -> None:
        """Reads what is new and queues the events that are due."""
        if self.closed:
            return
        self.read_state()
        if self.offset == 0 and self.phase == "ended" and events.cursor(self.name).ended:
            self.skim()
        more = True
        while more:
            records, offset = progress.records(self.folder.progress, self.offset, SLICE_BYTES)
            more, self.offset = offset > self.offset, offset
            for one in records:
                self.count += 1
                self.take(one, events)
        self.tell(events)
        self.closed = self.phase == "ended"

    def skim(self) -> None:
        """Head and tail are enough of a run that has ended and been told: both hold all that a list shows."""
        for one in progress.records(self.folder.progress, 0, SKIM_BYTES)[0]:
            self.last[str(one.get("kind"))] = one
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
        self.last[kind] = record
        told = describe(kind, record)
        if told is not None and self.count > events.cursor(self.name).record:
            severity, text = told
            events.add(f"run.{kind}", text, severity, self.name, record, record_number=self.count)

    def tell(self, events: Events) -> None:
        cursor = events.cursor(self.name)
        title = str(self.record.get("name") or self.name)
        if not cursor.started:
            by = str(self.record.get("launched_by") or "unknown")
            events.add("run.started", f"{title} started by {by}", "info", self.name, {})
        if self.phase == "ended" and self.kept is not None and not cursor.ended:
            reason = self.kept.reason or "lost"
            severity = {"failed": "critical", "lost": "critical", "killed": "warn"}.get(reason, "info")
            text = f"{title} {reason}" + (f": {self.kept.detail}" if self.kept.detail else "")
            events.add("run.ended", text, severity, self.name, {"reason": reason, "detail": self.kept.detail})

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
        return str(self.last["phase"]["phase"]) if "phase" in self.last else "starting"

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
            launch.spawn_keeper(self.folder, adopt=True)

    def view(self) -> RunState:
        start, step, end = (self.last.get(kind, {}) for kind in ("start", "step", "end"))
        ended = self.phase == "ended"
        kept_now = self.kept or Kept("starting")
        return RunState(
            run=self.name,
            name=str(self.record.get("name") or self.name),
            phase=self.phase,
            reason=(kept_now.reason or "lost") if ended else None,
            detail=kept_now.detail if ended else str(self.last.get("phase", {}).get("detail") or ""),
            step=whole(step.get("step", end.get("step"))),
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
        )

    def snapshot_step(self) -> int | None:
        saved = self.last.get("snapshot", {})
        return whole(saved.get("step")) if saved.get("state") in SAVED_KINDS else None


def describe(kind: str, record: dict[str, Any]) -> tuple[str, str] | None:
    """Severity and text of the event a record makes; None for records that are only figures."""
    message = str(record.get("message") or "")
    if kind == "warning":
        return "warn", message
    if kind == "error":
        hint = str(record.get("hint") or "")
        secondary = " (because of another rank)" if record.get("secondary") else ""
        return "critical", f"rank {record.get('rank')}: {message}{secondary}" + (f". {hint}" if hint else "")
    if kind == "order":
        return "info", f"{record.get('verb')}: {record.get('outcome')} at step {record.get('step')}"
    if kind == "rollback":
        return "warn", f"rolled back from step {record.get('from_step')} to step {record.get('to_step')}"
    if kind == "snapshot" and record.get("state") == "failed":
        return "warn", f"snapshot of step {record.get('step')} failed"
    return None


def whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def real(value: Any) -> float | None:
    """A figure of a record; NaN and infinities are spelled as words there."""
    if isinstance(value, str):
        return float(value) if value in ("nan", "inf", "-inf") else None
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


class Runs:
    """All runs under one folder, read again with each tick."""

    def __init__(self, path: Path, events: Events) -> None:
        self.path, self.events = path, events
        self.followed: dict[str, Followed] = {}

    def refresh(self) -> dict[str, RunState]:
        """State of all live and the latest ended runs. Raises OSError when the disk cannot be read."""
        names = set(self.names())
        for gone in self.followed.keys() - names:
            del self.followed[gone]
        for name in sorted(names):
            one = self.follow(name)
            if one is not None:
                one.refresh(self.events)
                one.adopt()
        ended = sorted(name for name, one in self.followed.items() if one.closed)
        ended.sort(key=lambda name: self.followed[name].record.get("created_unix") or 0)
        hidden = set(ended[:-SHOWN_ENDED])
        return {name: one.view() for name, one in self.followed.items() if name not in hidden}

    def names(self) -> Iterator[str]:
        with os.scandir(self.path) as entries:
            yield from (entry.name for entry in entries if RUN_ID.fullmatch(entry.name))

    def follow(self, name: str) -> Followed | None:
        """None for a folder that is no run (yet)."""
        if name not in self.followed:
            folder = RunFolder.inside(self.path, name)
            try:
                record = durable.read_json(folder.record)
            except (ValueError, NotADirectoryError):
                return None
            if record is None:
                return None
            self.followed[name] = Followed(folder, record)
        return self.followed[name]

    def all(self, limit: int) -> list[RunState]:
        """Newest first. For the answering of one question, on any thread: it reads the disk by itself."""
        views = [one.view() for one in list(self.followed.values())]
        return sorted(views, key=lambda view: view.started_unix or 0.0, reverse=True)[:limit]

    def taken_gpus(self) -> frozenset[str]:
        """UUIDs given to runs that have not ended."""
        live = [one for one in list(self.followed.values()) if not one.closed]
        return frozenset(str(uuid) for one in live for uuid in one.record.get("gpu_uuids") or ())

    def live(self) -> bool:
        return any(not one.closed for one in list(self.followed.values()))

    def ranks(self) -> dict[ProcessIdentity, tuple[str, int]]:
        """Which run and rank a recorded process is, for all that have not ended."""
        return {
            record.identity: (one.name, record.rank)
            for one in list(self.followed.values())
            if not one.closed
            for record in kept.rank_records(one.folder)
            if record.identity is not None
        }
