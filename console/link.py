"""The link to one node, kept up for as long as the console is open.

A link calls its node on a daemon thread of its own; while they talk it takes turns with all other links on one thread.
What it hears it tells into an inbox: `(node, message)`, where a message is one of the agent's or a LinkView. It
reconnects by itself, goes on with the events where it left off, and sends orders again under the id they had, which the
node answers without doing anything twice. Nothing that a caller does here waits.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import replace

from agent import wire
from console import carry
from console.answers import Answers
from console.config import Config
from console.fleet import LinkView
from console.outbox import Outbox
from console.refusal import LASTING, Question, Refusal
from console.small import allow_files, start_small
from console.ssh import Dialler
from console.stream import Closed, Dial, Stream
from console.strings import _
from console.sweeper import SWEEPER, Seat
from console.talk import STALE_AFTER_S, Position, Talk
from console.target import Target

RETRY_S = (0.5, 1.0, 2.0, 4.0)
"""Pauses before the next try, the last one again and again; each is shortened by up to half, at random."""
LASTING_RETRY_S = 60.0
FILES_PER_LINK, FILES_BESIDE = 4, 256
"""A socket each; three pipes where the system's ssh goes"""
MANY, MANY_PACE_S = 300, 2.0
"""With more nodes than that each is asked to speak less often: all together cost the console a fifth of a core."""
Inbox = deque[tuple[str, "wire.FromAgent | LinkView"]]


def operator() -> str:
    """who@where, for the node's audit trail"""
    return f"{os.environ.get('USER') or os.getuid()}@{socket.gethostname()}"


