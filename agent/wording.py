"""Figures of an alert as text, the unit taken from the field's name."""

from __future__ import annotations

import math
import string
from typing import Any

from agent.trend import Forecast

UNITS = {"percent": " %", "c": " °C", "w": " W", "mhz": " MHz"}
BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def figure(value: Any, name: str) -> str:
    """`value` of the field `name` with its unit; a dash for what is not measured."""
    if value is None:
        return "–"
    if isinstance(value, (list, tuple)):
        return ", ".join(str(one) for one in value) or "none"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if not math.isfinite(value):
        return str(value)
    unit = name.rpartition("_")[2]
    if unit == "bytes":
        return size(value)
    if unit == "s":
        return duration(value)
    text = f"{value:.3g}" if isinstance(value, float) else str(value)
    return text + UNITS.get(unit, "")


def size(value: float) -> str:
    step = 0
    while abs(value) >= 1000 and step < len(BINARY) - 1:
        value, step = value / 1024, step + 1
    return f"{value:.3g} {BINARY[step]}"


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def until(found: Forecast | None, step_s: float | None) -> str:
    """When memory will be full: the estimate, its interval, and the same in steps where the pace is known."""
    if found is None:
        return "soon"
    span = f"in {duration(found.seconds)} ({duration(found.low_s)} to {duration(found.high_s)})"
    steps = f", about {found.seconds / step_s:.0f} steps" if step_s else ""
    return f"{span}{steps}: its peak grows by {size(found.slope_bytes_s * 60)} a minute"


class Words(dict[str, str]):
    """Fields of a record by name, each with its unit; one that is not there stays as written."""

    def __init__(self, record: Any, more: dict[str, str]) -> None:
        super().__init__(more)
        self.record = record

    def __missing__(self, name: str) -> str:
        found = getattr(self.record, name, self)
        return f"{{{name}}}" if found is self else figure(found, name)


def filled(text: str, words: Words) -> str:
    """Only plain names are filled in: a rule's text is data, so no attributes or indices of it are followed."""
    parts = string.Formatter().parse(text)
    return "".join(said + (words[name] if name and name.isidentifier() else "") for said, name, _f, _c in parts)
