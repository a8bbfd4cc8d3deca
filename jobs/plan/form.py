"""The state of a plan screen: knobs that step, and the result of each setting. Pure; a screen only draws it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from jobs.plan import advice, duration, fit, memory
from jobs.plan.advice import Advice
from jobs.plan.architecture import Architecture
from jobs.plan.correction import Correction
from jobs.plan.duration import Duration
from jobs.plan.fit import Change, Verdict
from jobs.plan.hardware import Card
from jobs.plan.lengths import Lengths
from jobs.plan.refusal import PlanError
from jobs.plan.workload import Workload

METHOD_FORMATS = {"full": "bf16", "lora": "bf16", "dora": "bf16", "qlora": "nf4-dq"}
VALUES: dict[str, tuple[Any, ...]] = {
    "method": ("full", "lora", "dora", "qlora"),
    "rank": (4, 8, 16, 32, 64, 128, 256),
    "micro_batch": (1, 2, 4, 8, 16, 32, 64),
    "seq_len": (256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072),
    "checkpointing": ("none", "selective", "full"),
    "loss": ("unfused", "chunked", "fused"),
    "optimizer": ("adamw", "adamw-fp32", "adamw-8bit", "paged-adamw-8bit", "adafactor", "sgd"),
    "sharding": ("none", "ddp", "zero1", "zero2", "zero3", "fsdp"),
    "cards": (1, 2, 4, 8, 16, 32, 64),
    "offload": ("none", "optimizer", "all"),
    "kernels": ("plain", "fused"),
}


@dataclass(frozen=True, slots=True)
class Result:
    """Everything that one setting gives. ``problem`` set: the knobs contradict each other, and the rest is None."""

    verdict: Verdict | None = None
    duration: Duration | None = None
    advice: tuple[Advice, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class PlanForm:
    """A model, a card and a workload, changed one knob at a time."""

    shape: Architecture
    card: Card
    work: Workload = field(default_factory=Workload)
    settings: tuple[tuple[str, Any], ...] = ()  # of a contradictory state: the knobs as they stand
    problem: str = ""
    samples: int = 10_000
    epochs: float = 3.0
    lengths: Lengths | None = None
    correction: Correction = field(default_factory=Correction)

    def value(self, knob: str) -> Any:
        """What the knob stands at."""
        return dict(self.settings).get(knob, getattr(self.work, knob))

    def turn(self, knob: str, step: int) -> PlanForm:
        """The form with a knob of VALUES moved by ``step`` places; it stops at the ends."""
        values = VALUES[knob]
        now = self.value(knob)
        at = values.index(now) if now in values else _nearest(values, now)
        return self.set(knob, values[max(0, min(len(values) - 1, at + step))])

    def set(self, knob: str, value: Any) -> PlanForm:
        """The form with a knob set. A contradiction is kept as a problem until another knob resolves it."""
        settings = {**dict(self.settings), knob: value}
        if knob == "method":
            settings["weight_format"] = METHOD_FORMATS[value]
        try:
            return replace(self, work=replace(self.work, **settings), settings=(), problem="")
        except PlanError as error:
            return replace(self, settings=tuple(settings.items()), problem=str(error))

    def result(self) -> Result:
        """The verdict on ``card``, the duration and what is claimed about the method."""
        if self.problem:
            return Result(problem=self.problem)
        verdict = fit.judge(self.shape, self.work, self.card.memory_bytes, self.correction.factor)
        try:
            time = duration.of(self.shape, self.work, self.card, self.samples, self.epochs, self.lengths, packed=False)
        except PlanError as error:
            return Result(verdict, None, advice.of(self.work), str(error))
        return Result(verdict, time, advice.of(self.work))

    def fitted(self) -> tuple[PlanForm, list[Change]] | None:
        """The form after the least harmful changes that make it fit, and the changes; None where none does."""
        found = fit.make_it_fit(self.shape, self.work, self.card.memory_bytes / self.correction.factor)
        if found is None:
            return None
        return (replace(self, work=found[-1].work, settings=(), problem="") if found else self), found

    def bars(self) -> tuple[tuple[str, float, str], ...]:
        """Components of the forecast as (name, share of the card, why), largest first."""
        forecast = memory.forecast(self.shape, self.work)
        ordered = sorted(forecast.components, key=lambda component: -component.bytes)
        return tuple((c.name, c.bytes / self.card.memory_bytes, c.why) for c in ordered)


def _nearest(values: tuple[Any, ...], now: Any) -> int:
    """Where an odd value stands among the usual ones."""
    if not isinstance(now, int):
        return 0
    return min(range(len(values)), key=lambda i: abs(values[i] - now))
