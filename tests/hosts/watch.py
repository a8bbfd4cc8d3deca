"""What a console is told of machines, with the time it was told at, against what has happened there."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from agent import wire
from console.config import Config
from console.fleet import LinkView
from console.link import connector
from console.session import Session
from console.talk import STALE_AFTER_S
from console.target import Target
from tests.fakes.node import until
from tests.hosts.machine import Machine

BEAT_S = 0.25
SETTLED_S = 30.0
"""A link that 20 % loss has made silent is given up after 10 s and back within 10 more: lost is what never comes."""


class Beat:
    """Makes things happen on a machine, one after the other, each of them an event there."""

    def __init__(self, there: Machine) -> None:
        self.there, self.asked, self.done = there, 0, 0
        self._last: Future[wire.Reply] | None = None
        self._next_at = 0.0

    def __call__(self) -> None:
        if self._last is not None:
            if not self._last.done():
                return
            self.done += self._last.result().ok
            self._last = None
        if time.monotonic() >= self._next_at:
            self._next_at = time.monotonic() + BEAT_S
            self.asked += 1
            self._last = self.there.spot.order(wire.Cordon(self.asked % 2 == 1, f"beat {self.asked}"), 20.0)

    def idle(self) -> bool:
        """The last one has been answered; asks for no more."""
        return self._last is None or self._last.done()


@dataclass(frozen=True)
class Count:
    """Events by the node's own books against those that the console was told."""

    sent: int
    received: int
    lost: int
    doubled: int

    @property
    def whole(self) -> bool:
        return self.sent > 0 and not self.lost and not self.doubled

    def __str__(self) -> str:
        return f"events sent {self.sent} received {self.received} lost {self.lost} doubled {self.doubled}"


class Watch:
    """A sitting at the console, and everything that was told, with the time it was told at."""

    def __init__(self, targets: list[Target], folder: Path, ssh: str = "auto") -> None:
        config = Config(tuple(targets), folder / "config", folder / "state", ssh=ssh)
        self.session = Session([target.name for target in targets], connector(config))
        self.heard: list[tuple[float, str, wire.FromAgent | LinkView]] = []
        self.session.listeners.append(lambda name, told: self.heard.append((time.monotonic(), name, told)))
        self.session.start()

    def until(
        self, done: Callable[[], object], limit_s: float = 60.0, meanwhile: Callable[[], None] | None = None
    ) -> float:
        """Seconds until that is so."""
        began = time.monotonic()

        def turn() -> bool:
            self.session.pump()
            if meanwhile is not None:
                meanwhile()
            return bool(done())

        until(turn, limit_s)
        return time.monotonic() - began

    def view(self, name: str) -> LinkView:
        return self.session.fleet.nodes[name].link

    def live(self, *names: str) -> bool:
        return all(self.session.fleet.nodes[name].live(time.monotonic()) for name in names)

    def views(self, name: str) -> list[tuple[float, LinkView]]:
        """Each phase when it was first told."""
        told = [(at, one) for at, who, one in self.heard if who == name and isinstance(one, LinkView)]
        return [one for index, one in enumerate(told) if index == 0 or told[index - 1][1].phase != one[1].phase]

    def phases(self, name: str) -> list[str]:
        return [view.phase for _at, view in self.views(name)]

    def events(self, name: str) -> list[wire.Event]:
        return [one for _at, who, one in self.heard if who == name and isinstance(one, wire.Event)]

    def gaps(self, name: str) -> list[wire.Gap]:
        return [one for _at, who, one in self.heard if who == name and isinstance(one, wire.Gap)]

    def count(self, name: str, there: Machine) -> Count:
        """Once the console has had time to be told of the last of them."""
        with suppress(AssertionError):
            self.until(lambda: self.events(name)[-1:] == there.journal()[-1:], SETTLED_S)
        sent = {(event.stream, event.seq) for event in there.journal()}
        told = Counter((event.stream, event.seq) for event in self.events(name))
        order = [event.seq for event in self.events(name)]
        assert order == sorted(order) and not self.gaps(name)
        return Count(len(sent), len(told), len(sent - set(told)), sum(told.values()) - len(told))

    def untruths(self, name: str) -> list[str]:
        """What was claimed of a node against what was heard of it at that time."""
        found: list[str] = []
        phase, since, heard_at, spoke_at = "connecting", 0.0, 0.0, 0.0
        for at, who, told in self.heard:
            if who != name:
                continue
            if isinstance(told, LinkView):
                phase, since, spoke_at = told.phase, at, 0.0
                if phase in ("stale", "down") and told.since_monotonic < heard_at - 1.0:
                    found.append(f"{phase} since {at - told.since_monotonic:.1f} s, heard {at - heard_at:.1f} s ago")
                continue
            spoke_at = spoke_at or at
            if phase == "live" and heard_at and at - max(heard_at, since) > STALE_AFTER_S + 2.0:
                found.append(f"live through {at - heard_at:.1f} s of silence")
            if phase in ("stale", "down") and at - spoke_at > 1.0:
                found.append(f"{phase} although it has spoken for {at - spoke_at:.1f} s")
            heard_at = at
        return found


@contextmanager
def watching(targets: list[Target], folder: Path, ssh: str = "auto") -> Iterator[Watch]:
    watch = Watch(targets, folder, ssh)
    try:
        yield watch
    finally:
        watch.session.close()
