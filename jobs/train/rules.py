"""What the job does by itself when the loss goes wrong."""

from __future__ import annotations

import math
import statistics
from collections import deque
from dataclasses import dataclass

from jobs.settings import Rules

_WINDOW = 20  # steps whose median a spike is measured against
_FEWEST = 5  # steps before a spike can be called one
_FIRST, _JUMP, _SLACK = 3, 1.5, 0.5  # steps after a resume whose mean may be this much above what it was before
_RECENT = 5  # steps whose mean stands for "the loss" in a snapshot


@dataclass(frozen=True, slots=True)
class Verdict:
    """`action`: rollback, stop or ignore."""

    action: str
    symptom: str


class Watch:
    """Sees each step's loss. All ranks feed it the same numbers, so all come to the same verdict."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._losses: deque[tuple[int, float]] = deque(maxlen=_WINDOW)
        self._rollbacks = 0
        self._expected: tuple[int, float] | None = None

    def expect(self, step: int, loss: float | None) -> None:
        """What the loss should be about from `step` on, after a resume: another one means that not all was loaded."""
        self._expected = None if loss is None or not math.isfinite(loss) else (step, loss)

    @property
    def recent_loss(self) -> float | None:
        """Mean of the last steps, which may be NaN; None before the first."""
        last = [loss for _, loss in self._losses][-_RECENT:]
        return statistics.fmean(last) if last else None

    def judge(self, step: int, loss: float, grad_norm: float) -> Verdict | None:
        """The verdict on a step, None when nothing is wrong with it."""
        before = [value for _, value in self._losses if math.isfinite(value)]
        self._losses.append((step, loss))
        if not (math.isfinite(loss) and math.isfinite(grad_norm)):
            return self._limited(self._rules.on_nan, f"loss {loss:g}, gradient norm {grad_norm:g} at step {step}")
        if len(before) >= _FEWEST and loss > self._rules.spike_factor * statistics.median(before):
            usual = statistics.median(before)
            return self._limited(self._rules.on_spike, f"loss {loss:.3f} at step {step}, usual was {usual:.3f}")
        return self._continuity(step)

    def _continuity(self, step: int) -> Verdict | None:
        if self._expected is None or step < self._expected[0] + _FIRST:
            return None
        (start, before), self._expected = self._expected, None
        now = statistics.fmean([loss for at, loss in self._losses if at > start])
        if now <= before * _JUMP + _SLACK:
            return None
        symptom = (
            f"loss is {now:.3f} after the resume at step {start}, before it was {before:.3f}: was all of it loaded?"
        )
        return Verdict("ignore", symptom)

    def _limited(self, action: str, symptom: str) -> Verdict:
        if action != "rollback":
            return Verdict(action, symptom)
        self._rollbacks += 1
        if self._rollbacks > self._rules.max_rollbacks:
            return Verdict("stop", f"{symptom}, after {self._rules.max_rollbacks} rollbacks by rule")
        return Verdict(action, symptom)

    def forget_after(self, step: int) -> None:
        """Losses of abandoned steps are no measure for what follows."""
        kept = [pair for pair in self._losses if pair[0] <= step]
        self._losses = deque(kept, maxlen=_WINDOW)
