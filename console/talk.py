"""One live connection to an agent: lines in, acknowledgements and orders out, and an eye on how long it is silent.

Nothing here waits except for the node to take in what is written: `turn` does what there is to do and says when to
call again.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from agent import wire
from console.outbox import Outbox
from console.refusal import HINTS, Refusal
from console.stream import Closed, Stream
from console.strings import _

STALE_AFTER_S = 2 * wire.HEARTBEAT_S + 0.5
DEAD_AFTER_S = 4 * wire.HEARTBEAT_S
"""An agent speaks at least every HEARTBEAT_S: silent four times as long, it or the way to it is dead."""
WELCOME_TIMEOUT_S = 25.0
"""More than the node's own patience with a daemon that starts: it is the node that knows why it does not."""
STRAY_LINES = 20
"""Lines that are no messages, in one connection: a background job of a login script may write some."""
LINE_LIMIT_BYTES = 8 * 1024 * 1024
PING_EVERY_S = 10.0
"""An order that asks for nothing is sent if there was no other by which to measure the round trip."""
PING_PER_PACE = 10
"""Of many nodes each is measured less often"""
PINGS_OPEN = 1000


@dataclass(slots=True)
class Position:
    """Where the console stands in the node's events; outlives the connection."""

    stream: str = ""
    seq: int = 0


@dataclass(slots=True)
class Pulse:
    """Round trip of order and reply, smoothed as TCP does (RFC 6298); jitter is the mean deviation, known from two."""

    rtt_s: float | None = None
    jitter_s: float | None = None

    def add(self, trip_s: float) -> None:
        if self.rtt_s is None:
            self.rtt_s = trip_s
            return
        off_s = abs(trip_s - self.rtt_s)
        self.jitter_s = off_s if self.jitter_s is None else self.jitter_s + (off_s - self.jitter_s) / 4
        self.rtt_s += (trip_s - self.rtt_s) / 8


