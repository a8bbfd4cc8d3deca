"""Orders on their way: each comes to exactly one reply, whatever happens to the connection."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace

from agent import wire
from console.strings import _


@dataclass(slots=True)
class Pending:
    order: wire.Order
    future: Future[wire.Reply]
    deadline: float
    """Console-monotonic"""
    expiry: threading.Timer
    sent: bool = False


class Outbox:
    """Thread-safe. Callers put orders in, the link's thread takes them out and brings the replies."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._lock = threading.Lock()
        self._pending: dict[str, Pending] = {}
        self._closed = False

    def put(self, body: wire.Body, deadline_s: float, order_id: str | None) -> Future[wire.Reply]:
        """The future of the order's reply; for an id that is already waiting, the same future again."""
        order = wire.Order(order_id or uuid.uuid4().hex, deadline_s, body)
        expiry = threading.Timer(deadline_s, self._expire, (order.id,))
        expiry.daemon = True
        new = Pending(order, Future(), time.monotonic() + deadline_s, expiry)
        new.future.set_running_or_notify_cancel()  # an order that may have been sent cannot be cancelled
        with self._lock:
            closed = self._closed
            pending = new if closed else self._pending.setdefault(order.id, new)
        if closed:
            new.future.set_result(_closed(order.id))
        elif pending is new:
            expiry.start()
            self._changed()
        return pending.future

    @property
    def waiting(self) -> bool:
        """There are orders without a reply."""
        return bool(self._pending)

    def due(self) -> list[wire.Order]:
        """Orders not sent on this connection yet, with the time that is left to them. They count as sent."""
        with self._lock:
            waiting = [pending for pending in self._pending.values() if not pending.sent]
            for pending in waiting:
                pending.sent = True
        now = time.monotonic()
        return [replace(p.order, deadline_s=max(0.1, p.deadline - now)) for p in waiting]

    def reconnected(self) -> None:
        """A new connection: all that is unanswered is sent again, under its old id."""
        with self._lock:
            for pending in self._pending.values():
                pending.sent = False

    def settle(self, reply: wire.Reply) -> None:
        """Bring a reply home; one that nobody waits for is dropped."""
        with self._lock:
            pending = self._pending.pop(reply.order, None)
        if pending:
            pending.expiry.cancel()
            pending.future.set_result(reply)

    def close(self) -> None:
        """Every order without a reply comes to one at once."""
        with self._lock:
            self._closed = True
            unanswered, self._pending = list(self._pending.values()), {}
        for pending in unanswered:
            pending.expiry.cancel()
            pending.future.set_result(_closed(pending.order.id))

    def _expire(self, order: str) -> None:
        with self._lock:
            pending = self._pending.get(order)
        if pending is None:
            return
        if pending.sent:
            error = _("no reply within {s:g} s; the order may still be carried out")
            hint = _("Look at the run: it shows what happened. Giving the same order again is safe.")
        else:
            error = _("the node could not be reached within {s:g} s; the order was not sent")
            hint = _("Give it again once the node is back.")
        self.settle(wire.Reply(order, False, error=error.format(s=pending.order.deadline_s), hint=hint))


def _closed(order: str) -> wire.Reply:
    return wire.Reply(order, False, error=_("the console was closed before a reply came"), hint=_("Look at the run."))
