"""Everything this node knows about one run, in one small redacted archive that triages like the run folder itself."""

from __future__ import annotations

import base64
import io
import json
import tarfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from agent import circumstances, extract, kept, questioning
from agent.formats import ras
from agent.formats import read as reading
from agent.triage import alias as naming
from agent.triage import catalogue
from agent.wire import Gpu
from jobs import durable
from jobs.redact import redact
from jobs.run_folder import RunFolder

LEAST_BYTES, MOST_BYTES = 16 << 10, 2800 << 10
"""In base64 still one line on the wire."""
STALE_S = 60.0
"""Answers older than this are asked for again while the run stands still."""
TAIL_BYTES = 64 << 10
PROGRESS_BYTES = 256 << 10
MOST_ENTRIES = 256


@dataclass(slots=True)
class Archive:
    """Files by name, as long as they fit."""

    left_bytes: int
    files: dict[str, bytes] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    def add(self, name: str, content: bytes) -> None:
        """Redacted; what does not fit is cut to its end, or left out and said."""
        plain = redact(content.decode("utf-8", "replace")).encode()
        if not plain or self.fits(name, plain):
            return
        self.left_out.append(f"{name}: only its end" if self.fits(name, plain[-TAIL_BYTES:]) else f"{name}: no room")

    def fits(self, name: str, content: bytes) -> bool:
        cost = len(zlib.compress(content, 6)) + 512
        if cost > self.left_bytes:
            return False
        self.left_bytes -= cost
        self.files[name] = content
        return True

    def take(self, name: str, read: Callable[[], bytes]) -> None:
        """What cannot be read is said; a file that is not there is nothing to say."""
        try:
            self.add(name, read())
        except FileNotFoundError:
            return
        except OSError as error:
            self.left_out.append(f"{name}: {error.strerror}")

    def packed(self, folder: str) -> bytes:
        with io.BytesIO() as buffer:
            with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
                for name, content in self.files.items():
                    member = tarfile.TarInfo(f"{folder}/{name}")
                    member.size, member.mode, member.mtime = len(content), durable.FILE_MODE, int(time.time())
                    tar.addfile(member, io.BytesIO(content))
            return buffer.getvalue()


def gather(
    folder: RunFolder, gpus: Mapping[str, Gpu], stalled_s: float | None, limit_bytes: int, alias: str = ""
) -> dict[str, Any]:
    """See wire.Evidence. Takes seconds where stalled ranks are asked. Raises OSError."""
    if stalled_s is not None and not freshly_asked(folder):
        questioning.ask(folder, stalled_s)
    archive = Archive(max(LEAST_BYTES, min(limit_bytes, MOST_BYTES)))
    for name, read in sources(folder, gpus, alias):
        archive.take(name, read)
    kernel, why = circumstances.kernel_log(*span(folder))
    if kernel.strip():
        archive.add(f"node/dmesg_{circumstances.hostname()}.txt", kernel.encode())
    if why:
        archive.left_out.append(why)
    for number in rank_logs(folder):
        path = folder.rank_log(number)
        archive.take(f"logs/{path.name}", partial(extract.extract, path, literals()))
    archive.take(folder.progress.name, partial(extract.tail, folder.progress, PROGRESS_BYTES))
    return {
        "archive": base64.b64encode(archive.packed(folder.name)).decode(),
        "files": len(archive.files),
        "left_out": archive.left_out,
    }


def sources(folder: RunFolder, gpus: Mapping[str, Gpu], alias: str = "") -> Iterator[tuple[str, Callable[[], bytes]]]:
    """What matters most first."""
    node = {"tunedeck": "node", "hostname": circumstances.hostname(), "alias": alias, "gathered_unix": time.time()}
    yield naming.RECORD, json.dumps(node).encode
    for path in (folder.state, folder.record, folder.spec, folder.flight_answers):
        yield path.relative_to(folder.path).as_posix(), path.read_bytes
    parts = [*sorted(folder.ranks.glob("*.json")), *sorted(folder.flight.glob("*"))]
    for path in parts:
        if path not in (folder.flight_answers, folder.flight_request) and not path.name.startswith((".", "torch-")):
            yield path.relative_to(folder.path).as_posix(), path.read_bytes
    for path in sorted(folder.flight.glob("torch-rank-*")):
        yield f"flight/{path.name}.json", partial(flat, path)
    yield "logs/launcher.log", partial(extract.extract, folder.launcher_log, literals())
    state = kept.read(folder)
    launcher = state.launcher.pid if state and state.launcher and state.launcher.state() == "alive" else None
    yield "node/disks.txt", lambda: circumstances.disk_table([folder.path]).encode()
    yield "node/meminfo.txt", lambda: circumstances.memory().encode()
    yield "node/memory.events.txt", lambda: circumstances.group_events(launcher).encode()
    yield "node/gpus.txt", lambda: circumstances.gpu_lines(gpus.values()).encode()
    yield "node/addresses.txt", lambda: circumstances.addresses().encode()
    yield "node/rdma_ports.txt", lambda: circumstances.ports().encode()


def flat(path: Path) -> bytes:
    """A dump that torch wrote itself as JSON, read without running anything of it; empty for one that is no dump."""
    content = ras.load_dump(path.read_bytes())
    if not isinstance(content, Mapping) or not isinstance(content.get("entries"), list):
        return b""
    entries = [{k: v for k, v in one.items() if k != "frames"} for one in content["entries"] if isinstance(one, dict)]
    rank = path.name.removeprefix("torch-rank-")
    told = {"rank": int(rank) if rank.isdecimal() else None, "entries": entries[-MOST_ENTRIES:]}
    return json.dumps(told, default=str).encode()


@cache
def literals() -> tuple[str, ...]:
    """Of all shipped signatures, whose file takes longer to read than most logs."""
    return tuple(dict.fromkeys((*reading.LITERALS, *catalogue.load().literals())))


def freshly_asked(folder: RunFolder) -> bool:
    try:
        answers = durable.read_json(folder.flight_answers) or {}
    except ValueError:
        return False
    asked = answers.get("asked_unix")
    return isinstance(asked, (int, float)) and answers.get("moved_unix") is None and time.time() - asked < STALE_S


def span(folder: RunFolder) -> tuple[float, float]:
    """When the run began and ended, as far as known."""
    state = kept.read(folder)
    began = state.started_unix if state and state.started_unix else time.time()
    return began, (state.ended_unix if state and state.ended_unix else time.time())


def rank_logs(folder: RunFolder) -> list[int]:
    """Those of ranks that failed by themselves first, those that lost another rank last."""
    records = {one.rank: one for one in kept.rank_records(folder)}
    names = (path.stem.removeprefix("rank-") for path in folder.logs.glob("rank-*.log"))
    numbers = sorted(int(name) for name in names if name.isdecimal())
    return sorted(numbers, key=lambda n: n in records and (records[n].secondary or records[n].outcome == "completed"))
