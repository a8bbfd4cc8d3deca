"""The kernel log of this node, followed from where it was last told: each line once, also across restarts."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agent.formats import kernel
from agent.formats.event import Event
from agent.formats.line import Line, clean
from agent.journalctl import Journal
from agent.kmsg import Kmsg, Record
from jobs.identity import boot_id

NEWS_S = 600.0
"""On the first look of all; what is older is no news, and nobody knows whether it was told"""
RETRY_S = 60.0
LITERALS = tuple(dict.fromkeys(one.literal for one in kernel.PATTERNS))
BEGINS = {
    "kernel.xid": ("NVRM: Xid",),
    "kernel.sxid": ("nvidia-nvswitch",),
    "kernel.oom": ("Out of memory: Kill", "Memory cgroup out of memory: Kill"),
}
"""A process bears any name, and the kernel prints it: only what begins like this was said by the kernel itself."""


class Source(Protocol):
    why: str

    @property
    def alive(self) -> bool: ...
    def open(self, since_unix: float) -> bool: ...
    def read(self) -> tuple[list[Record], bool]: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Mark:
    """How far the log of one boot has been told."""

    boot: str = ""
    sequence: int = 0
    at_us: int = 0

    def __bool__(self) -> bool:
        """Whether anything was told at all."""
        return bool(self.sequence or self.at_us)

    def passed(self, record: Record) -> bool:
        """By number where both have one: times may be equal, and a number is not known to every source."""
        if self.sequence and record.sequence:
            return record.sequence <= self.sequence
        return record.at_us <= self.at_us

    @classmethod
    def of(cls, data: Any) -> Mark:
        """From what was kept, or an event's data; one that begins nowhere where there is none of this boot."""
        boot = boot_id()
        try:
            found = cls(str(data["boot"]), int(data["sequence"]), int(data["at_us"]))
        except (KeyError, TypeError, ValueError):
            return cls(boot)
        return found if found.boot == boot else cls(boot)


@dataclass(frozen=True, slots=True)
class Said:
    """What one line means, and when it was written on the wall's clock."""

    event: Event
    unix_s: float
    mark: Mark


class KernelLog:
    """The first source that can be read."""

    def __init__(self, sources: Sequence[Source] | None = None) -> None:
        self.mark = self.behind = Mark.of(None)
        self.sources: Sequence[Source] = sources if sources is not None else (Kmsg(), Journal())
        self.caught_up = False
        self.retry_at = 0.0

    @property
    def source(self) -> Source | None:
        return next((one for one in self.sources if one.alive), None)

    @property
    def note(self) -> str:
        """Why nothing is heard from the kernel; empty while it is, or before it was tried."""
        why = [one.why for one in self.sources if one.why]
        if self.source is not None or not why:
            return ""
        return f"kernel log not readable ({'; '.join(why)}): it takes root, or a member of adm or systemd-journal"

    def resume(self, mark: Mark) -> None:
        """Goes on behind `mark`, where an earlier daemon stopped."""
        self.mark = self.behind = mark

    def look(self) -> list[Said]:
        """What is new. Never waits; belongs on one thread."""
        source = self.source or self.opened()
        if source is None:
            return []
        records, all_of_it = source.read()
        said = [one for record in records if not self.passed(record) for one in self.read(record)]
        self.caught_up = self.caught_up or all_of_it
        return said

    def opened(self) -> Source | None:
        now = time.monotonic()
        if now < self.retry_at:
            return None
        self.retry_at = now + RETRY_S
        self.behind, self.caught_up = self.mark, False
        since = written(self.mark.at_us) if self.mark else time.time() - NEWS_S
        return next((one for one in self.sources if one.open(since)), None)

    def passed(self, record: Record) -> bool:
        """True for what was told before this source was opened, and for old news. Moves the mark on.

        Lines of one source come in its own order, in which times may go back by microseconds.
        """
        if self.behind and self.behind.passed(record):
            return True
        at_us = record.at_us if record.sequence else max(record.at_us, self.mark.at_us)
        self.mark = Mark(self.mark.boot, record.sequence, at_us)
        return not self.behind and not self.caught_up and written_at(record) < time.time() - NEWS_S

    def read(self, record: Record) -> Iterator[Said]:
        if not any(one in record.text for one in LITERALS):
            return
        text = clean(record.text)
        now = time.time()
        live = self.caught_up and record.unix_s is None
        at = now if live else min(now, written_at(record))
        for event in kernel.read(Line("kernel", record.sequence, text, text, kernel=True)):
            begins: Iterable[str] = BEGINS.get(event.kind, ("",))
            if text.startswith(tuple(begins)):
                yield Said(event, at, self.mark)

    def close(self) -> None:
        for one in self.sources:
            one.close()


def written(at_us: int) -> float:
    """Unix time of a moment on the kernel's clock. Off by what that clock drifts: a minute in weeks."""
    return time.time() - max(0.0, time.monotonic() - at_us / 1e6)


def written_at(record: Record) -> float:
    return written(record.at_us) if record.unix_s is None else record.unix_s
