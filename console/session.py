"""One sitting at the console: the links to all nodes, what they told, and the orders given.

Screens and commands use the same Session. Nothing here waits: links run on their own threads, `pump` moves what they
heard into the fleet, orders come back as futures.
"""

from __future__ import annotations

import gc
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from agent import wire
from console.fleet import Fleet, History, LinkView, LogTail, Node
from console.refusal import Question

LOG_START_BYTES = 65536
"""How much of a log's end is read at first."""
MANY, GC_THRESHOLD = 300, 20_000
"""The model of many nodes is millions of objects, none in a cycle; going through them at every turn finds nothing."""
Heard = tuple[str, "wire.FromAgent | LinkView"]
Inbox = deque[Heard]


class Conversation(Protocol):
    """What a session needs of a link."""

    def order(self, body: wire.Body, deadline_s: float, order_id: str | None = None) -> Future[wire.Reply]: ...

    def answer(self, question: Question, text: str) -> None: ...

    def close(self) -> None: ...


Connect = Callable[[str, Inbox], Conversation]
"""Starts the link to the node of that name; it reports into the inbox. Must not block."""


@dataclass(frozen=True, slots=True)
class DemoOffer:
    """The one thing a newcomer is invited to do."""

    node: str
    spec_text: str
    note: str


@dataclass(slots=True)
class Reader:
    """Reads one growing file of a node, slice by slice, one question in flight."""

    node: Node
    question: Callable[[], wire.Body]
    take: Callable[[dict[str, Any]], bool]
    """Takes in an answer; True when nothing more was there."""
    future: Future[wire.Reply] | None = None
    level: int = -1
    complete: bool = False

    def collect(self) -> bool:
        """Take in the answer if it has come. True when it brought something to show."""
        if self.future is None or not self.future.done():
            return False
        reply, self.future = self.future.result(), None
        if reply.ok:
            self.complete = self.take(reply.result)
        return reply.ok

    def due(self) -> bool:
        """Without pause while catching up, then once for each level: what a node can know changes no faster."""
        return (
            self.future is None
            and self.node.link.phase == "live"
            and self.node.level > 0
            and (not self.complete or self.level != self.node.level)
        )


class Session:
    def __init__(self, names: Iterable[str], connect: Connect, demo: DemoOffer | None = None) -> None:
        self.demo = demo
        self.inbox: Inbox = deque()
        now = time.monotonic()
        self.fleet = Fleet({name: Node(name, LinkView("connecting", now)) for name in names})
        self.connect = connect
        self.links: dict[str, Conversation] = {}
        self.readers: dict[object, Reader] = {}
        self.listeners: list[Callable[[str, wire.FromAgent | LinkView], None]] = []
        """Told of everything that is heard, in order, before it is taken in"""

    def start(self) -> None:
        if len(self.fleet.nodes) > MANY:
            gc.set_threshold(GC_THRESHOLD)
        self.links = {name: self.connect(name, self.inbox) for name in self.fleet.nodes}

    def close(self) -> None:
        """Ends all links; runs go on. Returns at once."""
        for link in self.links.values():
            link.close()

    def pump(self) -> bool:
        """Move what the links heard into the fleet and ask for more of what is followed. True when anything changed."""
        heard = len(self.inbox)
        for _ in range(heard):
            self.take(*self.inbox.popleft())
        read = [reader.collect() for reader in self.readers.values()]
        for reader in self.readers.values():
            if reader.due():
                reader.level = reader.node.level
                reader.future = self.ask(reader.node.name, reader.question())
        return heard > 0 or any(read)

    def take(self, name: str, message: wire.FromAgent | LinkView) -> None:
        for listen in self.listeners:
            listen(name, message)
        node = self.fleet.nodes[name]
        if isinstance(message, LinkView):
            node.link = message
            return
        try:
            self.fleet.apply(name, message, time.monotonic(), time.time())
        except wire.Malformed as error:
            node.link = LinkView(
                "live", time.monotonic(), f"{name} sent something that is no state: {error}", kind="garbled"
            )

    def ask(
        self, node: str, body: wire.Body, deadline_s: float = 30.0, order_id: str | None = None
    ) -> Future[wire.Reply]:
        """Give an order. The same `order_id` again asks for the outcome of the first; nothing happens twice."""
        return self.links[node].order(body, deadline_s, order_id or uuid.uuid4().hex)

    def answer(self, node: str, question: Question, text: str) -> None:
        """What the user says to a link's question. All that ask the same go on, and ask again if it was wrong."""
        now = time.monotonic()
        for other in self.fleet.nodes.values():
            asked = other.link.question
            if asked is not None and (asked.kind, asked.subject) == (question.kind, question.subject):
                other.link = LinkView("connecting", now, via=other.link.via)
        self.links[node].answer(question, text)

    def follow(self, node: str, run: str) -> History:
        """A run's progress history, kept up to date until `unfollow`."""
        history = self.fleet.histories.setdefault((node, run), History())

        def take(answer: dict[str, Any]) -> bool:
            history.add(answer.get("records") or [])
            history.offset = int(answer.get("next") or 0)
            history.complete = history.offset >= int(answer.get("size") or 0)
            return history.complete

        self.read(
            ("history", node, run), Reader(self.fleet.nodes[node], lambda: wire.Progress(run, history.offset), take)
        )
        return history

    def unfollow(self, node: str, run: str) -> None:
        self.readers.pop(("history", node, run), None)
        self.fleet.histories.pop((node, run), None)

    def tail(self, node: str, run: str, rank: int | None) -> LogTail:
        """The end of a log, kept up to date until `untail`; rank None is the launcher's."""
        tail = self.fleet.tails.setdefault((node, run, rank), LogTail(rank))

        def take(answer: dict[str, Any]) -> bool:
            tail.add(str(answer.get("text") or ""))
            tail.offset, tail.size = int(answer.get("next") or 0), int(answer.get("size") or 0)
            tail.ranks = tuple(answer.get("ranks") or ())
            tail.complete = tail.offset >= tail.size
            return tail.complete

        def question() -> wire.Body:
            return wire.Logs(run, rank, -LOG_START_BYTES if tail.offset is None else tail.offset)

        self.read(("tail", node, run, rank), Reader(self.fleet.nodes[node], question, take))
        return tail

    def untail(self, node: str, run: str, rank: int | None) -> None:
        self.readers.pop(("tail", node, run, rank), None)
        self.fleet.tails.pop((node, run, rank), None)

    def read(self, key: object, reader: Reader) -> None:
        self.readers.setdefault(key, reader)
