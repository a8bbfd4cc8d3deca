"""Figures as text: every one with its unit, unknown never as zero."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import pytest

from console import format as fmt


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (fmt.size(0), "0 B"),
        (fmt.size(1023), "1.00 KiB"),
        (fmt.size(1536), "1.50 KiB"),
        (fmt.size(80 * 1024**3), "80.0 GiB"),
        (fmt.size(3 * 1024**5), "3.00 PiB"),
        (fmt.used_of(38.2 * 1024**3, 80 * 1024**3), "38.2/80.0 GiB"),
        (fmt.used_of(0, 80 * 1024**3), "0.00/80.0 GiB"),
        (fmt.rate(1024**2), "1.00 MiB/s"),
        (fmt.percent(0.0), "0%"),
        (fmt.share(120, 300), "40%"),
        (fmt.temperature(71.4), "71°C"),
        (fmt.power(312.4), "312 W"),
        (fmt.power(12_000), "12.0 kW"),
        (fmt.figure(1.83421), "1.834"),
        (fmt.figure(2e-4), "2.00e-4"),
        (fmt.figure(0.0), "0"),
        (fmt.figure(math.nan), "nan"),
        (fmt.figure(math.inf), "inf"),
        (fmt.count(12345), "12\u202f345"),
        (fmt.count(-0.0), "0"),
        (fmt.tokens_s(1834.2), "1\u202f834 tok/s"),
        (fmt.tokens_s(123_456), "123k tok/s"),
        (fmt.duration(0.0421), "42 ms"),
        (fmt.duration(2.04), "2.0 s"),
        (fmt.duration(59.4), "59 s"),
        (fmt.duration(59.6), "1m 00s"),
        (fmt.duration(3725), "1h 02m"),
        (fmt.duration(90_000), "1d 01h"),
        (fmt.duration(-3), "0 ms"),
        (fmt.age(45.9), "46 s"),
        (fmt.age(3599), "59 m"),
        (fmt.age(86400 * 2), "2 d"),
        (fmt.round_trip(0.0012), "1.2 ms"),
        (fmt.round_trip(0.3), "300 ms"),
    ],
)
def test_figures(text: str, wanted: str) -> None:
    assert text == wanted


@pytest.mark.parametrize(
    "show",
    [
        fmt.size,
        fmt.rate,
        fmt.percent,
        fmt.temperature,
        fmt.power,
        fmt.figure,
        fmt.count,
        fmt.tokens_s,
        fmt.duration,
        fmt.age,
        fmt.round_trip,
        fmt.clock,
    ],
)
def test_unknown_is_a_dash(show: Callable[[None], str]) -> None:
    assert show(None) == fmt.UNKNOWN


def test_a_share_of_nothing_is_unknown() -> None:
    assert fmt.share(1, 0) == fmt.share(None, 300) == fmt.share(3, None) == fmt.UNKNOWN


def test_the_day_is_told_when_it_is_not_today() -> None:
    now = time.time()
    assert fmt.clock(now) == time.strftime("%H:%M:%S", time.localtime(now))
    assert fmt.clock(now - 3 * 86400) == time.strftime("%m-%d %H:%M", time.localtime(now - 3 * 86400))
