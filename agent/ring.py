"""Figures of one subject over time in a file of fixed size: rings of records, each ring coarser and longer.

A record carries its time and a checksum, and its place follows from its time. So nothing needs to be kept in step: of
gaps, suspends and clocks that jump there is simply no record in the time asked for, and what a crash tore is none.
"""

from __future__ import annotations

import errno
import json
import math
import os
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from jobs import durable

Values = tuple[float, ...]
"""In the order of the layout's fields; nan: unknown"""
Record = tuple[float, ...]
"""Time in seconds, values, checksum"""
SPANS = ((1, 3600), (10, 8640), (60, 20160), (600, 2016))
"""Seconds a record stands for and how many there are: an hour, a day, 14 days, and those again for charts of them"""
HEAD_BYTES = 4096
SUFFIX = ".ring"
LIMIT_BYTES = 16 << 20
"""Ten times the largest of ours: a head that says more is damaged"""
SECONDS_LIMIT = 1 << 32
"""Times are kept in 32 bits: until 2106"""


@dataclass(frozen=True, slots=True)
class Layout:
    """What stands where. Its checksum is part of a file's name, so that another layout is another file."""

    fields: tuple[str, ...]
    spans: tuple[tuple[int, int], ...] = SPANS

    @classmethod
    def read(cls, head: bytes) -> Layout | None:
        """None for what is no head of a ring, or of a version that is not known here."""
        try:
            told = json.loads(head.rstrip(b"\0"))
            version, fields, spans = told["version"], told["fields"], told["spans"]
            layout = cls(tuple(map(str, fields)), tuple((int(step), int(slots)) for step, slots in spans))
            sound = version == 1 and min(map(min, layout.spans)) > 0
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return None
        return layout if sound and layout.size_bytes() <= LIMIT_BYTES else None

    def head(self) -> bytes:
        told = {"version": 1, "fields": self.fields, "spans": self.spans}
        return json.dumps(told).encode().ljust(HEAD_BYTES, b"\0")

    def name(self, subject: str) -> str:
        return f"{subject}.{crc32(self.head()):08x}{SUFFIX}"

    def record(self) -> struct.Struct:
        """Time, a single-precision float for each field, checksum."""
        return struct.Struct(f"<I{len(self.fields)}fI")

    def size_bytes(self) -> int:
        return HEAD_BYTES + self.record().size * sum(slots for _step, slots in self.spans)


