"""Between two steps: what happened is recorded, rules and orders take effect, on all ranks at the same step."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from transformers import TrainerCallback

from jobs import orders, snapshot
from jobs.failure import JobError
from jobs.orders import Order
from jobs.progress import Progress
from jobs.run_folder import RunFolder
from jobs.snapshot import SnapshotError
from jobs.spec import Spec
from jobs.train import rollback
from jobs.train.exchange import Exchange
from jobs.train.log import Log
from jobs.train.passage import Passage
from jobs.train.rank import say
from jobs.train.rollback import IN_PLACE, Target
from jobs.train.rules import Watch
from jobs.train.stream import Stream
from jobs.train.vault import Vault
from jobs.train.work import Forward


@dataclass(frozen=True, slots=True)
class Ending:
    """Why training ends before its last step. A paused run publishes nothing: it is to be resumed."""

    detail: str
    paused: bool = False


class Helm(TrainerCallback):
    """`progress` is None on all ranks but 0: one rank writes, all act."""

    def __init__(
        self,
        spec: Spec,
        folder: RunFolder,
        stream: Stream,
        exchange: Exchange,
        progress: Progress | None,
        vault: Vault,
        passage: Passage,
        log: Log,
        forward: Forward,
    ) -> None:
        self._spec, self._folder, self._stream, self._exchange = spec, folder, stream, exchange
        self._forward = forward
        self._progress, self._vault, self._passage, self._log = progress, vault, passage, log
        self._watch = Watch(spec.rules)
        self.ending: Ending | None = None
        self.warming = False

    def warm_up(self) -> None:
        """The first `train()` makes one step that counts for nothing, before a resume.

        DDP puts its gradients into other buckets after the first step of a process, which changes the order of sums
        among three and more ranks; the undisturbed training had done so long ago.
        """
        self.warming = True

    @property
    def turns_back(self) -> bool:
        """Whether `train()` has to be called (again) for a rollback or a resume."""
        return self._passage.pending

    def on_train_begin(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        if self._passage.pending and not self.warming:
            self._go()
            if state.global_step >= state.max_steps:
                self._stream.end()
        elif not self._passage.pending:
            self._vault.hold()
        self._log.step_begins()

    def on_step_begin(self, _args: Any, _state: Any, _control: Any, **_: Any) -> None:
        waiting = self._progress is not None and bool(orders.names(self._folder))
        own = self._stream.taken_tokens(), self._stream.taken_s(), self._forward.taken_s()
        self._exchange.start(waiting, self._vault.busy, *own)

    def on_pre_optimizer_step(self, _args: Any, _state: Any, _control: Any, **_: Any) -> None:
        self._vault.settle()

    def on_log(self, _args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        """The boundary. Trainer calls this after each step (logging_steps=1) and, without a loss, once at its end."""
        if not logs or "loss" not in logs:
            return
        heard = self._exchange.finish()
        if self.warming:
            self.warming, control.should_training_stop = False, True
            return
        step = state.global_step
        self._log.step(state, logs, heard)
        state.log_history.clear()
        self._judge(step, logs)
        if heard.order:
            for order in self._exchange.agree(self._log.waiting_orders() if self._progress else None):
                if self.ending is None and not self._passage.pending:
                    self._obey(order, state.global_step)
        every = self._spec.snapshots.every
        if every and step % every == 0 and state.global_step == step and not self._passage.pending:
            self._regular(step, heard.busy)
        if self.ending is not None or self._passage.pending:
            self._vault.settle()
            control.should_training_stop = True
        self._log.step_begins()

    def _judge(self, step: int, logs: dict[str, float]) -> None:
        verdict = self._watch.judge(step, logs["loss"], logs.get("grad_norm", 0.0))
        if verdict is None:
            return
        if verdict.action == "ignore":
            self._log.warn(verdict.symptom)
        elif verdict.action == "stop":
            raise JobError(
                verdict.symptom,
                "Roll back to a snapshot before that step with a lower rate, or look at the data there.",
            )
        else:
            self._log.warn(f"{verdict.symptom}: rolling back by rule")
            outcome, message = self._turn_back(step, {"skip_data": self._spec.rules.skip_data}, None)
            if outcome != "done":
                raise JobError(f"{verdict.symptom}; {message}", "Resume from an older snapshot with a lower rate.")

    def _regular(self, step: int, busy: bool) -> None:
        name = snapshot.name_of(self._vault.lineage.branch, step)
        if name == self._vault.last:  # an order was quicker
            return
        if not busy:
            self._vault.take("interval", self._watch.recent_loss, _said)
        elif self._progress is not None:
            self._progress.write("snapshot", name=name, step=step, reason="interval", state="merged")

    def _obey(self, order: Order, step: int) -> None:
        self._log.begins(order)
        if order.verb == "rollback":
            outcome, message = self._turn_back(step, order.args, order)
            if outcome != "done":
                self._log.answer(order, outcome, message, step)
        elif order.verb == "snapshot":
            self._vault.take("order", self._watch.recent_loss, lambda good, text: self._kept(order, step, good, text))
        else:
            self._leave(order, step)

    def _kept(self, order: Order, step: int, good: bool, text: str) -> None:
        if good and order.args.get("pin"):
            snapshot.pin(self._folder, text, True)
        message = f"snapshot {text} is verified on disk" if good else text
        self._log.answer(order, "done" if good else "failed", message, step, **({"snapshot": text} if good else {}))

    def _leave(self, order: Order, step: int) -> None:
        """Stop and pause both keep the state first; only stop goes on when that fails."""
        heard: list[tuple[bool, str]] = []
        self._vault.take(order.verb, self._watch.recent_loss, lambda good, text: heard.append((good, text)))
        self._vault.wait()
        good, text = self._exchange.agree(heard[0] if heard else None)
        if order.verb == "pause" and not good:
            self._log.answer(order, "failed", f"not paused, training goes on: {text}", step)
            return
        detail = f"{'paused' if order.verb == 'pause' else 'stopped'} at step {step}"
        self.ending = Ending(f"{detail}, {'resumes from ' + text if good else text}", order.verb == "pause")
        self._log.answer(order, "done", self.ending.detail, step, **({"snapshot": text} if good else {}))

    def _turn_back(self, step: int, args: dict[str, Any], order: Order | None) -> tuple[str, str]:
        """Outcome and message; with "done" the rollback has been made or is the next thing to happen."""
        began_s = time.monotonic()
        chosen: Target | str | None = None
        if self._progress is not None:
            try:
                chosen = rollback.choose(self._folder, self._vault.lineage, self._vault.held, step, args)
            except SnapshotError as wrong:
                chosen = str(wrong)
        target = self._exchange.agree(chosen)
        if isinstance(target, str):
            return "refused", target
        self._passage.prepare(target, step, args, order, began_s)
        if target.way == IN_PLACE:
            self._go()
        return "done", ""

    def _go(self) -> None:
        arrival = self._passage.go()
        self._watch.forget_after(arrival.step)
        self._watch.expect(arrival.step, arrival.loss)
        if arrival.changed:
            # the new rate or place in the data is in no snapshot yet, and a crash must not take it back
            self._vault.take("rollback", self._watch.recent_loss, _said)


def _said(good: bool, text: str) -> None:
    if good:
        say(f"snapshot {text}")
