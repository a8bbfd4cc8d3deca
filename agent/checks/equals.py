"""Things that should be alike: what is usual among them, and which are not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from statistics import median
from typing import TypeVar

from agent.node_state import Gpu

T = TypeVar("T", bound=Hashable)


def label(gpu: Gpu) -> str:
    return f"GPU {gpu.index}"


def short(address: str) -> str:
    """00000000:1A:00.0 and 0000:1a:00.0 are one."""
    domain, _colon, rest = address.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def listed(names: Iterable[str]) -> str:
    """GPU 1, GPU 3 and GPU 5 → "GPU 1, 3, 5"; other names one after the other."""
    names = list(names)
    if names and all(name.startswith("GPU ") for name in names):
        return "GPU " + ", ".join(name.removeprefix("GPU ") for name in names)
    return ", ".join(names)


def each(values: Mapping[str, object], after: str = "") -> str:
    """A value for each name: "GPU 1: 5; GPU 3: 7"."""
    return "; ".join(f"{name}: {value}{after}" for name, value in values.items())


def others(usual: object) -> str:
    """What the rest has; nothing where there is no majority."""
    return "" if usual is None else f"; the others: {usual}"


def odd_ones(values: Mapping[str, T | None]) -> tuple[T | None, dict[str, T]]:
    """What more than half have, and those that differ. Without a majority: None, and all of them."""
    known = {name: value for name, value in values.items() if value is not None}
    if len(set(known.values())) < 2:
        return next(iter(known.values()), None), {}
    usual, count = Counter(known.values()).most_common(1)[0]
    if 2 * count <= len(known):
        return None, known
    return usual, {name: value for name, value in known.items() if value != usual}


def outliers(counts: Mapping[str, int | None], least: float, times: float) -> dict[str, int]:
    """Those of at least `least` that are `times` as high as the median of all."""
    known = {name: count for name, count in counts.items() if count is not None}
    usual = median(known.values()) if known else 0
    return {name: count for name, count in known.items() if count >= least and count >= times * usual}
