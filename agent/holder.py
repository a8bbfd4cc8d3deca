"""Who holds a GPU: the processes that the driver names, as far as its pids mean the same here."""

from __future__ import annotations

import pwd
import re
from pathlib import Path
from typing import Any

from agent.wire import GpuProcess

MIB = 1 << 20
INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""PROC_PID_INIT_INO, include/linux/proc_ns.h: pids mean there what the driver means."""
CONTAINER = re.compile(r"[0-9a-f]{64}")
"""The id by which Docker, containerd, CRI-O and Podman name a container's cgroup"""
SHORT_ID = 12


def process(raw: Any) -> GpuProcess:
    """A process as the driver counts pids; named only where its pid means the same here."""
    memory = getattr(raw, "usedGpuMemory", None)
    pid = int(raw.pid)
    named = NAMES_MEAN_THE_SAME or holds_gpu(pid)
    return GpuProcess(
        pid=pid,
        memory_bytes=int(memory) // MIB * MIB if memory is not None else None,
        name=command_name(pid) if named else "",
        user=owner(pid) if named else "",
        container=container(pid) if named else "",
    )


def in_initial_namespace() -> bool:
    try:
        return str(Path("/proc/self/ns/pid").readlink()) == INITIAL_PID_NAMESPACE
    except OSError:
        return False


NAMES_MEAN_THE_SAME = in_initial_namespace()


def holds_gpu(pid: int) -> bool:
    """In a container the driver's pid may name a stranger here: only a process with the device open is meant."""
    folder = Path(f"/proc/{pid}/fd")
    try:
        return any(str(entry.readlink()).startswith("/dev/nvidia") for entry in folder.iterdir())
    except OSError:
        return False


def command_name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return ""


def owner(pid: int) -> str:
    try:
        uid = Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return ""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def container(pid: int) -> str:
    """Short id of the container whose cgroup the process is in; empty outside of any."""
    try:
        return container_of(Path(f"/proc/{pid}/cgroup").read_text(errors="replace"))
    except OSError:
        return ""


def container_of(cgroups: str) -> str:
    found = CONTAINER.findall(cgroups)
    return found[-1][:SHORT_ID] if found else ""
