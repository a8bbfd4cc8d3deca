"""Lines that are nearly messages: what a broken or hostile peer may send. And both ends, which have to bear it."""

from __future__ import annotations

import asyncio
import json
import random
from collections import deque
from typing import Any, cast

from agent import wire
from agent.conversation import MALFORMED_LIMIT, Conversation
from agent.events import Events
from agent.orders import OrderBook
from console.fleet import Fleet, LinkView, Node
from console.outbox import Outbox
from console.refusal import Refusal
from console.screens.describe import event_line, node_lines
from console.screens.desk import Desk
from console.screens.fleet import node_cells
from console.screens.runs import run_cells
from console.stream import Closed
from console.talk import Position, Talk
from console.widgets.paint import Line
from tests.fakes.emulated import Book, Emulated, first_tree

JUNK: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, -(2**64), 10**400, 0.5, -1e300, 1e308, "", "x", "\x1b]0;evil\x07"),
    *("\x1b[2J\x1b[31m", "a\x00b", "\ud800", "\u202egnp", "nan", "../../etc/passwd", "t", "x" * 300, [], {}, [[]]),
    *({"~float": "nan"}, {"~float": "inf"}, {"~float": []}, {"t": "Kill", "run": 5}, {"t": ["Ack"]}, [None, {"a": {}}]),
)
TOKENS: tuple[bytes, ...] = (
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"null",
    b"NaN",
    b"-Infinity",
    b"1e999",
    b"\\u001b[31m",
)
TOKENS += (b"\\ud800", b"\xff", b"\x00", b"\x7f", b"[" * 40, b'{"a":' * 40, b"9" * 5000, b"\n", b'"~float"', b"t")


def from_console() -> list[bytes]:
    bodies: list[wire.Body] = [
        wire.Launch("name: x\nmodel: y\n", force=True),
        *(wire.Kill("run-1"), wire.Steer("run-1", "rollback", {"step": 3}), wire.Resume("run-1"), wire.Pin("r", "s")),
        *(wire.Logs("run-1", 0, -100), wire.Progress("run-1", 5), wire.ListRuns(3), wire.ListSnapshots("run-1")),
        *(wire.ReadExport("r", "f", "p"), wire.ReadAudit(5), wire.Cordon(True, "why")),
        wire.ReadHistory(600.0, ("host/cpu_percent", "GPU-1/power_w"), 50),
    ]
    orders = [wire.Order(f"order-{n}", 5.0, body) for n, body in enumerate(bodies)]
    return [wire.encode(one) for one in (wire.Ack(1), wire.Hello(1, "1", "ann@laptop", "s", 3), *orders)]


def from_agent() -> list[bytes]:
    node = Emulated(0, cast(Events, None), cast(OrderBook, None))
    before = node.tree
    node.tick()
    changed, gone = wire.difference(before, node.tree)
    messages: list[wire.FromAgent] = [
        wire.Welcome(wire.PROTOCOL, "1", "node", "boot", "s", 3),
        wire.Level(1, True, 1.0, 2.0, first_tree(0, random.Random(0))),
        *(wire.Level(n, False, 1.0, 2.0, changed, [*gone, ["runs", "x"]]) for n in (2, 3, 4)),
        wire.Event("s", 4, 1.0, "run.started", "text", "warn", "run-1", {"number": 1}),
        wire.Gap("s", 5, 9),
        wire.Reply("order-1", True, {"runs": []}),
    ]
    return [wire.encode(one) for one in messages]


class Mutator:
    """One seed, one sequence of lines."""

    def __init__(self, seed: int, lines: list[bytes]) -> None:
        self.chance = random.Random(seed)
        self.lines = lines
        self.trees = [json.loads(line) for line in lines]

    def line(self) -> bytes:
        chance = self.chance
        if chance.random() < 0.6:
            return json.dumps(self.changed(chance.choice(self.trees)), ensure_ascii=chance.random() < 0.5).encode(
                "utf-8", "surrogatepass"
            )
        line = chance.choice(self.lines).rstrip(b"\n")
        for _time in range(chance.randrange(1, 4)):
            at, to = chance.randrange(len(line) + 1), chance.randrange(0, 12)
            line = line[:at] + (chance.choice(TOKENS) if chance.random() < 0.8 else b"") + line[at + to :]
        return line

    def changed(self, value: Any) -> Any:
        """A copy with one part made into something else, left out, or doubled under another name."""
        chance = self.chance
        if not isinstance(value, (dict, list)) or not value or chance.random() < 0.15:
            return chance.choice(JUNK)
        if isinstance(value, list):
            at = chance.randrange(len(value))
            return [*value[:at], self.changed(value[at]), *value[at + 1 :]]
        key = chance.choice(list(value))
        act = chance.random()
        if act < 0.1:
            return {name: item for name, item in value.items() if name != key}
        if act < 0.2:
            return {**value, str(chance.choice(JUNK)): value[key]}
        return {**value, key: self.changed(value[key])}


