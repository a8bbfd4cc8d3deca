"""One console's conversation with the daemon. Whatever it sends or fails to read costs this connection and no other."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from typing import Any, Protocol

from agent import codec, wire
from agent.bridge import version
from agent.events import Events
from agent.orders import OrderBook
from agent.wire import Ack, Hello, Level, Malformed, Order, Reply, Welcome, difference

LOG = logging.getLogger("agent")
HELLO_S = 15.0
STALLED_S = 60.0
"""A console that takes nothing for this long is gone, whatever TCP believes."""
ORDERS_AT_ONCE = 64
MALFORMED_LIMIT = 10
EVENTS_AT_ONCE = 200
BUFFER_BYTES = 1 << 18


class Node(Protocol):
    """What a conversation needs of the daemon."""

    events: Events
    book: OrderBook
    node: str
    boot_id: str
    home: str
    python: str
    interval_s: float

    @property
    def tree(self) -> dict[str, Any]: ...


class Conversation:
    def __init__(self, node: Node, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, read_only: bool) -> None:
        self.node, self.reader, self.writer = node, reader, writer
        self.read_only = read_only
        self.pace_s = 0.0
        self.deflater: wire.Deflater | None = None
        self.operator = "unknown"
        self.sent: dict[str, Any] = {}
        self.n = self.acked = 0
        self.seq = 0
        self.level_at = self.keyframe_at = -1e9
        self.malformed = 0
        self.news = asyncio.Event()
        self.writing = asyncio.Lock()
        self.orders: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Until the console leaves. Raises OSError, Malformed or asyncio.TimeoutError for one that misbehaves."""
        self.writer.transport.set_write_buffer_limits(high=BUFFER_BYTES)
        await asyncio.wait_for(self.greet(), HELLO_S)
        telling = asyncio.ensure_future(self.tell())
        listening = asyncio.ensure_future(self.listen())
        try:
            done, _ = await asyncio.wait([telling, listening], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            left = [telling, listening, *self.orders]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    async def greet(self) -> None:
        hello = wire.read_from_console(await self.line())
        if not isinstance(hello, Hello):
            raise Malformed("a conversation begins with Hello")
        older = (hello.protocol, version(hello.version)) < (wire.PROTOCOL, version(wire.VERSION))
        self.read_only = self.read_only or hello.read_only or older
        self.operator = f"{hello.operator[:200]} (uid {os.getuid()})"
        self.pace_s = min(max(0.0, hello.pace_s), wire.HEARTBEAT_S) - self.node.interval_s / 2  # its ticks waver
        events = self.node.events
        known = hello.stream == events.stream and hello.after_seq <= events.last_seq
        self.seq = max(0, hello.after_seq) if known else 0
        welcome = Welcome(
            protocol=wire.PROTOCOL,
            version=wire.VERSION,
            node=self.node.node,
            boot_id=self.node.boot_id,
            stream=events.stream,
            last_seq=events.last_seq,
            read_only=self.read_only,
            interval_s=self.node.interval_s,
            home=self.node.home,
            python=self.node.python,
        )
        await self.send(welcome)
        self.deflater = wire.Deflater() if hello.deflate else None

    async def line(self) -> bytes:
        """Raises Malformed for one that is too long, EOFError at the end."""
        try:
            return await self.reader.readuntil(b"\n")
        except asyncio.IncompleteReadError as error:
            raise EOFError from error
        except asyncio.LimitOverrunError as error:
            raise Malformed(f"a line longer than {codec.LINE_LIMIT_BYTES} bytes") from error

    async def send(self, message: wire.FromAgent) -> None:
        async with self.writing:
            line = wire.encode(message)
            self.writer.write(self.deflater.line(line) if self.deflater is not None else line)
            stalled = asyncio.get_running_loop().call_later(STALLED_S, self.writer.transport.abort)
            await self.writer.drain()
            stalled.cancel()

    async def listen(self) -> None:
        while True:
            try:
                line = await self.line()
            except EOFError:
                return
            try:
                await self.hear(wire.read_from_console(line))
            except Malformed as error:
                await self.not_understood(line, error)

    async def hear(self, message: wire.FromConsole) -> None:
        if isinstance(message, Ack):
            self.acked = max(self.acked, min(message.n, self.n))
            self.news.set()
        elif isinstance(message, Order):
            if len(self.orders) >= ORDERS_AT_ONCE:
                await self.send(Reply(message.id, False, error=f"{ORDERS_AT_ONCE} orders wait already", hint="Wait."))
                return
            task = asyncio.ensure_future(self.obey(message))
            self.orders.add(task)
            task.add_done_callback(self.orders.discard)

    async def obey(self, order: Order) -> None:
        await self.send(await self.node.book.take(order, self.operator, self.read_only))
        self.news.set()

    async def not_understood(self, line: bytes, error: Malformed) -> None:
        """Newer consoles may say more than this daemon knows; one that only says nonsense is sent away."""
        self.malformed += 1
        if self.malformed > MALFORMED_LIMIT:
            raise error
        LOG.warning("%s sent what is no message: %s", self.operator, error)
        raw = parsed(line)
        if isinstance(raw, dict) and raw.get("t") == "Order" and isinstance(raw.get("id"), str):
            hint = "The daemon of this node may be older than the console."
            await self.send(Reply(raw["id"][:64], False, error=f"this node does not understand: {error}", hint=hint))

    async def tell(self) -> None:
        """Events first, then a level when one is due."""
        while True:
            await self.send_events()
            await self.send_level()
            # not wait_for: before Python 3.12 it can swallow the cancellation that ends this loop
            pulse = asyncio.get_running_loop().call_later(wire.HEARTBEAT_S / 2, self.news.set)
            await self.news.wait()
            pulse.cancel()
            self.news.clear()

    async def send_events(self) -> None:
        while True:
            gap, events = self.node.events.after(self.seq, EVENTS_AT_ONCE)
            if gap is not None:
                await self.send(gap)
                self.seq = gap.last
            for event in events:
                await self.send(event)
                self.seq = event.seq
            if len(events) < EVENTS_AT_ONCE:
                return

    async def send_level(self) -> None:
        now, tree = time.monotonic(), self.node.tree
        if self.n - self.acked >= wire.UNACKED_LEVELS or now - self.level_at < self.pace_s:
            return
        keyframe = now - self.keyframe_at >= wire.KEYFRAME_EVERY_S
        changed, gone = (tree, []) if keyframe else difference(self.sent, tree)
        if not (keyframe or changed or gone) and now - self.level_at < wire.HEARTBEAT_S * 0.9:
            return
        self.n, self.sent, self.level_at = self.n + 1, tree, now
        self.keyframe_at = now if keyframe else self.keyframe_at
        await self.send(Level(self.n, keyframe, round(now, 3), round(time.time(), 3), changed, gone))


def parsed(line: bytes) -> Any:
    try:
        return codec.parse(line)
    except Malformed:
        return None
