"""How a resume of a run would be, from what its snapshots say and what its node has now."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent import preflight
from agent.launch import Surroundings
from agent.preflight import UNKNOWN, Badge, Versions
from agent.snapshots import ReadSpeed
from agent.state import user_home
from jobs import durable
from jobs.changes import changes
from jobs.run_folder import RunFolder
from jobs.snapshot import Snapshot
from jobs.spec import Spec, SpecError

DATA_DIGITS = 16
"""Of its SHA-256, as many as the job notes."""


@dataclass(slots=True)
class Digests:
    """SHA-256 of files, remembered until they change."""

    known: dict[Path, tuple[tuple[int, int, int], str]] = field(default_factory=dict)

    def of(self, path: Path) -> str | None:
        """None when it cannot be read."""
        try:
            status = path.stat()
            stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
            if self.known.get(path, ((0, 0, 0), ""))[0] != stamp:
                with path.open("rb") as stream:
                    digest = hashlib.sha256()
                    while block := stream.read(1 << 20):
                        digest.update(block)
                self.known[path] = (stamp, digest.hexdigest())
        except OSError:
            return None
        return self.known[path][1]


@dataclass(frozen=True, slots=True)
class Memory:
    """What earlier questions found out."""

    versions: Versions
    speed: ReadSpeed
    digests: Digests = field(default_factory=Digests)


@dataclass(frozen=True, slots=True)
class Basis:
    """What a training would be started with. `gpus`: UUIDs, none on the CPU."""

    python: str
    ranks: int
    gpus: Sequence[str]
    environment: Mapping[str, str]
    data: Path | None

    def surroundings(self, around: Surroundings, memory: Memory) -> dict[str, Any] | None:
        """In the words of a manifest, as far as they are known; None when the interpreter does not answer."""
        python, installed = memory.versions.of(self.python)
        if python is None or installed is None:
            return None
        names = [around.gpus[uuid].name if uuid in around.gpus else "" for uuid in self.gpus] if self.gpus else None
        found = preflight.surroundings(python, installed, self.ranks, names, self.environment)
        digest = memory.digests.of(self.data) if self.data is not None else None
        return found if digest is None else {**found, "data": digest[:DATA_DIGITS]}


def data_file(spec: Spec, folder: RunFolder, fork: bool) -> Path:
    """The data a resumed run reads: a data set that comes with the code is the one of the run's own copy."""
    path = spec.data_file(user_home(os.environ))
    own = folder.path / "configs" / "examples" / path.name
    return own if spec.data.path.startswith("example:") and not fork else path


def judge_of(folder: RunFolder, around: Surroundings, memory: Memory) -> Callable[[Snapshot], Badge]:
    """How a resume from a snapshot would be if it came now, on what the run had the last time."""
    record = durable.read_json(folder.record) or {}
    text = folder.spec.read_text(encoding="utf-8")
    try:
        spec = Spec.parse(text)
        data = data_file(spec, folder, fork=False)
    except SpecError as error:
        unreadable = Badge(UNKNOWN, (str(error),))
        return lambda _one: unreadable
    gpus = [str(uuid) for uuid in record.get("gpu_uuids") or ()]
    variables = record.get("environment") or {}
    basis = Basis(str(record.get("python") or ""), int(record.get("world_size") or 1), gpus, variables, data)
    now = basis.surroundings(around, memory)
    same = hashlib.sha256(text.encode()).hexdigest() == record.get("spec_sha256")

    def judge(one: Snapshot) -> Badge:
        changed = [] if same else changes(one.meta.get("deciding") or {}, spec.deciding())
        return preflight.judge(one, changed, now)

    return judge
