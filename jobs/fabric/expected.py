"""What links should give (configs/links.yaml, each figure with its source), and how what was measured compares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import configs

GOOD, WATCH, FAULT = "good", "watch", "fault"
BITS = 8
NVLINK_GENERATIONS = {"P100": 1, "V100": 2, "A100": 3, "A800": 3, "H100": 4, "H200": 4, "H800": 4, "B100": 5, "B200": 5}
"""By what a card is called. Cards with bridges have slower links than those of their generation: not named here."""


@dataclass(frozen=True, slots=True)
class Expected:
    """`gb_s`: GB/s (10⁹ bytes) in one direction. `by`: what limits it. Below `fault_below_gb_s` it is a known fault."""

    gb_s: float
    by: str
    source: str
    fault_below_gb_s: float | None = None


@dataclass(frozen=True, slots=True)
class Grade:
    """`grade`: good | watch | fault."""

    grade: str
    percent: float
    expected: Expected

    @property
    def words(self) -> str:
        wanted = f"{self.expected.gb_s:.1f} GB/s that {self.expected.by} should give"
        return f"{self.grade}: {self.percent:.0f}% of the {wanted}"


def table() -> Any:
    return configs.load("links.yaml")


def grade(percent: float) -> str:
    grades = table()["grades"]
    return GOOD if percent >= grades["good_percent"] else WATCH if percent >= grades["watch_percent"] else FAULT


def judged(measured_gb_s: float, expected: Expected) -> Grade:
    """By percent of the expected; a published fault line decides below it."""
    percent = 100 * measured_gb_s / expected.gb_s
    line = expected.fault_below_gb_s
    return Grade(FAULT if line is not None and measured_gb_s < line else grade(percent), percent, expected)


def pcie(generation: int, width: int) -> Expected | None:
    """A copy between host and card. None for a generation that is not known."""
    lane = table()["pcie"]["lane_gb_s"].get(generation)
    if lane is None or width < 1:
        return None
    return Expected(
        lane * width * table()["pcie"]["reached_share"], f"PCIe {generation} x{width}", table()["pcie"]["source"]
    )


def nvlink(generation: int, links: int) -> Expected | None:
    """All links of a card together, as rings over them reach it."""
    link = table()["nvlink"]["link_gb_s"].get(generation)
    if link is None or links < 1:
        return None
    by = f"{links} NVLinks of generation {generation}"
    return Expected(link * links * table()["nvlink"]["reached_share"], by, table()["nvlink"]["source"])


def nic(rate_bits_s: float, rdma: bool = True) -> Expected:
    """One NIC, given its rate in bits a second as ports tell it."""
    part = table()["nic" if rdma else "ethernet_tcp"]
    by = f"a port of {rate_bits_s / 1e9:.0f} Gb/s"
    return Expected(rate_bits_s / BITS / 1e9 * part["reached_share"], by, part["source"])


def between_nodes(rails: Mapping[str, float], inside: Expected | None = None) -> Expected | None:
    """All-reduce across nodes over rails (name → bits a second). The slowest governs all; `inside` may be lower yet."""
    if not rails:
        return inside
    slowest = min(rails, key=lambda name: rails[name])
    part = table()["nodes_all_reduce"]
    gb_s = len(rails) * rails[slowest] / BITS / 1e9 * part["reached_share"]
    if inside is not None and inside.gb_s < gb_s:
        return inside
    uneven = len(set(rails.values())) > 1
    by = f"{len(rails)} rails of {rails[slowest] / 1e9:.0f} Gb/s" + (
        f", the slowest being {slowest}," if uneven else ""
    )
    return Expected(gb_s, by, part["source"])


def inside_node(card: str, gpus: int, nvlinks: int | None, pcie_link: tuple[int, int] | None) -> Expected | None:
    """All-reduce among GPUs of one node. `pcie_link`: generation and width at full speed. None: nothing is known."""
    for box in table()["boxes"]:
        if box["card"] in card and box["gpus"] == gpus and (nvlinks is None or nvlinks or "PCIe" in card):
            by = f"{gpus} × {card}"
            return Expected(box["busbw_gb_s"], by, box["source"], box["fault_below_gb_s"])
    generation = next((number for name, number in NVLINK_GENERATIONS.items() if name in card), None)
    if nvlinks and generation is not None:
        return nvlink(generation, nvlinks)
    if nvlinks or pcie_link is None or (link := pcie(*pcie_link)) is None:
        return None
    raw = link.gb_s / table()["pcie"]["reached_share"]
    part = table()["pcie_all_reduce"]
    return Expected(raw * part["reached_share"], link.by, part["source"])


def latency(transport: str, measured_us: float) -> tuple[str, str]:
    """Grade and words for a small message over `tcp` or `rdma`: usual, up to twice that, or more. Raises KeyError."""
    low, high = table()["latency_us"][transport]["usual"]
    found = GOOD if measured_us <= high else WATCH if measured_us <= 2 * high else FAULT
    return found, f"{measured_us:.1f} µs, usual over {transport} are {low} to {high} µs"
