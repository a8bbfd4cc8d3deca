"""Orders by id: written down before they are carried out, so the same id never does anything twice."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from dataclasses import asdict
from typing import Any

from agent import codec, refusal, wire
from agent.audit import Audit
from agent.desk import Desk
from agent.events import Events
from agent.journal import Journal
from agent.refusal import Refusal
from agent.state import StateFolder
from agent.wire import Order, Reply
from jobs.run_folder import ORDER_ID
from jobs.section import SpecError

KEPT = 1000
"""Orders whose outcome is known by their id; each takes two entries."""
SLACK = 200
DEADLINE_LIMIT_S = 24 * 3600.0
LOG = logging.getLogger("agent")


class OrderBook:
    """All orders of all consoles. An order whose outcome is known is answered from the book."""

    def __init__(self, state: StateFolder, desk: Desk, events: Events) -> None:
        """Raises OSError when the journal cannot be read or made."""
        self.desk, self.events = desk, events
        self.journal, self.audit = Journal(state.orders), Audit(state)
        self.replies: dict[str, Reply] = {}
        self.digests: dict[str, str] = {}
        self.running: dict[str, asyncio.Task[Reply]] = {}
        self.journal.keep(2 * KEPT)
        entries = self.journal.entries()
        self.written = len(entries)
        for entry in entries:
            self.recall(entry)

    def recall(self, entry: dict[str, Any]) -> None:
        """An order accepted but not answered is carried out again when asked again: it finds what it did before."""
        order = str(entry.get("id"))
        if "digest" in entry:
            self.digests[order] = str(entry["digest"])
        if "reply" in entry:
            self.replies[order] = codec.unpack(Reply, entry["reply"])

    async def take(self, order: Order, operator: str, read_only: bool) -> Reply:
        """The one Reply, within the order's deadline. What was begun goes on; the same id asks for its outcome."""
        if not ORDER_ID.fullmatch(order.id):
            return Reply(order.id[:64], False, error=f"{order.id[:64]!r} is not an order id")
        if not isinstance(order.body, wire.DESTRUCTIVE):
            return await self.within(order, asyncio.ensure_future(self.answer(order, operator)))
        if read_only:
            reply = Reply(order.id, False, error="this connection is read-only", hint="Ask somebody who may.")
            await asyncio.to_thread(self.note, order, operator, reply)
            return reply
        digest = hashlib.sha256(codec.encode(order.body)).hexdigest()
        if self.digests.get(order.id, digest) != digest:
            return Reply(order.id, False, error=f"order {order.id} was something else before", hint="Use a new id.")
        if order.id in self.replies:
            return self.replies[order.id]
        if order.id not in self.running:
            self.running[order.id] = asyncio.ensure_future(self.begin(order, operator, digest))
        return await self.within(order, self.running[order.id])

    async def within(self, order: Order, task: asyncio.Task[Reply]) -> Reply:
        deadline = max(0.0, min(order.deadline_s, DEADLINE_LIMIT_S))
        done, _ = await asyncio.wait([task], timeout=deadline)
        if done:
            return outcome(order, task)
        return Reply(
            order.id,
            False,
            error=f"not finished within {deadline:.0f} s",
            hint="It goes on; ask again with the same order id for its outcome.",
        )

    async def begin(self, order: Order, operator: str, digest: str) -> Reply:
        try:
            accepted = {"id": order.id, "digest": digest, "operator": operator, "unix": time.time()}
            await asyncio.to_thread(self.journal.append, {**accepted, "body": codec.pack(order.body)})
            self.digests[order.id] = digest
        except OSError as error:
            if not isinstance(order.body, wire.Kill):  # ending a run is safe to repeat and may be what frees the disk
                failed = refusal.of_os_error(error, "cannot write the order down")
                return self.finish(order, operator, Reply(order.id, False, error=failed.message, hint=failed.hint))
        answering = asyncio.ensure_future(self.answer(order, operator))
        await asyncio.wait([answering])
        return await asyncio.to_thread(self.finish, order, operator, outcome(order, answering))

    def finish(self, order: Order, operator: str, reply: Reply) -> Reply:
        """Writes the outcome down, as far as the disk takes it, and remembers it."""
        self.running.pop(order.id, None)
        self.replies[order.id] = reply
        try:
            self.journal.append({"id": order.id, "reply": codec.pack(reply)})
            self.prune()
        except OSError as error:
            LOG.warning("outcome of order %s not written: %s", order.id, error)
        self.note(order, operator, reply)
        return reply

    def prune(self) -> None:
        """Rarely, for it rewrites the journal. What the oldest orders came to is forgotten."""
        self.written += 2
        if self.written < 2 * (KEPT + SLACK):
            return
        self.written = 2 * KEPT
        self.journal.keep(2 * KEPT)
        for known in (self.replies, self.digests):
            for order in [one for one in list(known)[:-KEPT] if one not in self.running]:
                known.pop(order, None)

    def note(self, order: Order, operator: str, reply: Reply) -> None:
        """Who did what, with which outcome."""
        entry = self.audit.note(order, operator, reply)
        text = " ".join(str(word) for word in (entry["verb"], entry["run"]) if word)
        severity = "info" if reply.ok else "warn"
        self.events.add("run.order", f"{operator}: {text}: {entry['outcome']}", severity, entry["run"], asdict(reply))

    async def answer(self, order: Order, operator: str) -> Reply:
        """The outcome in words for everything that may go wrong with an order."""
        try:
            return Reply(order.id, True, await self.desk.carry_out(order, operator))
        except Refusal as error:
            return Reply(order.id, False, error.result, error.message, error.hint)
        except SpecError as error:
            where = f"{error.file}:{error.line}: " if error.line else f"{error.file}: "
            place = {"file": error.file, "line": error.line}
            return Reply(order.id, False, place, error=where + error.message, hint=error.hint)
        except OSError as error:
            failed = refusal.of_os_error(error, f"cannot {type(order.body).__name__.lower()}")
            return Reply(order.id, False, error=failed.message, hint=failed.hint)


def outcome(order: Order, task: asyncio.Task[Reply]) -> Reply:
    """The task's Reply; a fault of ours is logged whole and answered, for a console must not wait for what died."""
    fault = task.exception()
    if fault is None:
        return task.result()
    LOG.error("order %s failed", order, exc_info=fault)
    return Reply(order.id, False, error=f"the agent failed: {type(fault).__name__}: {fault}", hint="See serve.log.")
