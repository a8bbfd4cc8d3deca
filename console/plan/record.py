"""The answers of `tunedeck plan` as JSON objects."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from jobs.plan import advice, fit, memory
from jobs.plan.architecture import Architecture
from jobs.plan.duration import Duration
from jobs.plan.fit import Change, Verdict
from jobs.plan.hardware import Card
from jobs.plan.offers import Finding
from jobs.plan.workload import Workload


def answer(
    shape: Architecture,
    work: Workload,
    card: Card | None,
    verdict: Verdict | None,
    time: Duration | None,
    changes: list[Change] | None,
) -> dict[str, Any]:
    """Everything about one plan; bytes per card, seconds, shares between 0 and 1."""
    forecast = verdict.forecast if verdict else memory.forecast(shape, work)
    minimum = fit.minimum(shape, work)
    return {
        "model": {"name": shape.name, "parameters": shape.parameters, "trainable": forecast.trainable},
        "workload": asdict(work),
        "memory": {
            "components": [asdict(component) for component in forecast.components],
            "allocated_bytes": forecast.allocated_bytes,
            "reserved_bytes": forecast.reserved_bytes,
            "device_bytes": forecast.device_bytes,
            "low_bytes": forecast.low_bytes,
            "high_bytes": forecast.high_bytes,
            "host_bytes": forecast.host_bytes,
            "peak": forecast.peak,
        },
        "card": {"name": card.name, "memory_bytes": card.memory_bytes} if card else None,
        "fit": _fit(verdict) if verdict else None,
        "cards": {c.name: v.answer for c, v in fit.on_cards(shape, work)},
        "minimum": {"cards": minimum[0], "card": minimum[1].name, "sharding": minimum[2].sharding} if minimum else None,
        "speed": _speed(time) if time else None,
        "changes": [{"text": c.text, "cost": c.cost} for c in changes] if changes is not None else None,
        "advice": [asdict(entry) for entry in advice.of(work)],
        "assumptions": list(shape.assumptions),
    }


def _fit(verdict: Verdict) -> dict[str, Any]:
    return {"answer": verdict.answer, "left_share": verdict.left_share, "sellers_rule": verdict.sellers_rule}


def _speed(time: Duration) -> dict[str, Any]:
    return {
        "tokens_per_s_per_card": time.pace.tokens_per_s_per_card,
        "low": time.pace.low,
        "high": time.pace.high,
        "limit": time.pace.limit,
        "achieved_share": time.pace.share,
        "useful_share": time.useful_share,
        "tokens": time.tokens,
        "steps": time.steps,
        "hours": time.hours,
        "low_hours": time.low_hours,
        "high_hours": time.high_hours,
    }


def finding(found: Finding) -> dict[str, Any]:
    return {"claim": found.claim, "verdict": found.verdict, "arithmetic": list(found.arithmetic)}
