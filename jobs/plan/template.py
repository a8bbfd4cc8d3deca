"""Which DeepSpeed template suits a workload on given cards, and why."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import configs
from jobs.plan import fit
from jobs.plan.architecture import Architecture
from jobs.plan.workload import Workload

LADDER = (
    ("zero1", "zero1", "none"),
    ("zero2", "zero2", "none"),
    ("zero3", "zero3", "none"),
    ("zero2-offload", "zero2", "optimizer"),
    ("zero3-offload", "zero3", "all"),
)


@dataclass(frozen=True, slots=True)
class Template:
    """A file under ``configs/deepspeed`` with the reason for it. ``fits``: whether it is enough."""

    name: str
    path: Path
    reason: str
    fits: bool


def choose(shape: Architecture, work: Workload, capacity_bytes: float) -> Template:
    """The first of the templates, from least to most communication, on which the workload fits; else the last one."""
    for name, sharding, offload in LADDER:
        tried = replace(work, sharding=sharding, offload=offload)
        if fit.judge(shape, tried, capacity_bytes).fits:
            return _template(name, True)
    return _template(LADDER[-1][0], False)


def _template(name: str, fits: bool) -> Template:
    return Template(name, configs.path(f"deepspeed/{name}.json"), configs.load("deepspeed/reasons.yaml")[name], fits)