class Link:
    """See the module. `dial` starts a command on the node; anything that can start a command will do."""

    def __init__(
        self,
        target: Target,
        bundle: Callable[[], carry.Bundle],
        inbox: Inbox,
        dial: Dial,
        read_only: bool = False,
        answers: Answers | None = None,
        pace_s: float = 0.0,
    ) -> None:
        self.target, self.name = target, target.name
        self.question: Question | None = None
        """What the link waits for the user to answer; `answer` it."""
        self.via = ""
        """How it goes to the node: "ssh", "system ssh (why)"."""
        self._bundle, self._inbox, self._dial, self._read_only = bundle, inbox, dial, read_only
        self._pace_s = pace_s
        self._answers = answers or Answers()
        self._again = threading.Event()
        self._seat: Seat | None = None
        self._outbox = Outbox(self._hurry)
        self._position = Position()
        self._view = LinkView("connecting", time.monotonic())
        self._lock = threading.Lock()
        self._stream: Stream | None = None
        self._closed = False
        self._heard_at = 0.0
        self._failures = 0

    def start(self) -> Link:
        self._inbox.append((self.name, self._view))
        self._apart(self._call)
        return self

    def order(self, body: wire.Body, deadline_s: float = 30.0, order_id: str | None = None) -> Future[wire.Reply]:
        """Give an order. It always comes to a Reply: the node's, or ok=False at the deadline or when closed."""
        return self._outbox.put(body, deadline_s, order_id)

    def answer(self, question: Question, text: str) -> None:
        """What the user says to a question; every link that waits for the same answer goes on."""
        self._answers.give(question, text)

    def retry(self) -> None:
        """Try again now instead of after the pause."""
        self._again.set()

    def close(self) -> None:
        """Hang up. Orders without a reply come to one at once."""
        with self._lock:
            self._closed, stream, seat = True, self._stream, self._seat
        self._again.set()
        if seat:
            seat.leave()
        if stream:
            stream.close()
        self._outbox.close()

    def _hurry(self) -> None:
        """There is something to send, and somebody waits for the answer."""
        if seat := self._seat:
            seat.hasty = True
            seat.set()

    def _apart(self, work: Callable[[], None]) -> None:
        start_small(threading.Thread(target=work, name=f"link {self.name}", daemon=True).start)

    # On the link's own thread, which ends when they talk

    def _call(self) -> None:
        """Call until they talk."""
        with self._no_mistake():
            while not self._closed:
                try:
                    self._converse()
                except Refusal as refusal:
                    self._give_up(refusal)
                else:
                    break

    @contextlib.contextmanager
    def _no_mistake(self) -> Iterator[None]:
        try:
            yield
        except BaseException:  # a mistake of ours: this link ends, and nobody may take the last view for the truth
            self._down(Refusal("broken", _("this link has broken down inside tunedeck")))
            raise

    def _converse(self) -> None:
        """From dialling to Hello; then the sweeper has it. Raises Refusal."""
        nonce, bundle = carry.fresh_nonce(), self._bundle()
        verb = ("attach", "--read-only") if self._read_only else ("attach",)
        target = self.target
        stream = self._dial(carry.command_line(bundle, nonce, target.home or "", target.python or "", verb))
        with self._lock:
            self._stream, closed = stream, self._closed
        try:
            if closed:
                stream.close()
                return
            self.via, self.question = stream.via, None
            rest = carry.enter(stream, nonce, bundle, lambda: self._tell(LinkView("carrying", time.monotonic())))
            talk = Talk(stream, self._outbox, self._position, self._hear, rest)
            with self._told_apart(talk):
                talk.hello(operator(), self._read_only, self._pace_s)
        except BaseException:
            self._hang_up(stream)
            raise
        self._sit_down(talk, stream)

    def _sit_down(self, talk: Talk, stream: Stream) -> None:
        seat = SWEEPER.seat(lambda: self._turn(talk, stream))
        with self._lock:
            self._seat, closed = seat, self._closed
        stream.notify(seat)
        if closed:
            seat.leave()

    @contextlib.contextmanager
    def _told_apart(self, talk: Talk) -> Iterator[None]:
        """What ends a connection, as a Refusal."""
        try:
            yield
        except Closed as error:
            raise talk.ended() from error
        except TimeoutError as error:
            raise Refusal("lost", _("the node takes in nothing more")) from error

    def _over(self, talk: Talk, stream: Stream, error: Exception) -> None:
        """They no longer talk: say why, and call again."""
        with self._no_mistake():
            self._heard_at = talk.heard_at
            try:
                with self._told_apart(talk):
                    raise error
            except Refusal as refusal:
                self._hang_up(stream)
                self._give_up(refusal)
        self._call()

    def _hang_up(self, stream: Stream) -> None:
        with self._lock:
            self._stream = self._seat = None
        stream.close()

    def _give_up(self, refusal: Refusal) -> None:
        self._failures = 0 if self._view.phase in ("live", "stale") else self._failures + 1
        if not self._closed:
            self._down(refusal)
            self._pause(refusal, self._failures)

    # On the sweeper's thread

    def _turn(self, talk: Talk, stream: Stream) -> float | None:
        with self._no_mistake():
            try:
                nap_s = talk.turn()
            except (Refusal, Closed, TimeoutError) as error:
                ending = error  # the name itself goes with the block
                self._apart(lambda: self._over(talk, stream, ending))
                return None
            self._show(talk)
            if seat := self._seat:
                seat.hasty = talk.waiting
            return nap_s

    def _show(self, talk: Talk) -> None:
        """Tell when the phase or the round trip has changed."""
        if talk.welcome is None:
            return
        was, phase = self._view, "stale" if talk.silent_s > STALE_AFTER_S else "live"
        rtt_s, jitter_s = talk.pulse.rtt_s, talk.pulse.jitter_s
        if phase != was.phase:
            why = _("nothing heard lately") if phase == "stale" else ""
            since = talk.heard_at if phase == "stale" else time.monotonic()
            self._tell(LinkView(phase, since, why, rtt_s=rtt_s, jitter_s=jitter_s))
        elif (rtt_s, jitter_s) != (was.rtt_s, was.jitter_s):
            self._tell(LinkView(phase, was.since_monotonic, was.why, rtt_s=rtt_s, jitter_s=jitter_s))

    def _down(self, refusal: Refusal) -> None:
        """Down since it was last heard, or since the first failure: tries in between do not change that."""
        self.question = refusal.question
        was = self._view
        since = time.monotonic()
        if was.phase == "down":
            since = was.since_monotonic
        elif was.phase in ("live", "stale"):
            since = self._heard_at
        self._tell(LinkView("down", since, refusal.message, refusal.hint, refusal.kind))

    def _pause(self, refusal: Refusal, failures: int) -> None:
        wait_s = LASTING_RETRY_S if refusal.kind in LASTING else RETRY_S[min(failures, len(RETRY_S) - 1)]
        self._answers.wait(refusal.question, self._again)
        self._again.wait(wait_s * random.uniform(0.5, 1.0))
        self._again.clear()
        self._answers.wait(None, self._again)

    def _hear(self, message: wire.FromAgent) -> None:
        self._inbox.append((self.name, message))

    def _tell(self, view: LinkView) -> None:
        self._view = replace(view, via=self.via, question=self.question)
        self._inbox.append((self.name, self._view))


def connector(config: Config, nodes: Iterable[Target] | None = None) -> Callable[[str, Inbox], Link]:
    """What a Session needs: name and inbox → a started link. All links share the user's answers."""
    targets = {target.name: target for target in (config.nodes if nodes is None else nodes)}
    answers = Answers(config.accept_host_keys)
    pace_s = MANY_PACE_S if len(targets) > MANY else 0.0
    allow_files(FILES_PER_LINK * len(targets) + FILES_BESIDE)

    def connect(name: str, inbox: Inbox) -> Link:
        dial = Dialler.of(targets[name], config, answers)
        return Link(targets[name], carry.bundle, inbox, dial, config.read_only, answers, pace_s).start()

    return connect
