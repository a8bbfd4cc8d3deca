"""What this node's figures were: a second's worth for an hour, 10 s for a day, a minute for 14 days, on its disk.

Each GPU has a file by its UUID and the machine one, so a card that is exchanged leaves its past behind it.
"""

from __future__ import annotations

import math
import operator
import re
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from agent.events import Events
from agent.probe import FRESH_S
from agent.refusal import Refusal, of_os_error
from agent.ring import SECONDS_LIMIT, SPANS, SUFFIX, Layout, Ring, Track, Values, summary
from agent.wire import NodeState, ReadHistory

HOST = "host"
HOST_FIELDS = (
    "cpu_percent",
    "ram_used_bytes",
    "net_rx_bytes_s",
    "net_tx_bytes_s",
    "disk_read_bytes_s",
    "disk_write_bytes_s",
    "load_1",
)
GPU_FIELDS = (
    "utilisation_percent",
    "sm_active_percent",
    "memory_used_bytes",
    "temperature_c",
    "power_w",
    "sm_clock_mhz",
)
PEAKS = frozenset({"memory_used_bytes", "temperature_c", "ram_used_bytes"})
"""Of these the largest of a step matters, not the mean: it is what an allocation fails on."""
SUBJECT = re.compile(r"host|(?:GPU|MIG)-[A-Za-z0-9-]{1,64}")
FILES = 32
"""Cards that are gone included; with all of them full it is 36 MB"""
REACH_S = float(SPANS[2][0] * SPANS[2][1])
VALUES_LIMIT = 60_000
RETRY_S = 60.0
Getter = Callable[[Any], tuple[float | None, ...]]


class Kind:
    """How the figures of one kind of subject are taken and kept."""

    def __init__(self, fields: tuple[str, ...]) -> None:
        self.layout, self.peaks = Layout(fields), tuple(name in PEAKS for name in fields)
        self.get: Getter = operator.attrgetter(*fields)

    def values(self, record: object) -> Values:
        return tuple([math.nan if value is None else value for value in self.get(record)])


HOSTS, GPUS = Kind(HOST_FIELDS), Kind(GPU_FIELDS)


