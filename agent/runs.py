"""The runs of a node as its disk tells them: the run folder is the truth, nothing is remembered beside it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from agent import kept
from agent.events import Events
from agent.following import Followed
from agent.lessons import Lessons
from agent.wire import RunState
from jobs import durable
from jobs.identity import ProcessIdentity
from jobs.run_folder import RUN_ID, RunFolder

SHOWN_ENDED = 30
"""Ended runs in every level; the rest are asked for."""


class Runs:
    """All runs under one folder, read again with each tick."""

    def __init__(self, path: Path, events: Events, lessons: Lessons) -> None:
        self.path, self.events, self.lessons = path, events, lessons
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
                self.lessons.look(one.folder, one.record, one.last, self.events)
                one.adopt()
        ended = sorted(name for name, one in list(self.followed.items()) if one.closed)
        ended.sort(key=lambda name: self.followed[name].record.get("created_unix") or 0)
        hidden = set(ended[:-SHOWN_ENDED])
        return {name: one.view() for name, one in list(self.followed.items()) if name not in hidden}

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

    def reopen(self, name: str) -> None:
        """Reads a run anew from its beginning: it goes on although it had ended. What was told is not told again."""
        folder = RunFolder.inside(self.path, name)
        self.followed[name] = Followed(folder, durable.read_json(folder.record) or {})

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
