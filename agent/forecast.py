"""What a run will need of memory, held against what its GPUs or its host have free, before it starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent import ram, wire
from agent.refusal import DOES_NOT_FIT, Refusal
from jobs.plan.correction import Correction
from jobs.plan.refusal import PlanError
from jobs.spec import Spec

if TYPE_CHECKING:
    from jobs.plan.preflight import Preflight

CUDA, HOST = "cuda", "rss"
"""Kinds of memory, as progress records call them; each has a correction of its own."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """Of one rank. `need_bytes` None: nothing can be said, and `text` says why."""

    kind: str
    text: str
    hint: str = ""
    answer: str = "unknown"
    """yes | tight | no | unknown"""
    need_bytes: int | None = None
    low_bytes: int | None = None
    high_bytes: int | None = None
    room_bytes: int | None = None
    factor: float = 1.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def refuse_unfit(self) -> None:
        """Raises Refusal for what does not fit."""
        if self.answer == "no":
            numbers = {"need_bytes": self.need_bytes, "room_bytes": self.room_bytes}
            raise Refusal(self.text, f"{self.hint} Or force it.", {"kind": DOES_NOT_FIT, **numbers})


def of(
    spec: Spec, home: Path, uuids: Sequence[str], gpus: Mapping[str, wire.Gpu], learnt: Mapping[str, Correction]
) -> Forecast:
    """For ranks on these GPUs; on the CPU where there are none. Never raises for a model that is not known."""
    from jobs.plan import preflight  # the planner is loaded by daemons that launch, not by all that watch

    kind = CUDA if uuids else HOST
    room = smallest_room([gpus[uuid] for uuid in uuids if uuid in gpus]) if uuids else ram.available_bytes()
    if not room:
        what = "the memory of its GPUs" if uuids else "the memory of this host"
        return Forecast(kind, f"no forecast: {what} cannot be read")
    correction = learnt.get(kind, Correction())
    try:
        found = (preflight.check if uuids else preflight.check_host)(spec, home, room, correction)
    except PlanError as error:
        return Forecast(kind, f"no forecast: {error.message}")
    return told(kind, found, correction.factor)


def told(kind: str, found: Preflight, factor: float) -> Forecast:
    verdict = found.verdict
    return Forecast(
        kind=kind,
        text=found.message + (", which is tight" if verdict.answer == "tight" else ""),
        hint=found.hint,
        answer=verdict.answer,
        need_bytes=round(found.forecast_bytes),
        low_bytes=round(verdict.forecast.low_bytes * factor),
        high_bytes=round(verdict.forecast.high_bytes * factor),
        room_bytes=round(verdict.capacity_bytes),
        factor=round(factor, 4),
    )


def smallest_room(gpus: Sequence[wire.Gpu]) -> int | None:
    """Free bytes on the fullest of the GPUs; None where one of them does not tell."""
    free = [gpu.memory_free_bytes for gpu in gpus]
    return None if None in free else min((one for one in free if one is not None), default=None)
