"""Time stamps as the tools print them → seconds since the epoch on the writer's clock."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

MONTHS = {"JanFebMarAprMayJunJulAugSepOctNovDec"[i : i + 3]: i // 3 + 1 for i in range(0, 36, 3)}
ISO = re.compile(r"(\d{4})[-/](\d\d)[-/](\d\d)[T _](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(?:\s?(Z|[+-]\d\d:?\d\d))?")
CTIME = re.compile(r"([A-Z][a-z]{2}) +(\d{1,2}) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?: (\d{4}))?")
GLOG = re.compile(r"\b[IWEF](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?")
US = re.compile(r"\b(\d\d)/(\d\d)/(\d{4})(?: \| | )(\d\d):(\d\d):(\d\d)")
NO_YEAR = 2000  # stands for "the year is not printed"; `same_year` moves such times beside the dated ones
SEARCHED = 160  # characters from the start of a line in which its own stamp can stand


def _seconds(year: int, month: int, day: int, hour: int, minute: int, second: int, fraction: str = "") -> float | None:
    try:
        moment = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=timezone.utc)
    except ValueError:
        return None
    return moment.timestamp() + (float("0." + fraction) if fraction else 0.0)


def _offset_s(zone: str) -> int:
    if zone in ("", "Z"):
        return 0
    sign = -1 if zone[0] == "-" else 1
    digits = zone[1:].replace(":", "")
    return sign * (int(digits[:2]) * 3600 + int(digits[2:]) * 60)


def _iso(head: str) -> float | None:
    m = ISO.search(head)
    if m is None:
        return None
    year, month, day, hour, minute, second = (int(g) for g in m.groups()[:6])
    at = _seconds(year, month, day, hour, minute, second, m[7] or "")
    return None if at is None else at - _offset_s(m[8] or "")


def _glog(head: str) -> float | None:
    m = GLOG.search(head)
    return m and _seconds(NO_YEAR, int(m[1]), int(m[2]), int(m[3]), int(m[4]), int(m[5]), m[6] or "")


def _ctime(head: str) -> float | None:
    m = CTIME.search(head)
    if m is None or m[1] not in MONTHS:
        return None
    year = int(m[7]) if m[7] else NO_YEAR
    return _seconds(year, MONTHS[m[1]], int(m[2]), int(m[3]), int(m[4]), int(m[5]), m[6] or "")


def _us(head: str) -> float | None:
    m = US.search(head)
    return m and _seconds(int(m[3]), int(m[1]), int(m[2]), int(m[4]), int(m[5]), int(m[6]))


def stamp(text: str) -> float | None:
    """The time a line says it was written, or None. Times without a year fall in the year 2000 (see `same_year`)."""
    head = text[:SEARCHED]
    if ":" not in head:
        return None
    for reader in (_iso, _glog, _ctime, _us):
        at = reader(head)
        if at is not None:
            return at
    return None


def same_year(at_s: float, near_s: float) -> float:
    """A year-less time moved to the year in which it lies nearest to `near_s`."""
    moment = datetime.fromtimestamp(at_s, timezone.utc)
    if moment.year != NO_YEAR:
        return at_s
    middle = datetime.fromtimestamp(near_s, timezone.utc).year
    tries = [_moved(moment, middle + shift) for shift in (-1, 0, 1)]
    return min(tries, key=lambda t: abs(t - near_s))


def _moved(moment: datetime, year: int) -> float:
    try:
        return moment.replace(year=year).timestamp()
    except ValueError:
        return (moment.replace(year=year, day=28) + timedelta(days=1)).timestamp()
