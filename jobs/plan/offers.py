"""Claims of an offer that are not about memory: availability, prices, restore times, links, support."""

from __future__ import annotations

import re
from dataclasses import dataclass

HOURS_PER_YEAR = 8760.0
NVME_BYTES_PER_S = 7e9  # one PCIe 4 drive
STATE_BYTES = 16.0  # per parameter: mixed-precision AdamW


@dataclass(frozen=True, slots=True)
class Finding:
    """``verdict``: holds, contradicted, depends, or unchecked where arithmetic has no say. ``arithmetic`` in
    sentences.
    """

    verdict: str
    claim: str
    arithmetic: tuple[str, ...]


def availability(text: str) -> Finding | None:
    """``99.99 % availability with 4 h down a year``."""
    shares = [float(v) for v in re.findall(r"(9\d\.\d+)\s*%", text)]
    if not shares or not re.search(r"availab|uptime|SLA", text, re.IGNORECASE):
        return None
    down = re.search(r"(\d+(?:\.\d+)?)\s*(?:h|hours?)\b", text)
    said = [f"{s:g} % of a year allows {(1 - s / 100) * HOURS_PER_YEAR * 60:,.1f} minutes down" for s in shares]
    if not down:
        return Finding("depends", text, (*said, "no downtime is stated to hold it against"))
    real = 100 * (1 - float(down.group(1)) / HOURS_PER_YEAR)
    broken = [s for s in shares if real < s]
    said.append(f"{down.group(1)} h down is {real:.3f} %" + "".join(f": breaks {s:g} %" for s in broken))
    return Finding("contradicted" if broken else "holds", text, tuple(said))


def restore(text: str) -> Finding | None:
    """``70B, restore in 10 s``: the rate that takes."""
    seconds = re.search(r"restor\w*.{0,30}?(\d+)\s*s(?:ec\w*)?\b|(\d+)\s*s(?:ec\w*)?\s*restor", text, re.IGNORECASE)
    if not seconds:
        return None
    s = float(seconds.group(1) or seconds.group(2))
    size = re.search(r"(\d+(?:\.\d+)?)\s*B\b", text)
    p = float(size.group(1)) * 1e9 if size else 70e9
    weights, state = 2 * p, STATE_BYTES * p
    said = (
        f"{p / 1e9:g}B: bf16 weights {weights / 1e9:,.0f} GB in {s:g} s = {weights / s / 1e9:,.0f} GB/s; "
        f"training state {state / 1e9:,.0f} GB = {state / s / 1e9:,.0f} GB/s",
        f"one NVMe drive reads about {NVME_BYTES_PER_S / 1e9:g} GB/s: {s:g} s hold for adapters, not for full state",
    )
    return Finding("contradicted" if state / s > 2 * NVME_BYTES_PER_S else "holds", text, said)


def slow_link(text: str) -> Finding | None:
    """``+116 % time but +35 % cost``: at one price time is cost."""
    time = re.search(r"\+\s*(\d+)\s*%\s*(?:time|duration)", text)
    cost = re.search(r"\+\s*(\d+)\s*%\s*cost", text)
    if not (time and cost):
        return None
    same = abs(int(time.group(1)) - int(cost.group(1))) <= 5
    said = (f"at an equal price per hour +{time.group(1)} % time is +{time.group(1)} % cost, not +{cost.group(1)} %",)
    return Finding("holds" if same else "contradicted", text, said)


def price_factor(text: str) -> Finding | None:
    """Two factors for one term."""
    if not re.search(r"(yearly|annual|quarterly)", text, re.IGNORECASE) or "factor" not in text.lower():
        return None
    factors = sorted({float(v) for v in re.findall(r"\b(0\.\d+)\b", text)})
    if len(factors) < 2:
        return Finding("unchecked", text, ("one factor alone cannot contradict itself",))
    said = (
        f"{' and '.join(f'{f:.2f}' for f in factors)} for one term differ by {factors[-1] / factors[0] - 1:.0%}: "
        "the factor must be kept for each card",
    )
    return Finding("contradicted", text, said)


def support(text: str) -> Finding | None:
    """Response and swap times."""
    if not re.search(r"support|ticket|swap|respon|migrat", text, re.IGNORECASE) or not re.search(r"\d+\s*min", text):
        return None
    return Finding("unchecked", text, ("times of different sellers: not to be merged, and nothing to compute",))


def absent(text: str) -> Finding | None:
    """A table that is referred to but not there."""
    if not re.search(r"\b(table|list)\b", text) or not re.search(r"absent|missing|not (?:shown|included|given)", text):
        return None
    return Finding("unchecked", text, ("figures that are not given cannot be checked: ask the seller for them",))


EXAMINERS = (availability, restore, slow_link, price_factor, support, absent)
