"""Between two steps: what happened is recorded, and orders take effect, on all ranks at the same step."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

from transformers import TrainerCallback

from jobs import orders
from jobs.failure import JobError
from jobs.orders import Order
from jobs.progress import Progress
from jobs.run_folder import RunFolder
from jobs.spec import Spec
from jobs.train.exchange import Exchange, Heard
from jobs.train.stream import Stream


@dataclass(slots=True)
class Course:
    """Why training ends; None while it goes on."""

    ending: str | None = None
    detail: str = ""


class Helm(TrainerCallback):
    """`progress` is None on all ranks but 0: one rank writes, all act."""

    def __init__(
        self,
        spec: Spec,
        folder: RunFolder,
        stream: Stream,
        exchange: Exchange,
        progress: Progress | None,
        examples: int,
    ) -> None:
        self._spec, self._folder, self._stream, self._exchange = spec, folder, stream, exchange
        self._progress, self._examples = progress, examples
        self._step_began_s = 0.0
        self.course = Course()

    def on_train_begin(self, _args: Any, _state: Any, _control: Any, **_: Any) -> None:
        self._step_began_s = time.monotonic()

    def on_step_begin(self, _args: Any, _state: Any, _control: Any, **_: Any) -> None:
        waiting = self._progress is not None and bool(orders.names(self._folder))
        self._exchange.start(waiting, self._stream.taken_tokens())

    def on_log(self, _args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        """The boundary. Trainer calls this after each step (logging_steps=1) and, without a loss, once at its end."""
        if not logs or "loss" not in logs:
            return
        heard = self._exchange.finish()
        self._record(state, logs, heard, time.monotonic() - self._step_began_s)
        self._check(state.global_step, logs)
        if heard.order:
            for order in self._exchange.agree(orders.pending(self._folder) if self._progress else None):
                self._obey(order, state.global_step)
        control.should_training_stop |= self.course.ending is not None
        self._step_began_s = time.monotonic()

    def _record(self, state: Any, logs: dict[str, float], heard: Heard, step_time_s: float) -> None:
        if self._progress is None:
            return
        loss, rate = logs["loss"], logs["learning_rate"]
        tokens_per_s = heard.tokens / step_time_s
        self._progress.write(
            "step",
            step=state.global_step,
            total_steps=state.max_steps,
            epoch=round(self._stream.position / self._examples, 4),
            loss=loss,
            learning_rate=rate,
            grad_norm=logs.get("grad_norm"),
            tokens_per_s=round(tokens_per_s, 2),
            step_time_s=round(step_time_s, 6),
            memory_bytes=heard.memory_bytes,
            memory_kind=self._exchange.memory_kind,
        )
        print(
            f"step {state.global_step}/{state.max_steps} loss {loss:.4f} lr {rate:.3e}"
            f" {tokens_per_s:.0f} tokens/s {step_time_s:.2f} s/step",
            flush=True,
        )

    def _check(self, step: int, logs: dict[str, float]) -> None:
        if math.isfinite(logs["loss"]) and math.isfinite(logs.get("grad_norm", 0.0)):
            return
        if self._spec.rules.on_nan == "ignore":
            self._warn(f"loss or gradient norm is not a number at step {step}")
            return
        raise JobError(
            f"loss is {logs['loss']}, gradient norm {logs.get('grad_norm')} at step {step}",
            "Lower train.learning_rate, check the data near that step, or set rules.on_nan: rollback.",
        )

    def _warn(self, message: str) -> None:
        if self._progress is not None:
            self._progress.write("warning", message=message)
        print(f"warning: {message}", flush=True)

    def _obey(self, order: Order, step: int) -> None:
        if order.verb == "stop":
            self.course = Course("stopped", f"stopped by order at step {step}")
            self._answer(order, "done", f"stopping after step {step}", step)
        else:
            self._answer(order, "refused", f"{order.verb} is not possible in this run", step)

    def _answer(self, order: Order, outcome: str, message: str, step: int) -> None:
        if self._progress is None:
            return
        orders.reply(self._folder, order.id, outcome, message, step)
        self._progress.write("order", order=order.id, verb=order.verb, outcome=outcome, step=step)
