"""Cards and links, from ``configs/gpus.yaml``."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import configs
from jobs.plan.refusal import PlanError

MIB = 2**20
PCIE_BYTES_PER_S = {3: 15.8e9, 4: 31e9, 5: 63e9}  # x16, one direction
ALIASES = {"gb200": "b200", "gb300": "b200", "a10": "a10g"}  # same silicon, or the nearest card that is shipped
WORDS = {"nvidia", "tesla", "geforce", "gpu", "sxm", "sxm2", "sxm4", "sxm5", "quadro"}


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU model. Rates are dense, in operations and bytes per second; ``memory_bytes`` is NVML's total."""

    name: str
    generation: str  # "Ampere", "Ada", "Hopper" ...
    memory_bytes: int
    matmul_flops: float
    memory_bytes_per_s: float
    nvlink_bytes_per_s: float  # both directions together; 0 = none
    pcie_gen: int
    bf16: bool
    fp8: bool
    notes: str = ""

    @property
    def geforce(self) -> bool:
        return bool(re.match(r"RTX \d{4}\b(?! Ada)", self.name))

    @property
    def link_bytes_per_s(self) -> float:
        """One direction, to a neighbour in the same node."""
        return self.nvlink_bytes_per_s / 2 or PCIE_BYTES_PER_S[self.pcie_gen]


def _card(entry: dict[str, Any]) -> Card:
    return Card(
        name=entry["name"],
        generation=entry["architecture"].split()[0],
        memory_bytes=entry["nvml_total_mib"] * MIB,
        matmul_flops=(entry["bf16_dense_tflops"] or entry["fp16_dense_tflops"]) * 1e12,
        memory_bytes_per_s=entry["memory_bandwidth_gbps"] * 1e9,
        nvlink_bytes_per_s=entry["nvlink_bidirectional_gbps"] * 1e9,
        pcie_gen=entry["pcie_gen"],
        bf16=entry["bf16_support"],
        fp8=entry["fp8_support"],
        notes=entry.get("notes") or "",
    )


@lru_cache(maxsize=1)
def cards() -> tuple[Card, ...]:
    """Every card that is shipped, smallest memory first."""
    return tuple(sorted((_card(e) for e in configs.load("gpus.yaml")["gpus"]), key=lambda c: (c.memory_bytes, c.name)))


def _words(text: str) -> set[str]:
    text = re.sub(r"(?<![a-z0-9])(\d+)\s*g(i?b)?\b", r"\1gb", text.lower().replace("(", " "))
    text = re.sub(r"\b(rtx|gtx)\s*[- ]?(\d{4})", r"\2", text)
    words = {ALIASES.get(w, w) for w in re.split(r"[^a-z0-9]+", text) if w and w not in WORDS and w != "rtx"}
    return words - {"a6000"} | {"6000"} if {"a6000", "ada"} <= words else words


def find(name: str, memory_gb: float | None = None) -> Card | None:
    """The card whose name shares the model word ("A100", "4090"); memory and other words decide between variants."""
    wanted = _words(name.replace(",", "/").split("/")[0])
    best, best_score = None, 0.0
    for card in cards():
        have = _words(card.name)
        models = {w for w in have if re.search(r"\d", w) and not w.endswith("gb") and w != "ada"}
        if not models & wanted:
            continue
        score = 10.0 + len(have & wanted) - 0.1 * len(have - wanted) - 2.0 * (("ada" in wanted) != ("ada" in have))
        score += 0.01 * ("sxm" in card.name.lower())
        if memory_gb:
            score -= abs(card.memory_bytes / 1e9 - memory_gb) / memory_gb
        if score > best_score:
            best, best_score = card, score
    return best


def named(name: str) -> Card:
    """The card of that name. Raises PlanError with the nearest names."""
    found = find(name)
    if found is None:
        near = difflib.get_close_matches(name, [c.name for c in cards()], 3, 0.3) or [c.name for c in cards()]
        raise PlanError(f"card {name!r} is not known", f"known cards: {', '.join(near)}")
    return found
