"""What measured runs taught about the memory of this machine: one correction for its GPUs, one for its host."""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agent import kept
from agent.events import Events
from agent.forecast import CUDA, HOST
from agent.records import real, whole
from agent.state import StateFolder, user_home
from jobs import durable, progress
from jobs.plan.correction import Correction
from jobs.plan.refusal import PlanError
from jobs.run_folder import RunFolder
from jobs.spec import Spec, SpecError

FIRST_STEPS = 5
"""Memory is read as a step begins: by then gradients, moments and activations have met a few times."""
HEAD_BYTES = 1 << 17
GIB = 1 << 30
TOLD = 200
LOG = logging.getLogger("agent")


def corrections(state: StateFolder) -> dict[str, Correction]:
    """By kind of memory. A file that cannot be read has taught nothing."""
    raw = read(state.lessons)
    return {kind: Correction.from_json(raw[kind]) for kind in (CUDA, HOST) if isinstance(raw.get(kind), dict)}


def read(path: Path) -> dict[str, Any]:
    try:
        return durable.read_json(path) or {}
    except (OSError, ValueError) as error:
        LOG.warning("%s is not used: %s", path, error)
        return {}


@dataclass(frozen=True, slots=True)
class Reading:
    """What the first steps of a run held: bytes of its fullest rank, and the tokens of its longest batch."""

    kind: str
    measured_bytes: int
    batch_tokens: float
    """Of one rank's micro-batch, without padding; an average where there are several"""


@dataclass(slots=True)
class Lessons:
    """Compares each run once, when its first steps are done, and says what came of it."""

    state: StateFolder
    done: set[str] = field(default_factory=set)

    def look(
        self, folder: RunFolder, record: Mapping[str, Any], last: Mapping[str, dict[str, Any]], to: Events
    ) -> None:
        """Cheap until the first steps of a run are done, and afterwards. `last`: its newest record of each kind."""
        step, first = last.get("step", {}).get("step"), last.get("start", {}).get("first_step", 1)
        if folder.name in self.done or not isinstance(step, int) or step < int(first) + FIRST_STEPS:
            return
        self.done.add(folder.name)
        expected = record.get("forecast") or {}
        if not expected.get("need_bytes") or folder.name in (read(self.state.lessons).get("told") or ()):
            return
        try:
            self.compare(folder, record, to)
        except (OSError, SpecError, PlanError) as error:  # the run is none the worse for it
            LOG.warning("memory of %s not compared: %s", folder.name, error)

    def compare(self, folder: RunFolder, record: Mapping[str, Any], to: Events) -> None:
        """Raises OSError, SpecError or PlanError when the run folder or the lessons cannot be read or written."""
        found = reading(folder, record)
        if found is None:
            return
        low, high = expected_bytes(folder, record, found)
        before = corrections(self.state).get(found.kind, Correction())
        after = learnt(before, found.measured_bytes, low, high)
        self.write(found.kind, after, folder.name)
        lengths = "" if high - low < 0.01 * GIB else f" to {high / GIB:.2f}"
        text = (
            f"memory: forecast {low / GIB:.2f}{lengths} GiB, measured {found.measured_bytes / GIB:.2f} GiB, "
            f"correction now x {after.factor:.2f}"
        )
        figures = {"kind": found.kind, "low_bytes": round(low), "high_bytes": round(high)}
        data = {**figures, "measured_bytes": found.measured_bytes, "before": before.factor, "after": after.factor}
        to.add("run.memory", text, "info", folder.name, data)

    def write(self, kind: str, correction: Correction, run: str) -> None:
        raw = read(self.state.lessons)
        told = [str(one) for one in raw.get("told") or () if one != run][-TOLD + 1 :]
        durable.write_json(self.state.lessons, {**raw, kind: correction.to_json(), "told": [*told, run]})


def learnt(before: Correction, measured: float, low: float, high: float) -> Correction:
    """A reading between the forecasts for the shortest and the longest possible batch agrees with both; one outside
    counts against the nearer of them, for lengths that nobody knows must not be taken for the machine's doing.
    """
    return before.learn(measured, min(max(measured, low), high))


def reading(folder: RunFolder, record: Mapping[str, Any]) -> Reading | None:
    """None where the first steps do not tell."""
    steps = [one for one in progress.records(folder.progress, 0, HEAD_BYTES)[0] if one.get("kind") == "step"]
    steps = steps[: FIRST_STEPS + 1]
    used = [whole(one) or 0 for step in steps for one in step.get("memory_bytes") or ()]
    if not used:
        return None
    kind = str(steps[0].get("memory_kind"))
    measured = max(used) if kind == CUDA else peak_resident_bytes(folder)
    tokens = max((real(s.get("tokens_per_s")) or 0.0) * (real(s.get("step_time_s")) or 0.0) for s in steps)
    ranks = whole(record.get("world_size")) or 1
    return Reading(kind, measured, tokens / ranks) if measured else None


def peak_resident_bytes(folder: RunFolder) -> int | None:
    """Of the largest live rank: between steps a process on the CPU shows less than it needed."""
    return max(filter(None, (high_water_bytes(one) for one in kept.rank_records(folder))), default=None)


def high_water_bytes(rank: kept.RankRecord) -> int | None:
    if rank.identity is None or rank.identity.state() != "alive":
        return None
    try:
        found = re.search(r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{rank.identity.pid}/status").read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None


def expected_bytes(folder: RunFolder, record: Mapping[str, Any], found: Reading) -> tuple[float, float]:
    """What is forecast, uncorrected, for the shortest and the longest batch that these tokens may have been."""
    from jobs.plan import from_spec, host, memory  # loaded when there is something to compare

    spec = Spec.parse(folder.spec.read_text(encoding="utf-8"))
    shape = from_spec.architecture(spec, user_home(os.environ))
    work = from_spec.workload(spec, cuda=found.kind == CUDA)
    examples = work.micro_batch * (work.accumulation or 1)
    length = min(work.seq_len, max(1, math.ceil(found.batch_tokens / examples)))
    alone = examples == 1 and (whole(record.get("world_size")) or 1) == 1  # then the length is known exactly

    def peak(tokens: int) -> float:
        tried = replace(work, seq_len=tokens)
        if found.kind == CUDA:
            return memory.forecast(shape, tried).reserved_bytes
        return host.forecast(shape, tried).device_bytes

    return peak(length), peak(length if alone else work.seq_len)