class History:
    """`record` belongs to the tick's thread, `read` to any."""

    def __init__(self, folder: Path, events: Events, clock: Callable[[], float] = time.monotonic) -> None:
        self.folder, self.events, self.clock = folder, events, clock
        self.tracks: dict[str, Track] = {}
        self.trouble = ""
        """Why nothing is kept at present"""
        self.not_before = -math.inf

    def record(self, now: NodeState, unix: float) -> None:
        """Never raises for a disk that takes nothing: history pauses, says so once and tries again."""
        second = int(unix)
        if not 0 < second < SECONDS_LIMIT or self.clock() < self.not_before:
            return
        try:
            self.add(HOST, HOSTS, now.host, second)
            # figures that a stuck driver left behind are not those of this second
            if now.gpu_age_s is not None and now.gpu_age_s < FRESH_S:
                for uuid, gpu in now.gpus.items():
                    self.add(uuid, GPUS, gpu, second)
        except OSError as error:
            self.pause(error)
        else:
            self.go_on()

    def add(self, subject: str, kind: Kind, record: object, second: int) -> None:
        track = self.tracks.get(subject)
        if track is None:
            if not SUBJECT.fullmatch(subject) or len(self.tracks) >= FILES:
                return
            self.folder.mkdir(mode=0o700, exist_ok=True)
            ring = Ring.made(self.folder, subject, kind.layout)
            track = self.tracks[subject] = Track(ring, kind.peaks, second)
            self.prune()
        track.add(second, kind.values(record))

    def prune(self) -> None:
        """Those written to last stay."""
        files = sorted(self.files(), key=lambda path: path.stat().st_mtime, reverse=True)
        written = {track.ring.path for track in self.tracks.values()}
        others = [path for path in files if path not in written]
        for path in others[max(0, FILES - len(written)) :]:
            path.unlink(missing_ok=True)

    def pause(self, error: OSError) -> None:
        for track in self.tracks.values():
            track.ring.close()
        self.tracks = {}
        self.not_before = self.clock() + RETRY_S
        if not self.trouble:
            self.trouble = of_os_error(error, "no history is kept", self.folder).message
            self.events.add("history.paused", self.trouble, "warn")

    def go_on(self) -> None:
        if self.trouble:
            self.trouble = ""
            self.events.add("history.resumed", "history is kept again")

    def files(self, subject: str = "*") -> list[Path]:
        return sorted(self.folder.glob(f"{subject}.*{SUFFIX}"))

    def read(self, body: ReadHistory, unix: float) -> dict[str, Any]:
        """See ReadHistory. Blocking. Raises Refusal for what is no series, OSError."""
        wanted = self.asked(body.series)
        many = max(1, sum(map(len, wanted.values())))
        grid = Grid(body.since_s, max(1, min(body.points, VALUES_LIMIT // many)), int(unix))
        series: dict[str, list[float | None]] = {}
        for subject, fields in wanted.items():
            series |= {f"{subject}/{name}": column for name, column in self.columns(subject, fields, grid).items()}
        return {"step_s": grid.every, "unix": grid.first, "series": series, "note": self.trouble}

    def asked(self, series: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """Fields by subject; all there are when none is named."""
        names = list(dict.fromkeys(series))
        if not names:
            known = sorted({path.name.split(".")[0] for path in self.files()})
            return {subject: fields_of(subject) for subject in known if SUBJECT.fullmatch(subject)}
        wanted: dict[str, tuple[str, ...]] = {}
        for name in names:
            subject, _slash, field = name.partition("/")
            if not SUBJECT.fullmatch(subject) or field not in fields_of(subject):
                known_fields = ", ".join(fields_of(subject))
                raise Refusal(
                    f"{name[:80]!r} is no series", f"A series is host or a GPU's UUID, / and: {known_fields}."
                )
            wanted[subject] = (*wanted.get(subject, ()), field)
        return wanted

    def columns(self, subject: str, fields: tuple[str, ...], grid: Grid) -> dict[str, list[float | None]]:
        """Points by field, from all files of a subject; empty for one that this node never had."""
        known: list[list[list[float]]] = [[[] for _ in range(grid.count)] for _ in fields]
        files = self.files(subject)
        for path in files:
            ring = Ring.of(path)
            if ring is not None:
                try:
                    gather(ring, fields, grid, known)
                finally:
                    ring.close()
        peaks = [name in PEAKS for name in fields]
        return {
            name: [rounded(summary(values, peak)) for values in column]
            for name, peak, column in zip(fields, peaks, known, strict=True)
            if files
        }


class Grid:
    """Points at even distances up to now: multiples of `every` seconds, whoever asks and whenever."""

    def __init__(self, since_s: float, points: int, second: int) -> None:
        since = min(max(1.0, since_s), REACH_S)  # in this order a nan becomes 1
        self.span = span_for(since, points)
        step = SPANS[self.span][0]
        self.every = step * max(1, math.ceil(since / (points * step)))
        self.count = math.ceil(since / self.every)
        self.first, self.last = (second // self.every - self.count + 1) * self.every, second


def span_for(since: float, points: int) -> int:
    """The finest ring that reaches back so far, or a coarser one that is still twice as fine as the points."""
    reaching = [number for number, (step, slots) in enumerate(SPANS) if step * slots >= since]
    enough = [number for number in reaching if 2 * SPANS[number][0] * points <= since]
    return enough[-1] if enough else reaching[0]


def fields_of(subject: str) -> tuple[str, ...]:
    return HOST_FIELDS if subject == HOST else GPU_FIELDS


def gather(ring: Ring, fields: tuple[str, ...], grid: Grid, known: list[list[list[float]]]) -> None:
    """Adds the known values of a file by field and point; the layout of an older one may lack a field."""
    there = ring.layout.fields
    places = [(column, there.index(name) + 1) for column, name in zip(known, fields, strict=True) if name in there]
    records = ring.records(min(grid.span, len(ring.layout.spans) - 1), grid.first, grid.last)
    seconds = [one[0] for one in records]
    at = 0
    while at < len(records):
        number = int(seconds[at] - grid.first) // grid.every
        end = bisect_left(seconds, grid.first + (number + 1) * grid.every, at)
        for column, place in places:
            column[number] += [value for one in records[at:end] if (value := one[place]) == value]
        at = end


def rounded(value: float) -> float | None:
    """Five significant digits, more than a chart shows: single precision has seven."""
    if not math.isfinite(value):
        return None
    short = float(f"{value:.5g}")
    return int(short) if short.is_integer() else short
