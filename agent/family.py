"""Which processes belong to a run, however they were started and whoever is their parent now."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL, Signals

from agent.reexec import RUN_MARK
from jobs.identity import ProcessIdentity

PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    parent: int


def own_processes() -> dict[int, Process]:
    """Live processes of this user, by pid; zombies hold nothing and are left out."""
    found: dict[int, Process] = {}
    uid = os.getuid()
    for entry in os.scandir(PROC):
        if entry.name.isdecimal():
            process = inspect(int(entry.name), uid)
            if process is not None:
                found[process.pid] = process
    return found


def inspect(pid: int, uid: int) -> Process | None:
    folder = PROC / str(pid)
    try:
        if folder.stat().st_uid != uid:
            return None
        # the second field is the command, which may itself hold spaces and brackets
        fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZXx" else Process(pid, int(fields[1]))


def marked(pid: int, run: str) -> bool:
    """True when the process was started with the run's mark in its environment."""
    try:
        environment = (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return False
    return f"{RUN_MARK}={run}".encode() in environment.split(b"\0")


def members(run: str, recorded: Iterable[ProcessIdentity], keeper: int | None = None) -> list[ProcessIdentity]:
    """Live processes of the run: recorded ones, children of its keeper, those bearing its mark, and all below these.

    The mark is inherited, so it also finds what left its session and was orphaned before this keeper began.
    """
    processes = own_processes()
    roots = {one.pid for one in recorded if one.state() == "alive"}
    roots |= {pid for pid in processes if pid not in roots and marked(pid, run)}
    roots |= {p.pid for p in processes.values() if keeper is not None and p.parent == keeper}
    roots -= {os.getpid(), keeper}
    found = below(roots, processes)
    return [who for pid in sorted(found) if (who := ProcessIdentity.of(pid)) is not None]


def below(roots: set[int], processes: dict[int, Process]) -> set[int]:
    found = set(roots)
    children: dict[int, list[int]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process.pid)
    frontier = list(roots)
    while frontier:
        new = [pid for pid in children.get(frontier.pop(), []) if pid not in found]
        found.update(new)
        frontier += new
    return found


def put_down(
    find: Callable[[], list[ProcessIdentity]], reap: Callable[[], None], deadline_s: float
) -> tuple[list[ProcessIdentity], list[ProcessIdentity]]:
    """SIGKILL for everything `find` finds until it finds nothing. Returns (killed, still alive at the deadline).

    Looks again after each round, for a process may fork while its family is being killed.
    """
    end = time.monotonic() + deadline_s
    killed: dict[int, ProcessIdentity] = {}
    while alive := find():
        for who in alive:
            send(who, SIGKILL)
            killed[who.pid] = who
        if time.monotonic() > end:
            break
        time.sleep(0.02)
        reap()
    return list(killed.values()), alive


def send(who: ProcessIdentity, number: Signals) -> bool:
    """False when the process is gone or is not ours to signal."""
    try:
        return who.send(number)
    except PermissionError:
        return False
