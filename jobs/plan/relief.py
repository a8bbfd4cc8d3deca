"""What to write into a spec that ran out of memory, and what each change saves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jobs.plan import from_spec, host, memory, preflight
from jobs.spec import Spec

LEAST_SHARE = 0.002


@dataclass(frozen=True, slots=True)
class Relief:
    """A line of the spec and the bytes a rank needs less with it and all those before it."""

    setting: str
    saved_bytes: float


def of(spec: Spec, home: Path, cuda: bool) -> tuple[Relief, ...]:
    """Least harmful first, as "make it fit" goes. Raises PlanError for a model that is not known."""
    shape, work = from_spec.architecture(spec, home), from_spec.workload(spec, cuda=cuda)
    forecast = memory.forecast if cuda else host.forecast
    before = forecast(shape, work).device_bytes
    found: list[Relief] = []
    for _name, setting, tried in preflight.ladder(work):
        saved = before - forecast(shape, tried).device_bytes
        if saved - (found[-1].saved_bytes if found else 0.0) > LEAST_SHARE * before:
            found.append(Relief(setting, saved))
    return tuple(found)
