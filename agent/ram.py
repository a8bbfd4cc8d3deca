"""How much host memory a new process may take: what the kernel calls available, within this container's limit."""

from __future__ import annotations

from pathlib import Path

from agent import host

UNIFIED = ("memory.max", "memory.current", "inactive_file")
LEGACY = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def available_bytes(cgroups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """None where neither can be read."""
    try:
        whole = host.memory().get("MemAvailable")
    except (OSError, ValueError, IndexError):
        whole = None
    known = [one for one in (whole, left(cgroups, *UNIFIED), left(cgroups / "memory", *LEGACY)) if one is not None]
    return min(known, default=None)


def left(folder: Path, limit: str, used: str, cache: str) -> int | None:
    """Below a cgroup's limit, page cache that can be dropped counted as free; None without a limit (also "max")."""
    try:
        most, now = int((folder / limit).read_text()), int((folder / used).read_text())
        counts = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return max(0, most - now + int(counts.get(cache, 0)))
    except (OSError, ValueError):
        return None
