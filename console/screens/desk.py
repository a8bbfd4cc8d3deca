"""What all screens share: the session, the orders in flight, and whether the screen is held still."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from agent import wire
from console.checked import Checked
from console.fleet import Fleet, History, LinkView, LogTail, Node, Run
from console.session import Session

Answer = Callable[[wire.Reply], None]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pending:
    """Something in flight: an order, a transfer."""

    label: Callable[[], str]
    since_monotonic: float
    future: Future[Any]
    answer: Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class Origin:
    """The snapshot that a fork begins with."""

    node: str
    run: str
    snapshot: str


@dataclass(frozen=True, slots=True)
class Draft:
    """A spec being written; kept when its screen is left."""

    node: str | None
    text: str
    name: str = "spec.yaml"
    origin: Origin | None = None


@dataclass(slots=True)
class Desk:
    session: Session | None = None
    """None until it is open"""
    trouble: str = ""
    """Why it could not be opened"""
    paused: bool = False
    draft: Draft | None = None
    checked: dict[str, Checked] = field(default_factory=dict)
    """By node: what its checks came to the last time"""
    checking: set[str] = field(default_factory=set)
    """Nodes whose checks are under way"""
    look_at: str = ""
    """The node whose checks are to be shown next"""
    pending: list[Pending] = field(default_factory=list)
    nothing: Fleet = field(default_factory=Fleet)
    """What is shown until then: the nodes by name"""
    uses: Counter[tuple[str, str, int | str | None]] = field(default_factory=Counter)
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time

    @classmethod
    def expecting(cls, names: Iterable[str]) -> Desk:
        """Before the session is open, when only the names of its nodes are known."""
        now = time.monotonic()
        return cls(nothing=Fleet({name: Node(name, LinkView("connecting", now)) for name in names}))

    @property
    def fleet(self) -> Fleet:
        return self.session.fleet if self.session is not None else self.nothing

    def node(self, name: str | None) -> Node | None:
        return self.fleet.nodes.get(name) if name is not None else None

    def run(self, node: str, run: str) -> Run | None:
        """None while the node does not know it, or not any more."""
        here = self.node(node)
        state = here.state.runs.get(run) if here is not None else None
        return None if state is None else Run(node, state)

    def ask(self, label: str, node: str, body: wire.Body, deadline_s: float, answer: Answer) -> None:
        """Give an order; `answer` is called from the screen's own loop."""
        if self.session is not None:
            self.await_result(lambda: label, self.session.ask(node, body, deadline_s), answer)

    def await_result(self, label: Callable[[], str], future: Future[T], answer: Callable[[T], None]) -> None:
        """Show that something is under way; `answer` is called from the screen's own loop with what it came to."""
        self.pending.append(Pending(label, self.clock(), future, answer))

    def settle(self) -> bool:
        """Hand out the answers that have come. True when there were any."""
        done = [order for order in self.pending if order.future.done()]
        self.pending = [order for order in self.pending if order not in done]
        for order in done:
            order.answer(order.future.result())
        return bool(done)

    def follow(self, node: str, run: str) -> History | None:
        """A run's history; every `follow` needs its `unfollow`."""
        if self.session is None or node not in self.fleet.nodes:
            return None
        self.uses[node, run, "history"] += 1
        return self.session.follow(node, run)

    def unfollow(self, node: str, run: str) -> None:
        if self.session is not None and self.last_use((node, run, "history")):
            self.session.unfollow(node, run)

    def tail(self, node: str, run: str, rank: int | None) -> LogTail | None:
        """The end of a log; every `tail` needs its `untail`."""
        if self.session is None or node not in self.fleet.nodes:
            return None
        self.uses[node, run, rank] += 1
        return self.session.tail(node, run, rank)

    def untail(self, node: str, run: str, rank: int | None) -> None:
        if self.session is not None and self.last_use((node, run, rank)):
            self.session.untail(node, run, rank)

    def last_use(self, key: tuple[str, str, int | str | None]) -> bool:
        """Two screens may look at the same thing; it is dropped with the last."""
        self.uses[key] -= 1
        if self.uses[key] > 0:
            return False
        del self.uses[key]
        return True
