"""What launch asks before a run starts: does this spec fit these cards or this host, and if not, what would."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from jobs.plan import fit, from_spec, host
from jobs.plan.architecture import Architecture
from jobs.plan.correction import Correction
from jobs.plan.fit import Verdict
from jobs.plan.memory import GIB
from jobs.plan.workload import Workload
from jobs.spec import Spec

SHORTEST = 128  # tokens; shorter examples are seldom worth training on


@dataclass(frozen=True, slots=True)
class Preflight:
    """``message`` and ``hint`` are ready to show; ``verdict.fits`` decides. ``forecast_bytes``: device peak of a
    rank.
    """

    verdict: Verdict
    forecast_bytes: float
    message: str
    hint: str


def check(spec: Spec, home: Path, capacity_bytes: float, correction: Correction | None = None) -> Preflight:
    """Judges a spec for cards of ``capacity_bytes`` each (the smallest, free or total as the caller means it).

    Raises PlanError where the model is not known: then nothing can be said, and nothing should be refused.
    """
    learnt = correction or Correction()
    shape, work = from_spec.architecture(spec, home), from_spec.workload(spec)
    verdict = fit.judge(shape, work, capacity_bytes, learnt.factor)
    need = verdict.forecast.device_bytes * learnt.factor
    said = _said("each card", need, capacity_bytes, learnt)
    if verdict.fits:
        return Preflight(verdict, need, said, "")
    steps = changed_spec(shape, work, capacity_bytes / learnt.factor)
    hint = f"It would fit with `{'`, `'.join(steps)}`." if steps else "No setting makes it fit; use larger cards."
    return Preflight(verdict, need, f"does not fit: {said}", hint)


def check_host(spec: Spec, home: Path, capacity_bytes: float, correction: Correction | None = None) -> Preflight:
    """Judges a spec for ranks on the CPU that share ``capacity_bytes`` of host memory. Raises PlanError likewise.

    Refused is only what no allocator could place: what freed blocks add (``host.SLACK``) may be given back.
    """
    learnt = correction or Correction()
    shape, work = from_spec.architecture(spec, home), from_spec.workload(spec, cuda=False)
    room = capacity_bytes / work.cards
    forecast = host.forecast(shape, work)
    need = forecast.device_bytes * learnt.factor
    least = forecast.allocated_low_bytes + host.PROCESS_BYTES
    left = 1 - need / room
    answer = "no" if least > room else "tight" if left < fit.TIGHT_SHARE else "yes"
    said = _said("each process", need, room, learnt)
    if answer != "no":
        return Preflight(Verdict(answer, left, room, forecast), need, said, "")
    hint = "Fewer processes, shorter examples, a smaller batch or `train: {gradient_checkpointing: true}` need less."
    return Preflight(Verdict(answer, left, room, forecast), need, f"does not fit: {said} of host memory", hint)


def _said(who: str, need: float, room: float, learnt: Correction) -> str:
    text = f"{who} needs about {need / GIB:.1f} of {room / GIB:.1f} GiB"
    return text + (f" ({learnt.text})" if learnt.text else "")


def changed_spec(shape: Architecture, work: Workload, capacity_bytes: float) -> list[str]:
    """Settings of a spec, least harmful first, with which it fits; empty where none do."""
    words: dict[str, str] = {}
    for setting, text, tried in ladder(work):
        words[setting] = text
        if fit.judge(shape, tried, capacity_bytes).fits:
            return list(words.values())
    return []


def ladder(work: Workload) -> Iterator[tuple[str, str, Workload]]:
    """What can be written into a spec; each step builds on those before it. A later text replaces an earlier one."""
    if work.checkpointing != "full":
        work = replace(work, checkpointing="full")
        yield "checkpointing", "train.gradient_checkpointing: true", work
    whole = work.micro_batch * (work.accumulation or 1)
    while work.micro_batch > 1:
        half = work.micro_batch // 2
        work = replace(work, micro_batch=half, accumulation=max(1, round(whole / half)))
        yield "batch", f"train.batch_size: {half} and train.accumulation: {work.accumulation}", work
    if work.method == "full":
        work = replace(work, method="lora", weight_format="bf16" if work.compute == "16-bit" else "fp32")
        yield "method", "method: lora", work
    if work.rank > 8:
        work = replace(work, rank=8)
        yield "rank", "lora.rank: 8", work
    while work.seq_len > SHORTEST:
        work = replace(work, seq_len=max(SHORTEST, work.seq_len // 2))
        yield "length", f"data.max_length: {work.seq_len}", work
