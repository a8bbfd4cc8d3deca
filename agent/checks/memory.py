"""Enough of the machine for its GPUs: shared memory, RAM, processors and those near each card, swap."""

from __future__ import annotations

import re

from agent.checks.check import Told, fault, figure, good, probe, unknown, watch
from agent.checks.equals import each, label, listed, short
from agent.checks.limits import folders, memory_limit
from agent.checks.scene import Scene

GIB, MIB = 1 << 30, 1 << 20
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
SIZE = re.compile(r"(\d+)([kmg]?)")


def meminfo(scene: Scene) -> dict[str, int]:
    """/proc/meminfo in bytes; empty where it is hidden."""
    rows = (line.split() for line in (scene.text("proc/meminfo") or "").splitlines())
    return {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows if len(row) > 1 and row[1].isdecimal()}


def shm_bytes(scene: Scene) -> int | None:
    """Size of /dev/shm by its mount options; without one it is half of the RAM (tmpfs(5)). None: not mounted."""
    options = None
    for line in (scene.text("proc/self/mounts") or "").splitlines():
        fields = line.split()
        if len(fields) > 3 and fields[1] == "/dev/shm" and fields[2] == "tmpfs":
            options = fields[3].split(",")  # the last mount covers those before it
    if options is None:
        return None
    given = next((SIZE.fullmatch(option[5:]) for option in options if option.startswith("size=")), None)
    if given is not None:
        return int(given[1]) * UNITS[given[2]]
    return meminfo(scene).get("MemTotal", 0) // 2 or None


def shm(scene: Scene) -> Told:
    size, cards = shm_bytes(scene), len(scene.cards)
    if size is None:
        return unknown("no tmpfs is mounted on /dev/shm", "", "df -h /dev/shm tells what is there.")
    evidence = f"/dev/shm holds {size / GIB:.2f} GiB for {max(1, cards)} GPU{'s' if cards > 1 else ''}"
    action = "docker run --shm-size=16g or --ipc=host; Kubernetes: an emptyDir with medium: Memory at /dev/shm"
    if size <= figure("memory.shm_fault_bytes"):
        return fault(
            "/dev/shm is as small as Docker makes it: data workers and NCCL end with a bus error", evidence, action
        )
    if size < figure("memory.shm_watch_bytes"):
        return watch("/dev/shm is small: data workers may end with a bus error", evidence, action)
    return good("/dev/shm is large enough", evidence)


def ram(scene: Scene) -> Told | None:
    """RAM of the machine, or of this container, against all GPU memory."""
    sizes = [gpu.memory_total_bytes for gpu in scene.cards if gpu.memory_total_bytes]
    total = meminfo(scene).get("MemTotal")
    if not sizes or total is None:
        return None
    usable, wanted = min(total, memory_limit(scene) or total), figure("memory.ram_per_gpu_memory") * sum(sizes)
    evidence = f"{usable / GIB:.0f} GiB RAM, {sum(sizes) / GIB:.0f} GiB on {len(sizes)} GPUs"
    if usable < wanted:
        return watch(
            "less RAM than GPU memory: loading a model on all ranks and offloading may not fit",
            evidence,
            "Start fewer ranks at once, or rent the node with more RAM; `tunedeck plan` tells.",
        )
    return good("enough RAM for its GPUs", evidence)


def numbers(spans: str) -> set[int]:
    """Those of a list as the kernel writes it: 0-3,8."""
    parts = [part.partition("-") for part in spans.split(",") if part]
    return {number for first, _dash, last in parts for number in range(int(first), int(last or first) + 1)}


def affinity(scene: Scene) -> set[int]:
    """Processors on which this process may run; empty where it is not told."""
    words = re.search(r"^Cpus_allowed_list:\s*(\S+)", scene.text("proc/self/status") or "", re.M)
    return numbers(words[1]) if words is not None else set()


def allowed_cpus(scene: Scene) -> float | None:
    """Processors that this process may use, by affinity and by the cgroup's quota."""
    count = len(affinity(scene))
    return min([float(count), *quotas(scene)]) if count else None


def quotas(scene: Scene) -> list[float]:
    """Processors' worth of time that the cgroups allow (cpu.max: quota and period in microseconds)."""
    found = []
    for folder in folders(scene, "cpu"):
        try:
            quota, period = (folder / "cpu.max").read_text().split()
        except (OSError, ValueError):
            continue
        if quota.isdecimal():
            found.append(int(quota) / int(period))
    return found


def cpus(scene: Scene) -> Told | None:
    allowed, cards = allowed_cpus(scene), len(scene.cards)
    if allowed is None or not cards:
        return None
    evidence = f"{allowed:g} processors for {cards} GPU{'s' if cards > 1 else ''}"
    if allowed < cards * figure("memory.cpus_per_gpu"):
        return watch(
            "few processors for its GPUs: loading data may leave them idle",
            evidence,
            "Fewer data workers, data tokenised beforehand, or more processors.",
        )
    return good("enough processors for its GPUs", evidence)


def numa(scene: Scene) -> Told | None:
    """Whether the processors near each card may be used, where there is more than one NUMA node."""
    nodes, allowed = "sys/devices/system/node", affinity(scene)
    near = {
        name.removeprefix("node"): numbers(scene.text(f"{nodes}/{name}/cpulist") or "")
        for name in scene.names(nodes)
        if re.fullmatch(r"node\d+", name)
    }
    if len(near) < 2 or not allowed or not scene.cards:
        return None
    at = {label(gpu): scene.text(f"sys/bus/pci/devices/{short(gpu.pci_bus_id)}/numa_node") for gpu in scene.cards}
    known = {name: node for name, node in at.items() if node in near}
    if not known:
        return unknown("which processors are near which card is not told", f"{len(near)} NUMA nodes")
    far = {name: f"NUMA node {node}" for name, node in known.items() if not near[node or ""] & allowed}
    if far:
        return watch(
            f"no processor near {listed(far)} may be used: all its data crosses between sockets",
            each(far),
            "Let the container or job have processors of both sockets (cpuset), or take cards of this one.",
        )
    return good("processors near every card may be used", f"{len(near)} NUMA nodes")


def swap(scene: Scene) -> Told | None:
    told = meminfo(scene)
    total, free = told.get("SwapTotal"), told.get("SwapFree")
    if total is None or free is None:
        return None
    used = total - free
    evidence = f"{used / GIB:.1f} of {total / GIB:.1f} GiB used"
    if used >= figure("memory.swap_watch_bytes"):
        return watch(
            "memory was swapped out: steps wait for the disk when it is needed again",
            evidence,
            "End what needs the RAM; `vmstat 1` shows whether it still swaps (si, so).",
        )
    return good("nothing much is swapped out" if total else "no swap", evidence)


PROBES = (probe("shm", shm), probe("ram", ram), probe("processors", cpus), probe("numa", numa), probe("swap", swap))
