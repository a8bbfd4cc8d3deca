"""The disk that holds runs and snapshots: room, and what it can do. Bounded in time and bytes, and leaves nothing."""

from __future__ import annotations

import mmap
import os
import random
import secrets
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from agent.checks.check import FAULT, WATCH, Probe, Told, fault, figure, good, probe, unknown, watch
from agent.checks.scene import Scene
from agent.node_state import Disk

MIB, GIB = 1 << 20, 1 << 30
MOST_BYTES = 256 * MIB
LEAST_BYTES = 16 * MIB
SHARE = 16
"""At most this part of the free room is written"""
BLOCK, PAGE = 4 * MIB, 4096
WRITE_S, READ_S, RANDOM_S, SYNC_S = 2.0, 1.0, 1.0, 1.0
THREADS, SYNCS = 8, 200
DEADLINE_S = 15.0
"""Three times what it takes by itself: one write may hang for seconds and still come back"""
NAMES = ("write", "read", "random-read", "fsync")


def space(scene: Scene) -> Told:
    if not scene.host.disks:
        return unknown("no local disk is told")
    shares = {disk.mount: disk.free_bytes / disk.total_bytes for disk in scene.host.disks if disk.total_bytes}
    full = [disk for disk in scene.host.disks if shares.get(disk.mount, 1) < figure("disk.free_watch_share")]
    if not full:
        return good("room on all local disks", "; ".join(map(left, scene.host.disks)))
    evidence = "; ".join(map(left, full))
    reason = f"{', '.join(disk.mount for disk in full)} is nearly full"
    action = "Prune snapshots and caches (~/.cache/huggingface), or `du -x -h -d1` to find what fills it."
    if any(shares[disk.mount] < figure("disk.free_fault_share") for disk in full):
        return fault(f"{reason}: snapshots will fail", evidence, action)
    return watch(reason, evidence, action)


def left(disk: Disk) -> str:
    return f"{disk.mount} {disk.free_bytes / GIB:.1f} of {disk.total_bytes / GIB:.1f} GiB free"


