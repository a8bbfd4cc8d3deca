"""The machine's own figures from /proc: these few need no package, so an agent without any tells them all."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from agent.wire import Disk, Host

MIB = 1 << 20
MEMORY_STEP = 16 * MIB
LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "overlay"})
"""File systems that answer at once. Network ones may never answer, so statvfs is not asked of them here."""
VIRTUAL = ("lo", "docker", "veth", "br-", "virbr", "cni", "flannel", "tunl")
"""Interfaces whose traffic is counted again on a real one, or never leaves the machine."""
DISK_EVERY_S = 10.0


@dataclass(frozen=True, slots=True)
class Counters:
    """Raw counters at one moment; two of them make rates."""

    monotonic_s: float
    cpu_busy_ticks: int
    cpu_total_ticks: int
    rx_bytes: int
    tx_bytes: int


def counters() -> Counters:
    # user nice system idle iowait irq softirq steal (proc(5)); guest is part of user already
    ticks = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    received, sent = traffic(Path("/proc/net/dev").read_text().splitlines()[2:])
    return Counters(time.monotonic(), sum(ticks) - ticks[3] - ticks[4], sum(ticks), received, sent)


def traffic(lines: Iterable[str]) -> tuple[int, int]:
    """Bytes (received, sent) over all real interfaces."""
    received = sent = 0
    for line in lines:
        name, _, figures = line.partition(":")
        fields = figures.split()
        if len(fields) >= 9 and not name.strip().startswith(VIRTUAL):
            received, sent = received + int(fields[0]), sent + int(fields[8])
    return received, sent


def memory() -> dict[str, int]:
    """/proc/meminfo in bytes."""
    pairs = (line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return {name: int(value.split()[0]) * 1024 for name, value in pairs if value.split()}


def disks(extra: Iterable[Path] = ()) -> tuple[Disk, ...]:
    """Local file systems, each device once, and those that hold `extra`."""
    found: dict[int, Disk] = {}
    for mount in [*local_mounts(), *(str(path) for path in extra)]:
        try:
            device, status = Path(mount).stat().st_dev, os.statvfs(mount)
        except OSError:
            continue
        if status.f_blocks and device not in found:
            free = status.f_bavail * status.f_frsize // MEMORY_STEP * MEMORY_STEP
            found[device] = Disk(mount, status.f_blocks * status.f_frsize, free)
    return tuple(found.values())


def local_mounts() -> list[str]:
    lines = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    mounts = [fields[1] for fields in lines if len(fields) > 2 and fields[2] in LOCAL]
    return [m for m in mounts if not m.startswith(("/boot", "/snap/", "/var/lib/docker/", "/run/", "/etc/"))]


def steps(value: float) -> float:
    """Two significant digits: a figure that only trembles is not sent again and again."""
    return float(f"{value:.1e}")


class HostReader:
    """Reads the machine once a tick. Blocking; belongs on a thread."""

    def __init__(self, extra_disks: Iterable[Path] = ()) -> None:
        self.extra = tuple(extra_disks)
        self.before = counters()
        self.disks: tuple[Disk, ...] = ()
        self.disks_due = 0.0

    def read(self, gpu_note: str = "") -> Host:
        before, now = self.before, counters()
        self.before = now
        if now.monotonic_s >= self.disks_due:
            self.disks, self.disks_due = disks(self.extra), now.monotonic_s + DISK_EVERY_S
        room = memory()
        busy = rate(before.cpu_busy_ticks, now.cpu_busy_ticks, now.cpu_total_ticks - before.cpu_total_ticks)
        elapsed = now.monotonic_s - before.monotonic_s
        received = rate(before.rx_bytes, now.rx_bytes, elapsed)
        sent = rate(before.tx_bytes, now.tx_bytes, elapsed)
        return Host(
            hostname=socket.gethostname(),
            cpu_percent=float(round(100 * busy)) if busy is not None else None,
            cpu_count=os.cpu_count(),
            load_1=round(os.getloadavg()[0], 1),
            ram_total_bytes=room.get("MemTotal"),
            ram_used_bytes=used(room, "MemTotal", "MemAvailable"),
            swap_used_bytes=used(room, "SwapTotal", "SwapFree"),
            net_rx_bytes_s=steps(received) if received is not None else None,
            net_tx_bytes_s=steps(sent) if sent is not None else None,
            uptime_s=time.clock_gettime(time.CLOCK_BOOTTIME) // 60 * 60,
            disks=self.disks,
            gpu_note=gpu_note,
        )


def rate(before: int, now: int, span: float) -> float | None:
    """Growth over a span; None for no span or a counter that was reset."""
    return (now - before) / span if span > 0 and now >= before else None


def used(room: dict[str, int], total: str, free: str) -> int | None:
    """None where the kernel does not tell one of the two."""
    if total not in room or free not in room:
        return None
    return (room[total] - room[free]) // MEMORY_STEP * MEMORY_STEP