class Pipe:
    """A stream that has what is put into it."""

    via = "mutation"

    def __init__(self) -> None:
        self.waiting: deque[bytes] = deque()

    def notify(self, bell: object) -> None: ...

    def read_some(self) -> bytes | None:
        return self.waiting.popleft() if self.waiting else None

    def write(self, data: bytes) -> None: ...

    def end_input(self) -> None: ...

    def complaint(self) -> str:
        return ""

    def exit_status(self) -> int | None:
        return 0

    def close(self) -> None: ...


class ConsoleEnd:
    """What a console does with each line: decode, keep the books, renew the model, and now and then paint it."""

    def __init__(self) -> None:
        self.fleet = Fleet({"n": Node("n", LinkView("live", 0.0))})
        self.desk = Desk(nothing=self.fleet)
        self.took = 0
        self.begin()

    def begin(self) -> None:
        self.pipe = Pipe()
        self.talk = Talk(self.pipe, Outbox(lambda: None), Position(), self.hear, b"")
        self.take(wire.encode(wire.Welcome(wire.PROTOCOL, "1", "node", "boot", "s", 3))[:-1])

    def hear(self, message: wire.FromAgent) -> None:
        try:
            self.fleet.apply("n", message, 1.0, 1.0)
            self.took += 1
        except wire.Malformed:
            return

    def take(self, line: bytes) -> None:
        self.pipe.waiting.append(line + b"\n")
        try:
            self.talk.turn()
        except (Refusal, Closed):
            self.begin()

    def painted(self) -> list[Line]:
        node = self.fleet.nodes["n"]
        lines = [*node_lines(node, 2.0, 80), *node_cells(node, 2.0)]
        lines += [event_line(event, 80, "n") for event in list(node.events)[-3:]]
        return lines + [cell for run in self.fleet.runs()[:5] for cell in run_cells(self.desk, run)]


class AgentEnd:
    """What an agent does with the lines of one console after another."""

    def __init__(self, events: Events, book: OrderBook | None = None) -> None:
        self.node = Emulated(0, events, book or cast(OrderBook, Book()))
        self.replies: list[wire.Reply] = []
        self.took = 0

    async def take(self, lines: list[bytes]) -> None:
        """A whole conversation. Raises what it must not raise."""
        reader = asyncio.StreamReader(1 << 22)
        reader.feed_data(wire.encode(wire.Hello(wire.PROTOCOL, wire.VERSION, "mallory")))
        reader.feed_data(b"".join(line + b"\n" for line in lines))
        reader.feed_eof()
        conversation = Quiet(self.node, reader, cast(asyncio.StreamWriter, Sink()), read_only=True)
        conversation.end = self
        try:
            await conversation.run()
        except (OSError, EOFError, wire.Malformed, asyncio.TimeoutError):
            return


class Quiet(Conversation):
    end: AgentEnd

    async def send(self, message: wire.FromAgent) -> None:
        wire.encode(message)
        if isinstance(message, wire.Reply):
            self.end.replies.append(message)
            del self.end.replies[:-100]

    async def hear(self, message: wire.FromConsole) -> None:
        self.end.took += 1
        await super().hear(message)


class Sink:
    """A transport that takes everything."""

    @property
    def transport(self) -> Sink:
        return self

    def set_write_buffer_limits(self, high: int) -> None: ...


def batches(mutator: Mutator, count: int) -> list[bytes]:
    """Lines for one conversation: all that can be read, and as much nonsense as it bears."""
    lines, nonsense = [], 0
    for _line in range(count):
        line = mutator.line()
        try:
            for part in line.split(b"\n"):
                wire.read_from_console(part)
        except wire.Malformed:
            nonsense += 1
            if nonsense > MALFORMED_LIMIT - 2:
                continue
        lines.append(line)
    return lines
