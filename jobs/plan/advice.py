"""What is said about methods and ranks, with who says it; shown beside the arithmetic, never mixed with it."""

from __future__ import annotations

from dataclasses import dataclass

import configs
from jobs.plan.workload import Workload


@dataclass(frozen=True, slots=True)
class Advice:
    topic: str
    claim: str
    source: str


def of(work: Workload) -> tuple[Advice, ...]:
    """Claims that bear on this workload: its method, its rank, its checkpointing."""
    words = {
        "qlora": ("QLoRA",),
        "dora": ("DoRA",),
        "lora": ("QLoRA against LoRA", "full fine-tuning against LoRA"),
        "full": ("full fine-tuning",),
    }[work.method]
    if work.checkpointing == "full":
        words = (*words, "activation checkpointing")
    found = [Advice(**entry) for entry in configs.load("advice.yaml")["methods"] if entry["topic"].startswith(words)]
    return (*found, *((rank(work.rank),) if work.adapters else ()))


def rank(value: int) -> Advice:
    """What a rank of that size is said to be good for."""
    entry = next(e for e in configs.load("advice.yaml")["ranks"] if value <= e["most"])
    return Advice(f"rank {value}", entry["use"], entry["source"])
