"""The way from one state to another: loads it, puts it in force, records the branch that begins there."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from transformers import Trainer

from jobs import snapshot
from jobs.orders import Order
from jobs.progress import Progress
from jobs.train import resume, stored
from jobs.train.log import Log
from jobs.train.rank import Rank, say
from jobs.train.resume import WEIGHTS_ONLY, Plan
from jobs.train.rollback import IN_PLACE, Target, settle_in_place
from jobs.train.state import TrainingState
from jobs.train.stored import Whole
from jobs.train.stream import Stream
from jobs.train.vault import Vault


@dataclass(frozen=True, slots=True)
class _Rollback:
    target: Target
    from_step: int
    args: dict[str, Any]
    order: Order | None
    began_s: float


@dataclass(frozen=True, slots=True)
class Arrival:
    """`changed`: the state there differs from the snapshot's, by another learning rate or place in the data.

    `loss`: what it was about when the snapshot was taken, told on a resume.
    """

    step: int
    changed: bool
    loss: float | None = None


class Passage:
    """All ranks prepare the same and go at the same step."""

    def __init__(
        self,
        rank: Rank,
        trainer: Trainer,
        state: TrainingState,
        stream: Stream,
        vault: Vault,
        progress: Progress | None,
        log: Log,
    ) -> None:
        self._rank, self._trainer, self._state = rank, trainer, state
        self._stream, self._vault, self._progress, self._log = stream, vault, progress, log
        self._next: _Rollback | Plan | None = None
        self._began_s = time.monotonic()

    @property
    def pending(self) -> bool:
        return self._next is not None

    def prepare(
        self, target: Target, from_step: int, args: dict[str, Any], order: Order | None, began_s: float
    ) -> None:
        self._next = _Rollback(target, from_step, args, order, began_s)

    def prepare_resume(self, plan: Plan) -> None:
        self._next = plan

    def go(self) -> Arrival:
        """Carries out what was prepared. Raises JobError or SnapshotError; then the state may be half changed."""
        self._vault.settle()
        following, self._next = self._next, None
        if isinstance(following, Plan):
            return self._resume(following)
        assert following is not None
        return self._roll_back(following)

    def _roll_back(self, back: _Rollback) -> Arrival:
        target, skipped_to = back.target, self._stream.position
        self._put(self._whole(target))
        if target.way == IN_PLACE:
            settle_in_place(self._trainer)
        if back.args.get("skip_data"):
            self._stream.seek(skipped_to)
        if back.args.get("lr") is not None:
            self._state.set_learning_rate(float(back.args["lr"]))
        old = self._vault.lineage
        # the present branch has always the highest number in use
        self._vault.lineage = old.fork(target.branch, target.step, old.branch + 1)
        self._recorded(
            "rollback",
            from_step=back.from_step,
            to_step=target.step,
            new_branch=self._vault.lineage.branch,
            snapshot=target.name,
            method=target.way,
            source="memory" if target.in_memory else "disk",
            seconds=round(time.monotonic() - back.began_s, 6),
            skip_data=bool(back.args.get("skip_data")),
            learning_rate=back.args.get("lr"),
        )
        message = f"rolled back from step {back.from_step} to {target.step} ({target.name})"
        for note in target.notes:
            self._log.warn(note)
        if back.order is not None:
            self._log.answer(back.order, "done", message, target.step, snapshot=target.name, method=target.way)
        else:
            say(message)
        return Arrival(target.step, bool(back.args.get("skip_data")) or back.args.get("lr") is not None)

    def _whole(self, target: Target) -> Whole:
        if target.in_memory:
            assert self._vault.held is not None
            return self._vault.held.whole
        return stored.load(snapshot.read(self._rank.folder, target.name), self._rank.number)

    def _put(self, whole: Whole) -> None:
        self._state.restore(whole.weights, whole.moments, whole.course, whole.drawn)

    def _resume(self, plan: Plan) -> Arrival:
        whole = stored.load(plan.found, self._rank.number)
        if plan.label == WEIGHTS_ONLY:
            self._state.restore_weights(whole.weights)
        else:
            self._put(whole)
        step = plan.first_step
        self._vault.lineage = plan.lineage
        self._vault.hold()
        self._recorded(
            "resume",
            from_step=plan.from_step,
            to_step=step,
            new_branch=plan.lineage.branch,
            snapshot=plan.found.name,
            badge=plan.label,
            reasons=plan.reasons,
            seconds=round(time.monotonic() - self._began_s, 6),
            import_s=self._rank.import_s,
        )
        if plan.label != resume.EXACT:
            self._log.warn(f"resumed {plan.label}: {_listed(plan.reasons)}")
        return Arrival(step, False, plan.found.loss)

    def _recorded(self, kind: str, **fields: Any) -> None:
        if self._progress is not None:
            self._progress.branch = self._vault.lineage.branch
            self._progress.write(kind, lineage=self._vault.lineage.to_json(), **fields)


def _listed(reasons: Sequence[str]) -> str:
    return "; ".join(reasons)
