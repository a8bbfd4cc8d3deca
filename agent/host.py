"""The machine's own figures from /proc: these few need no package, so an agent without any tells them all."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from agent.growth import Growth, rate
from agent.interfaces import Interfaces
from agent.wire import Disk, Host

MIB = 1 << 20
MEMORY_STEP = 16 * MIB
LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "overlay"})
"""File systems that answer at once. Network ones may never answer, so statvfs is not asked of them here."""
DISK_EVERY_S = 10.0
IO_SPAN_S = 5.0
SECTOR_BYTES = 512
"""In /proc/diskstats, whatever the device's own are (Documentation/admin-guide/iostats.rst)"""
ROOT = Path("/")
SHM = "/dev/shm"


@dataclass(frozen=True, slots=True)
class Ticks:
    """What the processors did since boot."""

    busy: int
    steal: int
    total: int


def ticks(root: Path = ROOT) -> Ticks:
    # user nice system idle iowait irq softirq steal (proc(5)); guest is part of user already
    words = [int(word) for word in (root / "proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return Ticks(sum(words) - words[3] - words[4], words[7], sum(words))


def memory(root: Path = ROOT) -> dict[str, int]:
    """/proc/meminfo in bytes."""
    pairs = (line.split(":") for line in (root / "proc/meminfo").read_text().splitlines())
    return {name: int(value.split()[0]) * 1024 for name, value in pairs if value.split()}


def disks(extra: Iterable[Path] = (), root: Path = ROOT) -> tuple[Disk, ...]:
    """Local file systems, each device once, and those that hold `extra`."""
    found: dict[int, Disk] = {}
    places = [(mount, root / mount.lstrip("/")) for mount in local_mounts(root)]
    for mount, place in [*places, *((str(path), path) for path in extra)]:
        try:
            device, status = place.stat().st_dev, os.statvfs(place)
        except OSError:
            continue
        if status.f_blocks and device not in found:
            free = status.f_bavail * status.f_frsize // MEMORY_STEP * MEMORY_STEP
            found[device] = Disk(mount, status.f_blocks * status.f_frsize, free)
    return tuple(found.values())


def mounts(root: Path = ROOT) -> list[tuple[str, str]]:
    """Where, and the kind of file system."""
    lines = (line.split() for line in (root / "proc/self/mounts").read_text(errors="surrogateescape").splitlines())
    return [(fields[1], fields[2]) for fields in lines if len(fields) > 2]


def local_mounts(root: Path = ROOT) -> list[str]:
    passed = ("/boot", "/snap/", "/var/lib/docker/", "/run/", "/etc/")
    return [place for place, kind in mounts(root) if kind in LOCAL and not place.startswith(passed)]


def shared_memory(root: Path = ROOT) -> tuple[int | None, int | None]:
    """Bytes (total, used) of /dev/shm; used in steps of a 128th, for it trembles with every batch."""
    try:
        status = os.statvfs(root / SHM.lstrip("/"))
    except OSError:
        return None, None
    total = status.f_blocks * status.f_frsize
    step = max(1, total >> 7)
    return total, (status.f_blocks - status.f_bfree) * status.f_frsize // step * step


def drives(root: Path = ROOT) -> frozenset[str]:
    """Whole disks with a device behind them: what maps, stripes or multiplies them would count them again."""
    try:
        return frozenset(one.name for one in (root / "sys/block").iterdir() if (one / "device").exists())
    except OSError:
        return frozenset()


def transferred(names: frozenset[str], root: Path = ROOT) -> dict[str, tuple[int, int]]:
    """Bytes (read, written) of each disk since boot."""
    try:
        rows = [line.split() for line in (root / "proc/diskstats").read_text().splitlines()]
    except OSError:
        return {}
    kept = [row for row in rows if len(row) > 9 and row[2] in names]
    return {row[2]: (int(row[5]) * SECTOR_BYTES, int(row[9]) * SECTOR_BYTES) for row in kept}


class HostReader:
    """Reads the machine once a tick. Blocking; belongs on a thread.

    `root` holds its proc, sys and dev; `clock` tells monotonic seconds.
    """

    def __init__(
        self, extra_disks: Iterable[Path] = (), root: Path = ROOT, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Raises OSError where the kernel does not tell the least."""
        self.extra, self.root, self.clock = tuple(extra_disks), root, clock
        self.before = ticks(root)
        self.interfaces, self.io = Interfaces(root), Growth(IO_SPAN_S)
        self.disks: tuple[Disk, ...] = ()
        self.drives: frozenset[str] = frozenset()
        self.has_shm = False
        self.disks_due = 0.0
        self.look()

    def look(self) -> None:
        """At what makes rates, and now and then at what hardly changes."""
        now_s = self.clock()
        if now_s >= self.disks_due:
            self.disks, self.drives = disks(self.extra, self.root), drives(self.root)
            self.has_shm = (SHM, "tmpfs") in mounts(self.root)
            self.disks_due = now_s + DISK_EVERY_S
        self.io.look(now_s, lambda: transferred(self.drives, self.root))
        self.interfaces.look(now_s)

    def read(self, gpu_note: str = "") -> Host:
        """Raises OSError."""
        before, now = self.before, ticks(self.root)
        self.before = now
        self.look()
        room = memory(self.root)
        span = now.total - before.total
        shm_total, shm_used = shared_memory(self.root) if self.has_shm else (None, None)
        return Host(
            hostname=socket.gethostname(),
            cpu_percent=share(before.busy, now.busy, span),
            cpu_count=os.cpu_count(),
            cpu_steal_percent=share(before.steal, now.steal, span),
            load_1=round(os.getloadavg()[0], 1),
            ram_total_bytes=room.get("MemTotal"),
            ram_used_bytes=used(room, "MemTotal", "MemAvailable"),
            swap_used_bytes=used(room, "SwapTotal", "SwapFree"),
            net_rx_bytes_s=self.interfaces.now.all(0),
            net_tx_bytes_s=self.interfaces.now.all(1),
            disk_read_bytes_s=self.io.all(0),
            disk_write_bytes_s=self.io.all(1),
            shm_total_bytes=shm_total,
            shm_used_bytes=shm_used,
            uptime_s=time.clock_gettime(time.CLOCK_BOOTTIME) // 60 * 60,
            disks=self.disks,
            interfaces=self.interfaces.told,
            gpu_note=gpu_note,
        )


def share(before: int, now: int, span: float) -> float | None:
    """Per cent of a span, whole ones."""
    part = rate(before, now, span)
    return float(round(100 * part)) if part is not None else None


def used(room: dict[str, int], total: str, free: str) -> int | None:
    """None where the kernel does not tell one of the two."""
    if total not in room or free not in room:
        return None
    return (room[total] - room[free]) // MEMORY_STEP * MEMORY_STEP
