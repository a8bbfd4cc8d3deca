"""A run as its folder tells it, its steps held against those of the undisturbed one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent import family, kept
from agent.reexec import RUN_MARK
from jobs import progress, snapshot
from jobs.identity import ProcessIdentity
from jobs.run_folder import RunFolder
from jobs.snapshot import Snapshot, SnapshotError
from tests.fakes.node import environ

KEEP_LAST = 4

Figures = tuple[str, ...]


def figures(record: dict[str, Any]) -> Figures:
    return tuple(float(record[name]).hex() for name in ("loss", "grad_norm", "learning_rate"))


class Run:
    def __init__(self, folder: RunFolder, reference: dict[int, Figures]) -> None:
        self.folder, self.reference = folder, reference
        self.offset = 0
        self.steps: dict[int, Figures] = {}
        self.step = self.since_resume = 0
        self.published: dict[str, float] = {}
        self.resumes: list[dict[str, Any]] = []
        self.wrong: list[str] = []

    def read(self) -> None:
        found, self.offset = progress.records(self.folder.progress, self.offset, 1 << 24)
        for one in found:
            if one["kind"] == "step":
                self.step, self.since_resume = int(one["step"]), self.since_resume + 1
                self.steps[self.step] = figures(one)
                if self.reference and self.reference[self.step] != self.steps[self.step]:
                    self.wrong.append(f"step {self.step} differs")
            elif one["kind"] == "snapshot" and one["state"] == "published":
                self.published[one["name"]] = float(one["time_unix"])
            elif one["kind"] == "resume":
                self.step, self.since_resume = int(one["to_step"]), 0
                self.resumes.append(one)
                if one["badge"] != "exact":
                    self.wrong.append(f"resumed {one['badge']}: {one['reasons']}")

    @property
    def ended(self) -> bool:
        now = kept.read(self.folder)
        return now is not None and now.phase == "ended"

    @property
    def completed(self) -> bool:
        now = kept.read(self.folder)
        return now is not None and now.reason == "completed"

    def trained(self, steps: int) -> bool:
        """So many steps since the last resume, or all there are."""
        ended = self.ended
        self.read()
        return self.since_resume >= steps or ended

    def launcher(self) -> ProcessIdentity | None:
        now = kept.read(self.folder)
        return now.launcher if now and now.launcher and now.launcher.state() == "alive" else None

    def rank(self, number: int) -> ProcessIdentity | None:
        record = kept.rank_record(self.folder, number)
        return record.identity if record and record.identity and record.identity.state() == "alive" else None

    def believed(self) -> list[Snapshot]:
        """All that verify, oldest first, at a moment when none came or went.

        Raises SnapshotError for one that is there and does not verify.
        """
        while True:
            names = snapshot.names(self.folder)
            found = self.verified(names)
            if snapshot.names(self.folder) == names:
                return sorted(found, key=lambda one: (one.created_unix, one.step))

    def verified(self, names: Sequence[str]) -> list[Snapshot]:
        found = []
        for name in names:
            try:
                found.append(snapshot.verify(self.folder, name))
            except (SnapshotError, OSError):
                if name in snapshot.names(self.folder):  # else pruned meanwhile
                    raise
        return found

    def lost(self, before: list[Snapshot]) -> list[str]:
        """Published snapshots that are gone without enough younger ones to have been pruned for.

        They are those of `before` and those on record, for one may be published between a look and a kill.
        """
        self.read()
        now = self.believed()
        names = {one.name for one in now}
        made = {one.name: one.created_unix for one in before} | self.published
        younger = {name: sum(one.created_unix > unix for one in now) for name, unix in made.items()}
        return [name for name in made if name not in names and younger[name] < KEEP_LAST]

    def left(self) -> list[str]:
        mark = f"{RUN_MARK}={self.folder.name}".encode()
        alive = [pid for pid in family.own_processes() if mark in environ(pid)]
        return [f"{pid} {command(pid)}" for pid in alive]


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[-90:]
    except OSError:
        return "(gone)"


def staging(folder: RunFolder) -> bool:
    return any(entry.name.startswith(".staging-") for entry in os.scandir(folder.snapshots))


def stopped(pid: int) -> bool:
    tasks = list(Path(f"/proc/{pid}/task").glob("*/stat"))
    return all(path.read_text().rpartition(")")[2].split()[0] == "T" for path in tasks)
