"""Asks all ranks of a run what they are doing, and writes down who does not answer and what the kernel says of them."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

from agent import kept, ras, stacks
from agent.full_disk import attempt
from agent.kept import RankRecord
from jobs import durable
from jobs.run_folder import RunFolder

ANSWER_S = 5.0
"""A rank looks once a second; writing takes milliseconds."""
SIGNAL_S = 2.0
POLL_S = 0.1


def ask(folder: RunFolder, stalled_s: float | None) -> dict[str, Any]:
    """Takes some seconds. Returns what is then in `answers.json`. Raises OSError for a disk that cannot be written."""
    folder.flight.mkdir(mode=durable.FOLDER_MODE, exist_ok=True)
    asked = time.time()
    durable.write_json(folder.flight_request, {"unix": asked})
    ranks = [one for one in kept.rank_records(folder) if one.identity is not None]
    silent = wait([one for one in ranks if alive(one)], lambda one: folder.flight_dump(one.rank), asked, ANSWER_S)
    told = [one for one in silent if one.identity and catches(one.identity.pid) and one.identity.send(signal.SIGUSR2)]
    mute = wait(told, lambda one: folder.flight_stacks(one.rank), asked, SIGNAL_S)
    stacked = {one.rank for one in told} - {one.rank for one in mute}
    record = durable.read_json(folder.record) or {}
    python = str(record.get("python") or "")
    for one in silent:
        if one.rank not in stacked and one.identity is not None:
            path = folder.flight / f"rank-{one.rank:d}.py-spy.txt"
            durable.write_bytes(path, stacks.dump(one.identity.pid, python).encode())
    if record.get("gpu_uuids"):
        address = str((record.get("environment") or {}).get("NCCL_RAS_ADDR") or "")
        for number, text in enumerate(ras.twice(address), 1):
            durable.write_bytes(folder.flight / f"ras-{number}.txt", text.encode())
    unanswered = {one.rank for one in silent}
    answers = {
        "tunedeck": "answers",
        "asked_unix": asked,
        "stalled_s": stalled_s,
        "moved_unix": None,
        "ranks": [about(one, one.rank not in unanswered, one.rank in stacked) for one in ranks],
    }
    durable.write_json(folder.flight_answers, answers)
    return answers


def moved(folder: RunFolder) -> None:
    """What was asked is history once the run moves again or is resumed: a later verdict must not build on it."""
    try:
        answers = durable.read_json(folder.flight_answers)
    except ValueError:
        return
    if answers is not None and answers.get("moved_unix") is None:
        attempt(lambda: durable.write_json(folder.flight_answers, answers | {"moved_unix": time.time()}))


def alive(one: RankRecord) -> bool:
    return one.identity is not None and one.identity.state() == "alive"


def wait(ranks: list[RankRecord], file: Any, asked: float, limit_s: float) -> list[RankRecord]:
    """Those whose file was not written after `asked`, at the latest when `limit_s` has passed."""
    end = time.monotonic() + limit_s
    while ranks:
        ranks = [one for one in ranks if not written(file(one), asked)]
        if time.monotonic() > end:
            break
        time.sleep(POLL_S)
    return ranks


def written(path: Path, asked: float) -> bool:
    try:
        status = path.stat()
    except FileNotFoundError:
        return False
    return status.st_size > 0 and status.st_mtime >= asked - 0.01  # coarse clock of file systems: 4 ms


def catches(pid: int) -> bool:
    """Whether the process handles SIGUSR2; to one that does not yet, it would be the end."""
    mask = status_of(pid).get("SigCgt", "0")
    return bool(int(mask, 16) >> (signal.SIGUSR2 - 1) & 1)


def status_of(pid: int) -> dict[str, str]:
    """/proc/PID/status by name; empty when the process is gone."""
    try:
        text = Path(f"/proc/{pid:d}/status").read_text(errors="replace")
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


def about(one: RankRecord, answered: bool, stacked: bool) -> dict[str, Any]:
    """What the kernel tells about a rank; `state` is its letter (proc(5)), empty for one that is gone."""
    pid = one.identity.pid if one.identity else 0
    here = alive(one)
    status = status_of(pid) if here else {}
    return {
        "rank": one.rank,
        "pid": pid,
        "alive": here,
        "answered": answered and here,
        "stacks": stacked or (answered and here),
        "state": status.get("State", "")[:1],
        "waits_in": waits_in(pid) if here else "",
    }


def waits_in(pid: int) -> str:
    """The kernel function its main thread sleeps in; empty where the kernel does not say."""
    try:
        found = Path(f"/proc/{pid:d}/wchan").read_text(errors="replace").strip()
    except OSError:
        return ""
    return "" if found == "0" else found
