"""What the kernel of this node complains of, as events: Xids, switches, processes killed for memory, links."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agent import kept
from agent.burst import Burst
from agent.events import Events
from agent.following import Followed
from agent.kernel import KernelLog, Mark, Said
from agent.runs import Runs
from agent.wire import Gpu
from agent.wording import duration
from agent.xid import switch_action
from agent.xid_log import OLD_S, Count, Owner, XidLog
from agent.xids import Xid
from jobs import durable
from jobs.identity import boot_id, pid_namespace

INITIAL_NAMESPACE = "pid:[4026531836]"
"""PROC_PID_INIT_INO: only here do the kernel's pids mean the processes that are seen."""
ENDED_S = 120.0
"""A rank that was killed takes its run with it; it is still told whose it was."""
SAVE_EVERY_S = 60.0
HIGHEST_PID = 1 << 22
NOT_FATAL = "non-fatal"


class Complaints:
    """Looks once a tick, on one thread, and never waits."""

    def __init__(self, path: Path, events: Events, runs: Runs, log: KernelLog | None = None) -> None:
        """`path`: where it is kept how far the log was told. Raises OSError when that cannot be read."""
        self.path, self.events, self.runs = path, events, runs
        self.xids = XidLog(events)
        self.log = log or KernelLog()
        self.remember()
        self.burst: Burst[tuple[str, ...]] = Burst()
        self.saved, self.save_at = self.to_json(), 0.0
        self.note = ""

    def remember(self) -> None:
        """The file, and the journal beyond it: what was told is in there even if the file came to nothing."""
        try:
            raw = durable.read_json(self.path) or {}
            counts = {str(uuid): Count(*one) for uuid, one in dict(raw.get("counts") or {}).items()}
        except (ValueError, TypeError):
            raw, counts = {}, {}
        marks = [Mark.of(raw), *(Mark.of(event.data) for event in self.events.kept if "sequence" in event.data)]
        self.log.resume(max(marks, key=lambda mark: (mark.sequence, mark.at_us)))
        if raw.get("boot") == boot_id():
            self.xids.counts = counts

    def to_json(self) -> dict[str, Any]:
        counts = {uuid: list(asdict(one).values()) for uuid, one in self.xids.counts.items()}
        return {**asdict(self.log.mark), "counts": counts}

    def look(self, gpus: dict[str, Gpu], heard: list[Xid], nvml_listens: bool) -> dict[str, Gpu]:
        """The GPUs with their Xids. The kernel's word comes first: it names the process."""
        unix, now_s = time.time(), time.monotonic()
        said = self.log.look()
        self.xids.listens = self.xids.listens or nvml_listens or self.log.source is not None
        filled = self.xids.filled(gpus)
        for one in said:
            self.take(one, unix, now_s)
        for xid in heard:
            self.xids.take(xid.uuid, xid.code, unix, "nvml")
        self.xids.settle(self.owner, unix, now_s)
        for key, more in self.burst.over(now_s):
            self.events.add(key[0], f"{key[1]}: {more} more within {duration(self.burst.window_s)}", "warn")
        self.tell_note(bool(gpus))
        return filled

    def take(self, said: Said, unix: float, now_s: float) -> None:
        event, data = said.event, {**asdict(said.mark), "unix": round(said.unix_s, 3)}
        pid = pid_of(event.get("pid"))
        ago = f" ({duration(unix - said.unix_s)} ago)" if unix - said.unix_s > OLD_S else ""
        if event.kind == "kernel.xid":
            code = int(event.get("xid")[:6])
            self.xids.take(event.get("bus"), code, said.unix_s, "kernel", pid, event.get("what"), data, unix)
        elif event.kind == "kernel.sxid":
            self.tell_switch(said, ago, data, now_s)
        elif event.kind == "kernel.oom" and pid is not None:
            self.tell_killed(said, pid, ago, data, now_s)
        elif event.kind in ("kernel.port", "kernel.link"):
            self.tell_link(said, ago, data, now_s)

    def tell_killed(self, said: Said, pid: int, ago: str, data: dict[str, Any], now_s: float) -> None:
        name, owner = said.event.get("name"), self.owner(pid, "")
        if owner is None and not self.burst.admits(("host.oom", f"killed for memory: {name}"), now_s):
            return
        limit = "its cgroup's" if said.event.get("scope").startswith("Memory") else "the host's"
        who = f"{name} (pid {pid}{f', {owner.words()}' if owner else ''})"
        text = f"the kernel killed {who}{ago}: {limit} memory was full. {said.event.line.body}"
        data |= {"pid": pid, "name": name, "rank": owner.rank if owner else None}
        self.events.add("host.oom", text, "critical" if owner else "warn", owner.run if owner else None, data)

    def tell_switch(self, said: Said, ago: str, data: dict[str, Any], now_s: float) -> None:
        code, what = said.event.get("sxid"), said.event.get("what")
        fatal = NOT_FATAL not in what.lower()
        where = f"NVSwitch at PCI {said.event.get('bus')}"
        if self.burst.admits(("nvswitch.sxid", f"{where}: SXid {code}"), now_s):
            text = f"{where}{ago}: SXid {code}, {what}" + (f": {switch_action()}" if fatal else "")
            self.events.add("nvswitch.sxid", text, "critical" if fatal else "warn", None, data)

    def tell_link(self, said: Said, ago: str, data: dict[str, Any], now_s: float) -> None:
        name = said.event.nic or said.event.get("iface")
        name = f"the PCIe slot at {said.event.get('bus').rstrip(':')}" if name == "pciehp" else name
        up = said.event.get("state").lower() in ("up", "active")
        text = f"link of {name} {'up' if up else 'down'}"
        if self.burst.admits(("host.link", text), now_s):
            self.events.add("host.link", f"{text}{ago}", "info" if up else "warn", None, {"interface": name, **data})

    def owner(self, pid: int | None, uuid: str) -> Owner | None:
        """Of the process where it is a recorded rank, else of the GPU where one run has it."""
        found = self.owner_of_pid(pid) if pid is not None and pid_namespace() == INITIAL_NAMESPACE else None
        if found is not None or not uuid:
            return found
        on = [one for one in self.recent() if uuid in (one.record.get("gpu_uuids") or ())]
        on = [one for one in on if not one.closed] or on
        return Owner(on[0].name) if len(on) == 1 else None

    def owner_of_pid(self, pid: int) -> Owner | None:
        here = (boot_id(), INITIAL_NAMESPACE)
        for one in self.recent():
            for rank in kept.rank_records(one.folder):
                who = rank.identity
                if who is not None and who.pid == pid and (who.boot_id, who.pid_namespace) == here:
                    return Owner(one.name, rank.rank)
        return None

    def recent(self) -> Iterator[Followed]:
        """Runs that have not ended, or only just."""
        for one in list(self.runs.followed.values()):
            ended = one.kept.ended_unix if one.kept is not None else None
            if not one.closed or (ended is not None and time.time() - ended < ENDED_S):
                yield one

    def tell_note(self, has_gpus: bool) -> None:
        """Once a daemon, and only where it matters: a node without GPUs misses little."""
        if has_gpus and self.log.note and not self.note:
            self.note = f"{self.log.note}. Xids come from NVML alone"
            self.events.add("agent.kernel", self.note, "info")

    def save(self) -> None:
        """After the events are on disk; what was not told yet is read again by the next daemon. Raises OSError."""
        now, told = self.to_json(), self.xids.pending
        due = now["counts"] != self.saved["counts"] or time.monotonic() >= self.save_at
        if now != self.saved and due and not told:
            durable.write_json(self.path, now)
            self.saved, self.save_at = now, time.monotonic() + SAVE_EVERY_S


def pid_of(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 9 and 0 < int(text) <= HIGHEST_PID else None