class Ring:
    """An open file. One process writes, any number read."""

    def __init__(self, path: Path, layout: Layout, handle: int) -> None:
        self.path, self.layout, self.handle = path, layout, handle
        self.record = layout.record()
        self.starts = [HEAD_BYTES]
        for _step, slots in layout.spans:
            self.starts.append(self.starts[-1] + slots * self.record.size)

    @classmethod
    def of(cls, path: Path) -> Ring | None:
        """To read; None for a file that is none of ours. Raises OSError."""
        layout = None if path.is_symlink() else Layout.read(head_of(path))
        return cls(path, layout, os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)) if layout else None

    @classmethod
    def made(cls, folder: Path, subject: str, layout: Layout) -> Ring:
        """To write; made if it is not there, its bytes taken from the disk only as they are written. Raises OSError."""
        path = folder / layout.name(subject)
        if not path.exists() or head_of(path) != layout.head():
            durable.write_bytes(path, layout.head())
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.ftruncate(handle, layout.size_bytes())
        except OSError:
            os.close(handle)
            raise
        return cls(path, layout, handle)

    def close(self) -> None:
        os.close(self.handle)

    def put(self, span: int, second: int, values: Values) -> None:
        """Not synced: the kernel writes it back within half a minute, and a power cut costs no more than that.

        Raises OSError.
        """
        step, slots = self.layout.spans[span]
        body = self.record.pack(second, *values, 0)[:-4]
        place = self.starts[span] + second // step % slots * self.record.size
        if os.pwrite(self.handle, body + crc32(body).to_bytes(4, "little"), place) < self.record.size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def records(self, span: int, first: int, last: int) -> list[Record]:
        """Those of the seconds `first`..`last`, oldest first. Raises OSError."""
        step, slots = self.layout.spans[span]
        begin = max(first // step, last // step - slots + 1, 0)
        count, slot = last // step - begin + 1, begin % slots
        before_the_end = min(count, slots - slot)
        found = self.scan(span, slot, before_the_end) + self.scan(span, 0, count - before_the_end)
        return [one for one in found if first <= one[0] <= last]

    def newest(self, last: int) -> int | None:
        """Time of the newest record up to `last`, however old. Raises OSError."""
        seconds = [int(one[0]) for one in self.scan(0, 0, self.layout.spans[0][1]) if one[0] <= last]
        return max(seconds, default=None)

    def scan(self, span: int, slot: int, count: int) -> list[Record]:
        """All sound records in `count` slots."""
        size = self.record.size
        block = os.pread(self.handle, max(0, count) * size, self.starts[span] + slot * size)
        block = block[: len(block) // size * size]
        checks = [crc32(block[at : at + size - 4]) for at in range(0, len(block), size)]
        return [one for one, check in zip(self.record.iter_unpack(block), checks, strict=True) if one[-1] == check]


def head_of(path: Path) -> bytes:
    """Empty for what is no plain file: a pipe would never answer."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return os.pread(handle, HEAD_BYTES, 0) if stat.S_ISREG(os.fstat(handle).st_mode) else b""
    finally:
        os.close(handle)


def condensed(samples: list[Values], peaks: tuple[bool, ...]) -> Values:
    """Of each field the mean of what is known, or the largest where `peaks` says so."""
    columns = ([value for value in column if value == value] for column in zip(*samples, strict=True))
    return tuple([summary(known, peak) for known, peak in zip(columns, peaks, strict=True)])


def summary(known: list[float], peak: bool) -> float:
    return math.nan if not known else max(known) if peak else sum(known) / len(known)


class Step:
    """What came of the step that is under way in a coarser ring."""

    def __init__(self, seconds: int) -> None:
        self.seconds, self.start = seconds, -1
        self.samples: list[Values] = []


class Track:
    """A ring that is written to: what comes each second also goes, condensed, into the coarser rings."""

    def __init__(self, ring: Ring, peaks: tuple[bool, ...], second: int) -> None:
        """Goes on with the steps that the last writer had begun. Raises OSError."""
        self.ring, self.peaks, self.last = ring, peaks, -1
        self.steps = [Step(step) for step, _slots in ring.layout.spans[1:]]
        newest = ring.newest(second)
        for finer, step in enumerate(self.steps if newest is not None else ()):
            assert newest is not None
            step.start = newest - newest % step.seconds
            # what is under way in the finer ring is still to come from there
            until = self.steps[finer - 1].start - 1 if finer else newest
            step.samples = [one[1:-1] for one in ring.records(finer, step.start, until)]

    def add(self, second: int, values: Values) -> None:
        """The second itself last: while it is not there, the steps that it ends are made again. Raises OSError."""
        self.end_steps(second)
        self.steps[0].samples.append(values)
        if second - self.last == 2:  # ticks come a hair later each time; no second was missed in truth
            self.ring.put(0, second - 1, values)
        self.ring.put(0, second, values)
        self.last = second

    def end_steps(self, second: int) -> None:
        """Writes down the steps that a second is not in; each is a sample of the next coarser one."""
        for span, step in enumerate(self.steps, 1):
            start = second - second % step.seconds
            if start == step.start:
                return
            if step.samples:
                ended = condensed(step.samples, self.peaks)
                self.ring.put(span, step.start, ended)
                for coarser in self.steps[span : span + 1]:
                    coarser.samples.append(ended)
            step.start, step.samples = start, []
