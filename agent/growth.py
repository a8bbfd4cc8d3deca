"""How fast counters grow, over a span long enough that what trembles is not news each second."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

Counters = Mapping[str, tuple[int, ...]]
FIRST_S = 0.1
"""The first span is short: something is better known soon than exactly."""


def rate(before: int, now: int, span: float) -> float | None:
    """Growth over a span; None for no span or a counter that was reset."""
    return (now - before) / span if span > 0 and now >= before else None


def steps(value: float | None) -> float | None:
    """Two significant digits: a figure that only trembles is not sent again and again."""
    return float(f"{value:.1e}") if value is not None else None


def total(rates: Iterable[float | None]) -> float | None:
    """Of those that are known, in two digits."""
    known = [one for one in rates if one is not None]
    return steps(sum(known)) if known else None


class Growth:
    """Per second, for each counter of each named set. A set that is new has no rates yet."""

    def __init__(self, span_s: float) -> None:
        self.span_s = span_s
        self.before: Counters = {}
        self.at_s, self.due_s = 0.0, -math.inf
        self.rates: dict[str, tuple[float | None, ...]] = {}

    def look(self, now_s: float, read: Callable[[], Counters]) -> bool:
        """Reads when a span is over; says whether it did. `now_s`: monotonic seconds."""
        if now_s < self.due_s:
            return False
        now, elapsed = read(), now_s - self.at_s
        self.rates = {
            name: tuple(rate(old, new, elapsed) for old, new in zip(self.before[name], values, strict=True))
            for name, values in now.items()
            if name in self.before
        }
        self.due_s = now_s + (self.span_s if self.before else min(FIRST_S, self.span_s))
        self.before, self.at_s = now, now_s
        return True

    def of(self, name: str, place: int = 0) -> float | None:
        """In two digits."""
        return steps(self.rates[name][place]) if name in self.rates else None

    def all(self, place: int) -> float | None:
        """Of all sets together, in two digits."""
        return total(rates[place] for rates in self.rates.values())
