"""Figures as text. Every one carries its unit; `None` is shown as a dash, never as zero."""

from __future__ import annotations

import math
import time

UNKNOWN = "–"
CLOCK_LIMIT_S = 1e11
"""The year 5138; what a node says may be anything, and the C library raises for what it cannot show."""
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def size(n_bytes: float | None) -> str:
    """Bytes in binary units with three significant digits: ``1.46 GiB``."""
    if n_bytes is None or not math.isfinite(n_bytes):
        return UNKNOWN
    value, unit = float(n_bytes), 0
    while abs(value) >= 999.5 and unit < len(_BINARY) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} B" if unit == 0 else f"{three_digits(value)} {_BINARY[unit]}"


def used_of(used_bytes: float | None, total_bytes: float | None) -> str:
    """Two sizes in the unit of the larger: ``38.2/80.0 GiB``."""
    if used_bytes is None or not math.isfinite(used_bytes) or not total_bytes or not 1 <= total_bytes < math.inf:
        return size(used_bytes)
    unit = min(int(math.log(total_bytes, 1024)), len(_BINARY) - 1)
    return f"{three_digits(used_bytes / 1024**unit)}/{three_digits(total_bytes / 1024**unit)} {_BINARY[unit]}"


def rate(bytes_s: float | None) -> str:
    return UNKNOWN if bytes_s is None else f"{size(bytes_s)}/s"


def gigabytes_s(bytes_s: float | None) -> str:
    """As makers of networks count: decimal, ``48.1 GB/s``."""
    return UNKNOWN if bytes_s is None or not math.isfinite(bytes_s) else f"{three_digits(bytes_s / 1e9)} GB/s"


def gigabits(bits_s: float | None) -> str:
    """What a link can do: ``400 Gb/s``, ``0.1 Gb/s``."""
    return UNKNOWN if bits_s is None or not math.isfinite(bits_s) else f"{bits_s / 1e9:g} Gb/s"


def three_digits(value: float) -> str:
    """Three significant digits without an exponent, for values from 0 to a few thousand."""
    return f"{value:.2f}" if abs(value) < 9.995 else f"{value:.1f}" if abs(value) < 99.95 else f"{value:.0f}"


def percent(value: float | None) -> str:
    return UNKNOWN if value is None or not math.isfinite(value) else f"{value:.0f}%"


def fraction(part: float | None, whole: float | None) -> float | None:
    """`part / whole` between 0 and 1; None when either is unknown or the whole is nothing."""
    ratio = None if part is None or not whole else part / whole
    return None if ratio is None or not math.isfinite(ratio) else min(max(ratio, 0.0), 1.0)


def share(part: float | None, whole: float | None) -> str:
    ratio = fraction(part, whole)
    return percent(None if ratio is None else ratio * 100)


def temperature(value_c: float | None) -> str:
    return UNKNOWN if value_c is None else f"{value_c:.0f}°C"


def power(value_w: float | None) -> str:
    if value_w is None:
        return UNKNOWN
    return f"{value_w:.0f} W" if value_w < 9_999.5 else f"{value_w / 1000:.1f} kW"


def figure(value: float | None) -> str:
    """A loss or a norm: four significant digits, an exponent only where it is needed; nan and inf are said as such."""
    if value is None:
        return UNKNOWN
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    size_of = abs(value)
    if 1e-3 <= size_of < 1e5:
        return f"{value:.4g}"
    mantissa, _e, exponent = f"{value:.2e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def count(value: float | None) -> str:
    """A count with thin grouping: ``12 345``."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return f"{round(value):,}".replace(",", "\u202f")


def tokens_s(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return f"{count(value)} tok/s" if value < 99_999.5 else f"{three_digits(value / 1000)}k tok/s"


def duration(seconds: float | None) -> str:
    """Two units at most: ``0.42 s``, ``12 s``, ``3m 05s``, ``2h 10m``, ``4d 06h``."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    s = max(0.0, seconds)
    if s < 0.9995:
        return f"{s * 1000:.0f} ms"
    if s < 9.95:
        return f"{s:.1f} s"
    whole = round(s)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h {whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d {whole % 86400 // 3600:02d}h"


def age(seconds: float | None) -> str:
    """How old a figure is, in the one unit that matters: ``0 s``, ``45 s``, ``12 m``, ``3 h``, ``2 d``."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    s = max(0.0, seconds)
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if s >= length:
            return f"{s // length:.0f} {unit}"
    return f"{s:.0f} s"


def round_trip(seconds: float | None) -> str:
    if seconds is None:
        return UNKNOWN
    ms = seconds * 1000
    return f"{ms:.1f} ms" if ms < 9.95 else f"{ms:.0f} ms" if ms < 9999.5 else duration(seconds)


def clock(unix_s: float | None) -> str:
    """Local time of day; the day too when it is not today's."""
    if unix_s is None or not 0 <= unix_s < CLOCK_LIMIT_S:
        return UNKNOWN
    then = time.localtime(unix_s)
    today = then[:3] == time.localtime()[:3]
    return time.strftime("%H:%M:%S" if today else "%m-%d %H:%M", then)
