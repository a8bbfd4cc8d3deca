"""What launch asks before a run starts: does this spec fit these cards, and if not, what would."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jobs.plan import fit, from_spec
from jobs.plan.correction import Correction
from jobs.plan.fit import Verdict
from jobs.plan.memory import GIB
from jobs.spec import Spec


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
    said = f"each card needs about {need / GIB:.1f} of {capacity_bytes / GIB:.1f} GiB"
    if learnt.text:
        said += f" ({learnt.text})"
    if verdict.fits:
        return Preflight(verdict, need, said, "")
    changes = fit.make_it_fit(shape, work, capacity_bytes / learnt.factor)
    steps = ", then ".join(change.text for change in changes or ())
    hint = f"It would fit with: {steps}." if steps else "No setting makes it fit; use larger cards or more of them."
    return Preflight(verdict, need, f"does not fit: {said}", hint)
