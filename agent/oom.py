"""Why memory ran out, from torch's own message: who asked for how much, and what the card was full of.

Forms: torch 1.13 to 2.0 name the figures in brackets; 2.1 and later in sentences (c10/cuda/CUDACachingAllocator.cpp),
with "capacty" in 2.1; a CPU build says "DefaultCPUAllocator: can't allocate memory".
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from agent.wording import size

UNITS = {"bytes": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
AMOUNT = r"(?P<{0}>[\d.]+) (?P<{0}_unit>bytes|B|[KMGT]iB)"
SOURCES = {
    "wanted": (r"[Tt]ried to allocate " + AMOUNT, r"you tried to allocate " + AMOUNT),
    "total": (r"total capac?i?ty of " + AMOUNT, AMOUNT + r" total capacity"),
    "free": (r"of which " + AMOUNT + r" is free", r"; " + AMOUNT + r" free"),
    "own": (r"this process has " + AMOUNT + r" memory in use",),
    "allowed": (AMOUNT + r" allowed",),
    "allocated": (AMOUNT + r" is allocated by PyTorch", AMOUNT + r" already allocated"),
    "unallocated": (AMOUNT + r" is reserved by PyTorch but unallocated",),
    "reserved": (AMOUNT + r" reserved in total by PyTorch",),
    "pools": (r"with " + AMOUNT + r" allocated in private pools",),
}
PATTERNS = {name: tuple(re.compile(form.format(name)) for form in forms) for name, forms in SOURCES.items()}
OTHERS = re.compile(r"(?:Process (?P<pid>\d+)|Other process\S*) has (?P<other>[\d.]+) (?P<other_unit>bytes|[KMGT]iB)")
CARD = re.compile(r"GPU (?P<gpu>\d+)")
OUT_OF_MEMORY = re.compile(
    r"(?:CUDA|HIP|XPU) out of memory|CUDA error: out of memory|DefaultCPUAllocator: (?:can't|not enough)|"
    r"CUBLAS_STATUS_ALLOC_FAILED|Cuda failure.*out of memory"
)
HOST = re.compile(r"DefaultCPUAllocator")
FRAGMENTED = 0.5
"""Reserved but unallocated beyond this share of what was asked for: the room was there, in pieces."""


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """Figures in bytes; None where the message does not tell. `others`: (pid or None, bytes) of other processes."""

    host: bool
    gpu: int | None = None
    wanted: int | None = None
    total: int | None = None
    free: int | None = None
    own: int | None = None
    allowed: int | None = None
    allocated: int | None = None
    unallocated: int | None = None
    pools: int | None = None
    others: tuple[tuple[int | None, int], ...] = field(default=(), kw_only=True)
    killed: bool = field(default=False, kw_only=True)
    """By the kernel, without a word of its own"""

    @property
    def short(self) -> int | None:
        """Bytes that were missing."""
        return None if self.wanted is None or self.free is None else max(0, self.wanted - self.free)

    @property
    def fragmented(self) -> bool:
        return bool(self.wanted and self.unallocated and self.unallocated > FRAGMENTED * self.wanted)

    def words(self) -> str:
        where = "this host" if self.host else f"GPU {self.gpu}" if self.gpu is not None else "the GPU"
        said = f"{where} ran out of memory" + (", and the kernel ended a process (SIGKILL)" if self.killed else "")
        if self.wanted is not None:
            said += f": asked for {size(self.wanted)}"
            said += f", {size(self.free)} of {size(self.total)} free" if self.free is not None and self.total else ""
        held = [
            f"{size(value)} {what}"
            for value, what in (
                (self.allocated, "allocated"),
                (self.unallocated, "reserved but unallocated" + (" (fragmented)" if self.fragmented else "")),
                (self.pools, "in private pools"),
            )
            if value
        ]
        held += [f"{size(used)} held by {f'pid {pid}' if pid else 'other processes'}" for pid, used in self.others]
        return said + (f"; {', '.join(held)}" if held else "")


def read(text: str) -> OutOfMemory | None:
    """What the first such message in `text` says; None where there is none."""
    found = OUT_OF_MEMORY.search(text)
    if found is None:
        return None
    said = text[found.start() : found.start() + 2000]
    figures: dict[str, Any] = {name: amount(name, said) for name in PATTERNS}
    reserved = figures.pop("reserved")
    if figures["unallocated"] is None and reserved is not None and figures["allocated"] is not None:
        figures["unallocated"] = max(0, reserved - figures["allocated"])
    card = CARD.search(said)
    made = OutOfMemory(HOST.match(found.group()) is not None, int(card["gpu"]) if card else None, **figures)
    return replace(made, others=others(said, figures["own"]))


def amount(name: str, text: str) -> int | None:
    for pattern in PATTERNS[name]:
        if found := pattern.search(text):
            return round(float(found[name]) * UNITS[found[f"{name}_unit"]])
    return None


def others(text: str, own: int | None) -> tuple[tuple[int | None, int], ...]:
    """Other processes on the card. Where the message does not name this process apart, one of those is itself."""
    found = [
        (int(one["pid"]) if one["pid"] else None, round(float(one["other"]) * UNITS[one["other_unit"]]))
        for one in OTHERS.finditer(text)
    ]
    return tuple(found) if own is not None else ()
