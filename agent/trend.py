"""Whether a memory's peak grows, how fast, and when it will have reached its limit.

What counts is the peak of each stretch of time, not the reading: an allocator's sawtooth falls and rises for ever, and
only what its teeth reach decides. A rise counts as growth when it is steady: significant (Sen's slope is above zero
over its whole interval), spread over the window instead of one jump (an evaluation, a longer batch), and not dying out
(a cache that fills).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

FAST_S, SLOW_S = 10.0, 120.0
"""Lengths of a stretch: one pair for growth that ends within the hour, one for a leak over hours."""
KEPT = 36
LEAST = 18
"""Stretches before anything is said: a tooth longer than that (3 minutes) looks like growth until it first falls."""
SECTIONS = 6
NOISE_BYTES = 8 << 20
NOISE_SHARE = 0.0005
Z_95 = 1.96


@dataclass(frozen=True, slots=True)
class Forecast:
    """Seconds until the limit: the best estimate and its 95 % interval. `slope_bytes_s` is of the peak."""

    seconds: float
    low_s: float
    high_s: float
    slope_bytes_s: float


@dataclass(frozen=True, slots=True)
class Slope:
    """Bytes per second with their 95 % interval."""

    middle: float
    low: float
    high: float


def sen(points: Sequence[tuple[float, float]]) -> Slope:
    """Theil-Sen slope with Sen's interval (Sen 1968, JASA 63): up to 29 % of the points may be anything at all, which a
    least-squares line does not survive: one evaluation step would tilt it.
    """
    slopes = sorted((y2 - y1) / (x2 - x1) for i, (x1, y1) in enumerate(points) for x2, y2 in points[i + 1 :] if x2 > x1)
    n, count = len(points), len(slopes)
    spread = Z_95 * math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    low = max(0, round((count - spread) / 2))
    high = min(count - 1, round((count + spread) / 2))
    return Slope(median(slopes), slopes[low], slopes[high])


def steady(peaks: Sequence[float], noise: float) -> bool:
    """Whether nearly every section of the window tops all before it, and the rise is not dying out."""
    tops = sections(peaks)
    risen = sum(later - max(tops[: i + 1]) > noise for i, later in enumerate(tops[1:]))
    half = len(tops) // 2
    early, late = tops[half - 1] - tops[0], tops[-1] - tops[half]
    return risen >= len(tops) - 2 and late > 0.5 * early


def sections(peaks: Sequence[float]) -> list[float]:
    """The highest of each of `SECTIONS` equal parts."""
    edges = [round(i * len(peaks) / SECTIONS) for i in range(SECTIONS + 1)]
    return [max(peaks[a:b]) for a, b in pairwise(edges)]


@dataclass(slots=True)
class Window:
    """Peaks of the last `KEPT` stretches of `length_s`."""

    length_s: float
    closed: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=KEPT))
    """(middle of the stretch in seconds, peak in bytes)"""
    number: int | None = None
    peak: float = 0.0
    growth: Slope | None = None
    """None: no steady growth, or not long enough watched"""

    def add(self, at_s: float, value: float) -> None:
        number = int(at_s // self.length_s)
        if self.number is None:
            self.number, self.peak = number, value
        elif number == self.number:
            self.peak = max(self.peak, value)
        else:
            self.closed.append(((self.number + 0.5) * self.length_s, self.peak))
            self.number, self.peak = number, value
            self.growth = self.judged()

    def judged(self) -> Slope | None:
        if len(self.closed) < LEAST:
            return None
        peaks = [peak for _at, peak in self.closed]
        noise = max(NOISE_BYTES, NOISE_SHARE * max(peaks))
        if not steady(peaks, noise):
            return None
        slope = sen(list(self.closed))
        return slope if slope.low > 0 else None

    @property
    def top(self) -> float:
        """The highest of the last three stretches: a tooth may be longer than one."""
        return max([self.peak, *(peak for _at, peak in list(self.closed)[-2:])])


@dataclass(slots=True)
class Trend:
    """One memory, watched. Feed it with `add` in the order of any monotonic clock."""

    windows: tuple[Window, Window] = field(default_factory=lambda: (Window(FAST_S), Window(SLOW_S)))

    def add(self, at_s: float, value: float) -> None:
        for window in self.windows:
            window.add(at_s, value)

    def forecast(self, limit_bytes: float) -> Forecast | None:
        """Until the peak has reached `limit_bytes`; None while it does not grow steadily."""
        for window in self.windows:
            slope = window.growth
            if slope is not None:
                room = max(0.0, limit_bytes - window.top)
                return Forecast(room / slope.middle, room / slope.high, room / slope.low, slope.middle)
        return None
