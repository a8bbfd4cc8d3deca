"""The Xids of this node's GPUs, from NVML and from the kernel log: each counted once, told once, with what to do."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from agent.burst import Burst
from agent.events import Events
from agent.wire import Gpu
from agent.wording import duration
from agent.xid import Meaning, meaning

KIND = "gpu.xid"
SAME_S = 5.0
"""NVML and the kernel log tell of the same Xid within so long of each other"""
WAIT_S = 10.0
"""For the probe's first figures, without which nobody knows which GPU sits on a bus"""
OLD_S = 60.0
MOST_PENDING = 1000
HIGHEST = 9999
SAID_CHARS = 300
SLOT = re.compile(r"(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})(?:\.[0-7])?")


@dataclass(frozen=True, slots=True)
class Xid:
    """One as a source told it. `place`: UUID or PCI bus id; `data` goes into the event."""

    place: str
    code: int
    unix_s: float
    source: str
    pid: int | None = None
    said: str = ""
    """What the driver wrote behind the number"""
    data: dict[str, Any] = field(default_factory=dict)
    taken_unix: float = 0.0


@dataclass(frozen=True, slots=True)
class Count:
    """Of one GPU since boot, as far as an agent was there to see. `hardware`: those the card itself is to blame for."""

    newest: int | None = None
    all: int = 0
    newest_hardware: int | None = None
    hardware: int = 0


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose a pid, or a GPU, is."""

    run: str
    rank: int | None = None

    def words(self) -> str:
        return f"run {self.run}" + (f" rank {self.rank}" if self.rank is not None else "")


class XidLog:
    """`take` from any source, then `settle` once a tick; both on one thread. Counts outlive the daemon by `counts`."""

    def __init__(self, events: Events) -> None:
        self.events = events
        self.pending: list[Xid] = []
        self.counts: dict[str, Count] = {}
        """By UUID"""
        self.gpus: dict[str, Gpu] = {}
        """The last figures of each: a lost card still has its index and its bus here"""
        self.buses: dict[str, str] = {}
        self.unpaired: dict[tuple[str, int], dict[str, deque[float]]] = {}
        self.burst: Burst[tuple[str, int]] = Burst()
        self.meanings: dict[int, Meaning] = {}
        self.listens = False

    def take(
        self,
        place: str,
        code: int,
        unix_s: float,
        source: str,
        pid: int | None = None,
        said: str = "",
        data: dict[str, Any] | None = None,
        taken_unix: float | None = None,
    ) -> None:
        """An Xid of the GPU with this UUID or on this PCI bus. The same one from another `source` within 5 s is one."""
        if 0 < code <= HIGHEST and len(self.pending) < MOST_PENDING:
            taken = unix_s if taken_unix is None else taken_unix
            self.pending.append(Xid(place, code, unix_s, source, pid, said[:SAID_CHARS], data or {}, taken))

    def filled(self, gpus: dict[str, Gpu]) -> dict[str, Gpu]:
        """The GPUs with what was counted before this tick: a rule sees a counter stand before it sees it grow."""
        for uuid, gpu in gpus.items():
            if not gpu.lost or uuid not in self.gpus:
                self.gpus[uuid] = gpu
            if gpu.pci_bus_id:
                self.buses[slot(gpu.pci_bus_id)] = uuid
            if self.listens:
                self.counts.setdefault(uuid, Count())
        return {uuid: self.noted(gpu) for uuid, gpu in gpus.items()}

    def noted(self, gpu: Gpu) -> Gpu:
        count = self.counts.get(gpu.uuid)
        if count is None:
            return gpu
        worst = count.newest_hardware
        words = self.meaning(worst).words(gpu.index) if worst is not None else ""
        return replace(gpu, xid=count.newest, xids=count.all, xids_hardware=count.hardware, xid_fault=words)

    def settle(self, owner: Callable[[int | None, str], Owner | None], unix: float, now_s: float) -> None:
        """Counts and tells what was taken. `owner`: of a pid, else of the GPU. `now_s`: monotonic seconds."""
        waiting, self.pending = self.pending, []
        for one in waiting:
            uuid = one.place if one.place in self.gpus else self.buses.get(slot(one.place), "")
            if not uuid and 0 <= unix - one.taken_unix < WAIT_S:
                self.pending.append(one)
            elif not self.told_by_other(uuid or one.place, one):
                self.count(uuid, one.code)
                if self.burst.admits((uuid or one.place, one.code), now_s):
                    self.tell(uuid, one, owner(one.pid, uuid), unix)
        for (place, code), more in self.burst.over(now_s):
            text = f"{self.named(place)}: {more} more of Xid {code} within {duration(self.burst.window_s)}"
            data = {"xid": code, "uuid": place, "more": more}
            self.events.add(KIND, text, self.meaning(code).severity, None, data)

    def told_by_other(self, place: str, one: Xid) -> bool:
        key = (place, one.code)
        by_source = self.unpaired.setdefault(key, {})
        for source, times in list(by_source.items()):
            while times and abs(one.unix_s - times[0]) > SAME_S:
                times.popleft()
            if times and source != one.source:
                times.popleft()
                return True
        by_source.setdefault(one.source, deque(maxlen=MOST_PENDING)).append(one.unix_s)
        if len(self.unpaired) > MOST_PENDING:
            self.unpaired = {key: by_source}
        return False

    def count(self, uuid: str, code: int) -> None:
        if not uuid:
            return
        before = self.counts.get(uuid, Count())
        now = replace(before, newest=code, all=before.all + 1)
        if self.meaning(code).hardware:
            now = replace(now, newest_hardware=code, hardware=before.hardware + 1)
        self.counts[uuid] = now

    def tell(self, uuid: str, one: Xid, owner: Owner | None, unix: float) -> None:
        gpu, means = self.gpus.get(uuid), self.meaning(one.code)
        who = [f"pid {one.pid}" if one.pid else "", owner.words() if owner else ""]
        said = ", ".join(word for word in who if word)
        ago = f", {duration(unix - one.unix_s)} ago" if unix - one.unix_s > OLD_S else ""
        text = f"{self.named(uuid or one.place)}{f' ({said})' if said else ''}{ago}: "
        text += means.words(gpu.index if gpu else None) + (f" [{one.said}]" if one.said else "")
        data = {"xid": one.code, "uuid": uuid, "bus": gpu.pci_bus_id if gpu else one.place, "source": one.source}
        data |= {"pid": one.pid, "rank": owner.rank if owner else None, "unix": round(one.unix_s, 3), **one.data}
        self.events.add(KIND, text, means.severity, owner.run if owner else None, data)

    def named(self, place: str) -> str:
        gpu = self.gpus.get(place)
        return f"GPU {gpu.index} ({gpu.uuid})" if gpu else f"the GPU at PCI {place}"

    def meaning(self, code: int) -> Meaning:
        if code not in self.meanings:
            self.meanings[code] = meaning(code)
        return self.meanings[code]


def slot(text: str) -> str:
    """Domain, bus and device for comparing: in a virtual machine GPUs share a bus. Of no bus id: the text itself."""
    found = SLOT.fullmatch(text)
    return ":".join(f"{int(part or '0', 16):x}" for part in found.groups()) if found else text
