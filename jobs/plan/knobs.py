"""Which knob moves what by how much: every single change, applied alone."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from jobs.plan import fit, memory
from jobs.plan.architecture import Architecture
from jobs.plan.workload import Workload


@dataclass(frozen=True, slots=True)
class Move:
    """A change on its own: bytes it saves on the device per card (negative: it costs), and what it costs otherwise."""

    text: str
    cost: str
    saved_bytes: float
    work: Workload


def moves(shape: Architecture, work: Workload) -> tuple[Move, ...]:
    """All single changes that move the peak, the largest saving first."""
    before = memory.forecast(shape, work).device_bytes
    found: list[Move] = []
    last = work
    for change in fit.changes(work):
        alone = _alone(work, last, change.work)
        last = change.work
        if alone is None:
            continue
        saved = before - memory.forecast(shape, alone).device_bytes
        if abs(saved) > 0.001 * before:
            found.append(Move(change.text, change.cost, saved, alone))
    return tuple(sorted(found, key=lambda move: -move.saved_bytes))


def _alone(work: Workload, before: Workload, after: Workload) -> Workload | None:
    """The one step from ``before`` to ``after`` applied to ``work``; None where it needs the steps before it."""
    step = {
        f.name: getattr(after, f.name) for f in fields(Workload) if getattr(after, f.name) != getattr(before, f.name)
    }
    base = {name: getattr(before, name) for name in step}
    if any(getattr(work, name) != value for name, value in base.items()):
        return None
    return (
        replace(work, **step)
        if step.get("offload", "none") == "none" or work.sharding.startswith(("zero", "fsdp"))
        else None
    )
