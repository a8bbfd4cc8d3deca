"""The memory forecast on series whose future is known: no false alarm, and a warning well before the end."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from itertools import accumulate

import pytest

from agent.trend import Trend, sen

GIB = float(1 << 30)
LIMIT = 80 * GIB
SPAN_S = 3600
ALARM_S = 1800.0
Series = Callable[[int, random.Random], float]


def flat(_t: int, _r: random.Random) -> float:
    return 0.97 * LIMIT


def noisy(_t: int, r: random.Random) -> float:
    return 0.95 * LIMIT + r.gauss(0, 0.1 * GIB)


def sawtooth(t: int, r: random.Random) -> float:
    return (50 + 25 * ((t % 97) / 97)) * GIB + r.gauss(0, 0.05 * GIB)


def slow_sawtooth(t: int, _r: random.Random) -> float:
    """One tooth takes longer than the least that is watched."""
    return (60 + 15 * ((t % 130) / 130)) * GIB


def evaluations(t: int, r: random.Random) -> float:
    return (72 if t % 600 > 560 else 55) * GIB + r.gauss(0, 0.02 * GIB)


def one_jump(t: int, _r: random.Random) -> float:
    return (70 if t > 400 else 50) * GIB


def filling_cache(t: int, _r: random.Random) -> float:
    return (75 - 30 * math.exp(-t / 60)) * GIB


RECORDS = tuple(accumulate((random.Random(i).random() for i in range(SPAN_S)), max))


def longest_batches(t: int, r: random.Random) -> float:
    """The reserved memory of batches of random length: a record now and then, ever rarer."""
    return (45 + 30 * RECORDS[t // 5]) * GIB + r.gauss(0, 0.001 * GIB)


QUIET: tuple[Series, ...] = (
    flat, noisy, sawtooth, slow_sawtooth, evaluations, one_jump, filling_cache, longest_batches,
)  # fmt: skip


def first_alarm(series: Series, seed: int) -> tuple[int, float, float] | None:
    """(when, low and high estimate of the end) of the first forecast below the threshold, up to the limit."""
    trend, r = Trend(), random.Random(seed)
    for t in range(SPAN_S):
        value = series(t, r)
        trend.add(float(t), min(value, LIMIT))
        found = trend.forecast(LIMIT)
        if found is not None and found.seconds < ALARM_S:
            return t, t + found.low_s, t + found.high_s
        if value >= LIMIT:
            return None
    return None


@pytest.mark.parametrize("series", QUIET, ids=lambda one: one.__name__)
def test_no_false_alarm(series: Series) -> None:
    assert [first_alarm(series, seed) for seed in range(3)] == [None] * 3


@pytest.mark.parametrize("minutes", [10, 20, 40])
@pytest.mark.parametrize("tooth_gib", [0.0, 4.0])
def test_growth_is_foretold_with_time_to_spare(minutes: int, tooth_gib: float) -> None:
    end = minutes * 60

    def growing(t: int, r: random.Random) -> float:
        tooth = tooth_gib * ((t % 41) / 40)
        return LIMIT - tooth_gib * GIB + tooth * GIB - 30 * GIB * (1 - t / end) + r.gauss(0, 0.05 * GIB)

    for seed in range(3):
        found = first_alarm(growing, seed)
        assert found is not None
        at, low, high = found
        assert end - at > 0.6 * min(end, ALARM_S), "a third of the time is enough to notice it"
        assert low - 0.1 * end <= end <= high + 0.1 * end
        assert low < high


def test_a_leak_over_hours_is_seen_by_the_slow_window() -> None:
    trend, end = Trend(), 6 * 3600
    for t in range(0, 5 * 3600, 5):
        trend.add(float(t), LIMIT - 2 * GIB * (1 - t / end))
    found = trend.forecast(LIMIT)
    assert found is not None and 0.5 * 3600 < found.seconds < 2 * 3600


def test_sens_slope_survives_wild_points() -> None:
    points = [(float(i), 2.0 * i) for i in range(30)]
    for i in range(0, 30, 5):
        points[i] = (float(i), 1e6)
    found = sen(points)
    assert found.middle == pytest.approx(2.0) and found.low <= 2.0 <= found.high
