"""What rank 0 writes about each step and each order. On the other ranks it writes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from jobs import orders
from jobs.durable import DISK_FULL
from jobs.orders import Order
from jobs.progress import Progress
from jobs.run_folder import RunFolder
from jobs.train.exchange import Heard
from jobs.train.rank import say
from jobs.train.stream import Stream


class Log:
    def __init__(
        self, folder: RunFolder, stream: Stream, progress: Progress | None, examples: int, memory_kind: str
    ) -> None:
        """`examples` in one epoch."""
        self._folder, self._stream, self._progress = folder, stream, progress
        self._examples, self._memory_kind = examples, memory_kind
        self._began_s = time.monotonic()
        self._under_way: set[str] = set()
        self._unsent: dict[str, Callable[[], None]] = {}

    def step_begins(self) -> None:
        """What happened since the last step, a snapshot or a rollback, is no part of the next one's time."""
        self._began_s = time.monotonic()

    def step(self, state: Any, logs: dict[str, float], heard: Heard) -> None:
        if self._progress is None:
            return
        self._send()
        step_time_s = time.monotonic() - self._began_s
        tokens_per_s = heard.tokens / step_time_s
        self._progress.write(
            "step",
            step=state.global_step,
            total_steps=state.max_steps,
            epoch=round(self._stream.position / self._examples, 4),
            loss=logs["loss"],
            learning_rate=logs["learning_rate"],
            grad_norm=logs.get("grad_norm"),
            tokens_per_s=round(tokens_per_s, 2),
            step_time_s=round(step_time_s, 6),
            memory_bytes=heard.memory_bytes,
            memory_kind=self._memory_kind,
            data_s=heard.data_s,
            forward_s=heard.forward_s,
        )
        say(
            f"step {state.global_step}/{state.max_steps} loss {logs['loss']:.4f} lr {logs['learning_rate']:.3e}"
            f" {tokens_per_s:.0f} tokens/s {step_time_s:.2f} s/step"
        )

    def warn(self, message: str) -> None:
        if self._progress is not None:
            self._progress.write("warning", message=message)
        say(f"warning: {message}")

    def waiting_orders(self) -> list[Order]:
        """Oldest first, without those under way: a snapshot is answered when it is written, some steps later."""
        return orders.pending(self._folder, self._under_way)

    def begins(self, order: Order) -> None:
        self._under_way.add(order.id)

    def answer(self, order: Order, outcome: str, message: str, step: int, **more: Any) -> None:
        if self._progress is None:
            return
        self._unsent[order.id] = partial(orders.reply, self._folder, order.id, outcome, message, step, **more)
        self._send()
        self._progress.write("order", order=order.id, verb=order.verb, outcome=outcome, step=step)
        say(f"order {order.verb}: {outcome}: {message}")

    def _send(self) -> None:
        """Answers go out as soon as the disk takes them; a full one must not end the training."""
        for name, reply in list(self._unsent.items()):
            try:
                reply()
            except OSError as wrong:
                if wrong.errno not in DISK_FULL:
                    raise
                return
            self._unsent.pop(name, None)
            self._under_way.discard(name)

    def refuse_rest(self, step: int) -> None:
        """Orders that came after the last step would otherwise wait for ever."""
        for order in self.waiting_orders() if self._progress is not None else ():
            self.answer(order, "refused", "the run has ended", step)