def speed(scene: Scene) -> Mapping[str, Told]:
    """Raises OSError where the folder cannot be written."""
    if scene.live_runs and "disk" not in scene.asked:
        return dict.fromkeys(
            NAMES,
            unknown(
                "not measured while a run is live", ", ".join(scene.live_runs), "--family disk measures all the same."
            ),
        )
    status = os.statvfs(scene.folder)
    size = min(MOST_BYTES, status.f_bavail * status.f_frsize // SHARE) // BLOCK * BLOCK
    if size < LEAST_BYTES:
        return dict.fromkeys(NAMES, unknown("not measured: too little room is left"))
    return judged(measured(str(scene.folder), size))


@dataclass(frozen=True, slots=True)
class Speed:
    write_bytes_s: float
    read_bytes_s: float
    random_per_s: float
    fsync_s: float
    """99th percentile"""
    direct: bool
    """Past the page cache; otherwise reads may come from it and mean little"""


def measured(folder: str, size: int) -> Speed:
    """The file has no name any more before the first byte is written, so nothing can be left."""
    handle, direct = nameless(folder)
    try:
        with mmap.mmap(-1, BLOCK) as block:  # O_DIRECT wants memory at page boundaries
            block.write(random.randbytes(BLOCK))
            written, write_s = written_in(handle, block, size, direct)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        read, read_s = read_in(handle, written)
        random_per_s = random_reads(handle, written)
        return Speed(written / write_s, read / read_s, random_per_s, sync_time(handle), direct)
    finally:
        os.close(handle)


def nameless(folder: str) -> tuple[int, bool]:
    """A new file without a name, and whether it goes past the page cache; some file systems cannot."""
    path, direct = Path(folder, f".check-{secrets.token_hex(8)}"), True
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        handle = os.open(path, flags | os.O_DIRECT, 0o600)
    except OSError:
        path.unlink(missing_ok=True)  # made before the kernel said that it cannot be opened this way
        handle, direct = os.open(path, flags, 0o600), False
    path.unlink()
    return handle, direct


def written_in(handle: int, block: mmap.mmap, size: int, direct: bool) -> tuple[int, float]:
    """Bytes and seconds. Without O_DIRECT each block is flushed, so that no hidden backlog grows."""
    began, at = time.monotonic(), 0
    while at < size and time.monotonic() - began < WRITE_S:
        at += os.pwrite(handle, block, at)
        if not direct:
            os.fdatasync(handle)
    os.fdatasync(handle)
    return at, time.monotonic() - began


def read_in(handle: int, size: int) -> tuple[int, float]:
    began, at = time.monotonic(), 0
    with mmap.mmap(-1, BLOCK) as room:
        while at < size and time.monotonic() - began < READ_S:
            at += os.preadv(handle, [room], at)
    return at, time.monotonic() - began


def random_reads(handle: int, size: int) -> float:
    """4 KiB reads a second at `THREADS` at once."""
    end = time.monotonic() + RANDOM_S

    def read(seed: int) -> int:
        chance, count = random.Random(seed), 0
        with mmap.mmap(-1, PAGE) as room:
            while time.monotonic() < end:
                os.preadv(handle, [room], chance.randrange(size // PAGE) * PAGE)
                count += 1
        return count

    began = time.monotonic()
    with ThreadPoolExecutor(THREADS) as pool:
        count = sum(pool.map(read, range(THREADS)))
    return count / (time.monotonic() - began)


def sync_time(handle: int) -> float:
    """99th percentile of writing a page and having it on the disk."""
    end, took = time.monotonic() + SYNC_S, list[float]()
    with mmap.mmap(-1, PAGE) as page:
        while len(took) < SYNCS and time.monotonic() < end:
            began = time.monotonic()
            os.pwrite(handle, page, PAGE * (len(took) % 64))
            os.fsync(handle)
            took.append(time.monotonic() - began)
    return sorted(took)[min(len(took) - 1, int(0.99 * len(took)))]


def judged(speed: Speed) -> dict[str, Told]:
    past = "" if speed.direct else "; through the page cache, so this may be memory"
    return {
        "write": low("writing", speed.write_bytes_s, "disk.write", f"{speed.write_bytes_s / 1e6:.0f} MB/s{past}"),
        "read": low("reading", speed.read_bytes_s, "disk.read", f"{speed.read_bytes_s / 1e6:.0f} MB/s{past}"),
        "random-read": random_told(speed.random_per_s, f"{speed.random_per_s:.0f} reads of 4 KiB a second{past}"),
        "fsync": sync_told(speed.fsync_s, f"99 % within {speed.fsync_s * 1000:.1f} ms"),
    }


SLOWER = "Put runs on a local SSD (TUNEDECK_HOME on the node); a network or throttled cloud disk is slow for all."


def low(what: str, bytes_s: float, name: str, evidence: str) -> Told:
    for health, words in ((FAULT, "hardly moves"), (WATCH, "is slow")):
        if bytes_s < figure(f"{name}_{health}_bytes_s"):
            return Told(health, f"{what} {words}: saving and loading large states will take long", evidence, SLOWER)
    return good(f"{what} is quick enough", evidence)


def random_told(per_s: float, evidence: str) -> Told:
    if per_s < figure("disk.random_watch_per_s"):
        return watch(
            "random reads are slow, as on a hard disk: shuffled data will starve the GPUs",
            evidence,
            "Copy the data to a local SSD, or read it in order.",
        )
    return good("random reads are quick enough", evidence)


def sync_told(seconds: float, evidence: str) -> Told:
    for health, words in ((FAULT, "takes seconds"), (WATCH, "is slow")):
        if seconds >= figure(f"disk.fsync_{health}_s"):
            return Told(health, f"fsync {words}: every record and snapshot waits for it", evidence, SLOWER)
    return good("fsync is quick enough", evidence)


PROBES = (probe("space", space), Probe(NAMES, speed, DEADLINE_S))
