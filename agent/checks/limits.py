"""What a process of a run may use: it inherits the agent's limits, and lives in its cgroup."""

from __future__ import annotations

import re
from pathlib import Path

from agent import ram
from agent.checks import rdma
from agent.checks.check import Told, fault, figure, good, probe, unknown, watch
from agent.checks.scene import Scene

ROW = re.compile(r"^(Max [a-z ]+?)\s{2,}(\S+)\s+(\S+)", re.M)
ENDLESS = 1 << 60
"""What a v1 cgroup without a limit says is somewhat less than 2^63."""
GIB = 1 << 30
CGROUPS = "sys/fs/cgroup"


def limit(scene: Scene, name: str) -> tuple[float, float] | None:
    """Soft and hard limit as /proc/self/limits names them; infinite for "unlimited". None where it is not told."""
    rows = {row[1]: (row[2], row[3]) for row in ROW.finditer(scene.text("proc/self/limits") or "")}
    if name not in rows:
        return None
    soft, hard = (float("inf") if word == "unlimited" else float(word) for word in rows[name])
    return soft, hard


def shown(value: float) -> str:
    return "unlimited" if value == float("inf") else f"{value:.0f}"


def memlock(scene: Scene) -> Told:
    found = limit(scene, "Max locked memory")
    if found is None:
        return unknown("the limit of locked memory is not told")
    evidence = f"ulimit -l: {shown(found[0])} bytes, at most {shown(found[1])}"
    if found[0] == float("inf"):
        return good("locked memory is unlimited", evidence)
    if any(port.active for port in rdma.ports(scene)):
        action = (
            "memlock unlimited in /etc/security/limits.conf (root), --ulimit memlock=-1 for a container, "
            "LimitMEMLOCK=infinity for slurmd; then log in anew"
        )
        return fault("locked memory is limited: RDMA cannot register its buffers", evidence, action)
    return good("locked memory is limited, which nothing here needs: no RDMA port is active", evidence)


def open_files(scene: Scene) -> Told:
    found = limit(scene, "Max open files")
    if found is None:
        return unknown("the limit of open files is not told")
    evidence = f"ulimit -n: {shown(found[0])}, at most {shown(found[1])}"
    action = "ulimit -n 65536 where the agent starts, or nofile in /etc/security/limits.conf (root)"
    if found[0] < figure("limits.open_files_fault"):
        return fault("too few open files: NCCL and data workers end with 'Too many open files'", evidence, action)
    return good("enough open files", evidence)


def processes(scene: Scene) -> Told:
    found = limit(scene, "Max processes")
    if found is None:
        return unknown("the limit of processes is not told")
    evidence = f"ulimit -u: {shown(found[0])}, at most {shown(found[1])}"
    needed = max(1, len(scene.cards)) * figure("limits.threads_per_gpu")
    if found[0] < needed:
        action = "nproc in /etc/security/limits.conf (root); threads count as processes there"
        return fault(
            "too few processes and threads for one rank on each GPU with data workers",
            f"{evidence}; {needed:.0f} wanted",
            action,
        )
    return good("enough processes and threads", evidence)


def folders(scene: Scene, controller: str) -> list[Path]:
    """The agent's cgroup and those above it, as far as they are seen from here; v2, or v1 of that controller."""
    base, path = scene.path(CGROUPS), ""
    for line in (scene.text("proc/self/cgroup") or "").splitlines():
        _number, controllers, where = line.split(":", 2)
        if controllers == controller:
            base, path = base / controller, where
            break
        if controllers == "" and not path:
            path = where
    parts = [part for part in path.split("/") if part and part != ".."]
    return [base.joinpath(*parts[:count]) for count in range(len(parts), -1, -1)]


def smallest(scene: Scene, controller: str, *names: str) -> int | None:
    """The tightest limit on the way up; None without one."""
    found = []
    for folder in folders(scene, controller):
        for name in names:
            try:
                word = (folder / name).read_text().strip()
            except OSError:
                continue
            if word.isdecimal() and int(word) < ENDLESS:
                found.append(int(word))
    return min(found, default=None)


def memory_limit(scene: Scene) -> int | None:
    """Bytes that a run may use at most, where its cgroup says so."""
    return smallest(scene, "memory", "memory.max", "memory.limit_in_bytes")


def cgroup_memory(scene: Scene) -> Told:
    most = memory_limit(scene)
    if most is None:
        return good("no cgroup limits memory")
    rooms = [
        room
        for folder in folders(scene, "memory")
        for kind in (ram.UNIFIED, ram.LEGACY)
        if (room := ram.left(folder, *kind)) is not None
    ]
    evidence = f"limit {most / GIB:.1f} GiB" + (f", {min(rooms) / GIB:.1f} GiB left" if rooms else "")
    if rooms and min(rooms) < figure("limits.cgroup_left_share") * most:
        return watch(
            "the cgroup's memory is nearly used up: the next large allocation ends a process",
            evidence,
            "End what fills it (`ps aux --sort -rss`), or start the container with more memory.",
        )
    return good("memory is limited by a cgroup, with room left", evidence)


def cgroup_processes(scene: Scene) -> Told:
    most = smallest(scene, "pids", "pids.max")
    needed = max(1, len(scene.cards)) * figure("limits.threads_per_gpu")
    if most is None:
        return good("no cgroup limits processes")
    evidence = f"pids.max: {most}"
    if most < needed:
        action = "docker run --pids-limit -1, podPidsLimit of the kubelet, TasksMax= of the systemd unit (root)"
        return fault(
            "the cgroup allows too few processes and threads for one rank on each GPU with data workers",
            f"{evidence}; {needed:.0f} wanted",
            action,
        )
    return good("the cgroup allows enough processes", evidence)


PROBES = (
    probe("memlock", memlock),
    probe("open-files", open_files),
    probe("processes", processes),
    probe("cgroup-memory", cgroup_memory),
    probe("cgroup-processes", cgroup_processes),
)