class Talk:
    def __init__(
        self, stream: Stream, outbox: Outbox, position: Position, hear: Callable[[wire.FromAgent], None], rest: bytes
    ) -> None:
        self.welcome: wire.Welcome | None = None
        self.pulse = Pulse()
        self.heard_at = time.monotonic()
        self._stream, self._outbox, self._position, self._hear = stream, outbox, position, hear
        self._parts = [rest] if rest else []
        self._inflater = wire.Inflater()
        self._level = self._acked = 0
        self._stray = 0
        self._ping_at = self._pace_s = 0.0
        self._asked: dict[str, float] = {}

    @property
    def silent_s(self) -> float:
        return time.monotonic() - self.heard_at

    @property
    def waiting(self) -> bool:
        """Somebody waits for an answer of the node, or a round trip is being measured."""
        return bool(self._asked) or self._outbox.waiting

    def hello(self, operator: str, read_only: bool, pace_s: float = 0.0) -> None:
        known, self._pace_s = self._position, pace_s
        hello = wire.Hello(wire.PROTOCOL, wire.VERSION, operator, known.stream, known.seq, read_only, pace_s, True)
        self._stream.write(wire.encode(hello))
        self._take(b"")

    def turn(self) -> float:
        """Read what has come, write what is due. Returns seconds to the next call. Raises Refusal or Closed."""
        more = self._read()
        if self.welcome:
            self._write()
        limit = DEAD_AFTER_S if self.welcome else WELCOME_TIMEOUT_S
        if not more and self.silent_s > limit:
            raise Refusal("lost", _("nothing heard for {s:.0f} s").format(s=self.silent_s))
        if more:
            return 0.0
        left = [limit - self.silent_s, STALE_AFTER_S - self.silent_s, self._ping_at - time.monotonic()]
        return max(0.05, min([s for s in left if s > 0], default=0.05))

    def _read(self) -> bool:
        """Up to a few pieces, so that orders are not kept waiting by a flood. True if there may be more."""
        for _piece in range(16):
            data = self._stream.read_some()
            if data is None:
                return False
            if data == b"":
                raise Closed("the other end has hung up")
            self.heard_at = time.monotonic()
            self._take(data)
        return True

    def _take(self, data: bytes) -> None:
        self._parts.append(data)
        if b"\n" not in data and len(self._parts) > 1 and b"\n" not in self._parts[0]:
            if sum(map(len, self._parts)) > LINE_LIMIT_BYTES:
                raise Refusal("garbled", _("a line of more than {n} bytes").format(n=LINE_LIMIT_BYTES))
            return
        *lines, rest = b"".join(self._parts).split(b"\n")
        self._parts = [rest] if rest else []
        for line in lines:
            self._line(line)

    def _line(self, line: bytes) -> None:
        try:
            message = wire.read_from_agent(self._inflater.line(line))
        except wire.Malformed as error:
            self._stray += 1
            if self._stray > STRAY_LINES:
                raise Refusal("garbled", _("too many lines that are no messages: {why}").format(why=error)) from error
            return
        if isinstance(message, wire.Welcome):
            self._welcomed(message)
        elif self.welcome is None and isinstance(message, wire.Reply):
            kind = message.result.get("kind")
            told_apart = kind if isinstance(kind, str) and kind in HINTS else "agent-failed"
            raise Refusal(told_apart, message.error or _("the agent does not start"), message.hint)
        elif self.welcome is None:
            raise Refusal("protocol", _("the agent speaks before it is asked"))
        elif self._wanted(message):
            self._hear(message)

    def _welcomed(self, message: wire.Welcome) -> None:
        if message.protocol != wire.PROTOCOL:
            text = _("the agent speaks protocol {theirs}, this console {ours}")
            raise Refusal("protocol", text.format(theirs=message.protocol, ours=wire.PROTOCOL))
        if message.stream != self._position.stream or message.last_seq < self._position.seq:
            self._position.stream, self._position.seq = message.stream, 0
        self._outbox.reconnected()
        self.welcome = message
        self._hear(message)

    def _wanted(self, message: wire.FromAgent) -> bool:
        """Keep the books of acknowledgements, events and replies. False for what the console has already."""
        if isinstance(message, wire.Level):
            if not message.keyframe and message.n != self._level + 1:
                raise Refusal("lost", _("level {n} came after level {last}").format(n=message.n, last=self._level))
            self._level = message.n
            if message.n - self._acked >= wire.UNACKED_LEVELS:
                self._acked = message.n
                self._stream.write(wire.encode(wire.Ack(message.n)))
        elif isinstance(message, wire.Event):
            if message.stream == self._position.stream and message.seq <= self._position.seq:
                return False
            self._position.stream, self._position.seq = message.stream, message.seq
        elif isinstance(message, wire.Reply):
            asked = self._asked.pop(message.order, None)
            if asked is not None:
                self.pulse.add(time.monotonic() - asked)
            self._outbox.settle(message)
            return False
        return True

    def _write(self) -> None:
        for order in self._outbox.due():
            self._send(order)
        now = time.monotonic()
        if now >= self._ping_at and len(self._asked) < PINGS_OPEN:
            self._send(wire.Order(f"ping-{uuid.uuid4().hex}", PING_EVERY_S, wire.ListRuns(0)))

    def _send(self, order: wire.Order) -> None:
        if not isinstance(order.body, wire.DESTRUCTIVE):  # those take as long as what they do
            now = time.monotonic()
            self._asked[order.id], self._ping_at = now, now + PING_EVERY_S + PING_PER_PACE * self._pace_s
        self._stream.write(wire.encode(order))

    def ended(self) -> Refusal:
        """Why the stream has come to its end."""
        said, status = wire.clean(self._stream.complaint())[-300:].strip(), self._stream.exit_status()
        if self.welcome is None and (said or status):
            return Refusal("agent-failed", said or _("the agent ended with status {n}").format(n=status))
        return Refusal("lost", _("the connection ended") + (f": {said}" if said else ""))
