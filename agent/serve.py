"""The daemon of one user on one machine: a tick out to every console, orders in, no port."""

from __future__ import annotations

import asyncio
import logging
import logging.handlers
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from agent import bundles, codec, door, logout, probe, wire
from agent.bridge import Bridge, read_bridge
from agent.conversation import Conversation
from agent.desk import Desk
from agent.door import Door
from agent.events import Events
from agent.forked import Forked
from agent.node import Machine
from agent.orders import OrderBook
from agent.probe import Probe
from agent.refusal import Refusal, of_os_error
from agent.state import StateFolder, user_home
from jobs.identity import boot_id

LOG = logging.getLogger("agent")
INTERVAL_S = 1.0
IDLE_S = 600.0
TOUCH_EVERY_S = 3600.0
CONSOLES = 64
BRIDGE_S = 5.0
LOG_BYTES = 1 << 19


class Daemon:
    def __init__(self, state: StateFolder, place: Door, idle_s: float, first: Forked | None = None) -> None:
        """Raises OSError when the journals cannot be read or made."""
        self.state, self.place, self.idle_s = state, place, idle_s
        self.events = Events(state.events)
        self.machine = Machine(state, self.events, Probe(first=first))
        self.book = OrderBook(state, Desk(self.machine), self.events)
        self.node, self.boot_id = state.node, boot_id()
        self.home, self.python = str(user_home(os.environ)), sys.executable
        self.interval_s = INTERVAL_S
        self.consoles: set[Conversation] = set()
        self.busy_at = time.monotonic()
        self.touched_at = 0.0
        self.over = asyncio.Event()
        self.eyes = ThreadPoolExecutor(1)
        """Its own thread: orders that hang in a file system must not take the last one from the tick."""

    @property
    def tree(self) -> dict[str, Any]:
        return self.machine.tree

    async def run(self) -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(16))
        self.events.add("agent.started", f"agent {wire.VERSION} started (pid {os.getpid()})")
        if words := logout.warning():
            self.events.add("agent.logout", words, "warn")
        await self.look()  # whoever comes first is to see the runs that are there
        self.place.socket.unlink(missing_ok=True)  # the lock is ours, so whoever bound it is gone
        server = await asyncio.start_unix_server(self.accept, self.place.address(), limit=codec.LINE_LIMIT_BYTES)
        self.place.socket.chmod(0o600)
        keep_last_words(self.state)
        LOG.info("serving %s at %s", self.state.path, self.place.socket)
        ticking = [asyncio.ensure_future(self.tick()), asyncio.ensure_future(self.watch_gpus())]
        await self.over.wait()
        server.close()
        self.place.socket.unlink(missing_ok=True)
        for task in ticking:
            task.cancel()
        await self.machine.probe.close()
        self.machine.close()

    async def tick(self) -> None:
        while True:
            began = time.monotonic()
            await self.look()
            for console in self.consoles:
                console.news.set()
            self.stay()
            await asyncio.sleep(max(0.1, self.interval_s - (time.monotonic() - began)))

    async def look(self) -> None:
        """A full or failing disk leaves the last state standing, whose age the console sees in the runs' own times."""
        try:
            await asyncio.get_running_loop().run_in_executor(self.eyes, self.machine.read)
        except OSError as error:
            LOG.warning("%s", of_os_error(error, "cannot read or write the state of this node"))

    async def watch_gpus(self) -> None:
        while True:
            began = time.monotonic()
            await self.machine.probe.refresh()
            await asyncio.sleep(max(0.1, self.interval_s - (time.monotonic() - began)))

    def stay(self) -> None:
        """Not longer than somebody needs it; and known to be in use to whoever cleans /tmp."""
        now = time.monotonic()
        if self.consoles or self.book.running or self.machine.runs.live():
            self.busy_at = now
        if now - self.busy_at > self.idle_s:
            LOG.info("nobody needs this daemon: it ends")
            self.over.set()
        if now - self.touched_at > TOUCH_EVERY_S:
            self.touched_at = now
            self.place.touch(self.place.lock)
            self.place.touch(self.place.socket)
            asyncio.get_running_loop().run_in_executor(None, self.tend)

    def tend(self) -> None:
        try:
            bundles.tend(self.state.home)
        except OSError as error:
            LOG.warning("%s", of_os_error(error, "cannot tend the bundles", self.state.home / "bundles"))

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        conversation: Conversation | None = None
        try:
            bridge = await self.admit(reader, writer)
            if bridge is not None:
                conversation = Conversation(self, reader, writer, bridge.read_only)
                self.consoles.add(conversation)
                await conversation.run()
        except (OSError, EOFError, wire.Malformed, asyncio.TimeoutError) as error:
            LOG.info("a console left: %s: %s", type(error).__name__, error)
        except Exception:  # one bad connection never hurts the others; the log has the whole of it
            LOG.exception("a conversation failed")
        finally:
            if conversation is not None:
                self.consoles.discard(conversation)
            writer.close()

    async def admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Bridge | None:
        """Who comes in: only our own uid, and not too many. None when there is nothing more to say to it."""
        uid = door.peer_uid(writer.get_extra_info("socket"))
        if uid != os.getuid():
            LOG.warning("refused a connection of uid %d", uid)
            return None
        bridge = read_bridge(await asyncio.wait_for(reader.readuntil(b"\n"), BRIDGE_S))
        if bridge.supersedes(wire.PROTOCOL, wire.VERSION):
            LOG.info("giving way to %s", bridge)
            self.over.set()
            writer.write(b"going\n")
            return None
        writer.write(b"come in\n")
        if len(self.consoles) >= CONSOLES:
            writer.write(wire.encode(wire.Reply("", False, error=f"{CONSOLES} consoles are attached already")))
            return None
        return bridge


def serve(state: StateFolder, idle_s: float = IDLE_S) -> int:
    """Runs the daemon. Returns at once when there is one already. Raises Refusal when it cannot start."""
    os.umask(0o077)
    state.create()
    place = Door.of(state)
    place.check()
    try:
        first = probe.fork()
    except OSError as error:
        raise of_os_error(error, "cannot start the GPU probe", state.path) from error
    try:
        lock = door.hold(place.lock)
    except OSError as error:
        raise of_os_error(error, "cannot take the daemon's lock", place.lock) from error
    if lock is None:
        return 0
    set_up_log(state)
    try:
        asyncio.run(begin(state, place, idle_s, first))
    except OSError as error:
        raise of_os_error(error, "the agent cannot start", state.path) from error
    return 0


async def begin(state: StateFolder, place: Door, idle_s: float, first: Forked) -> None:
    daemon = Daemon(state, place, idle_s, first)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, daemon.over.set)
    await daemon.run()
    # threads that hang in a file system must not keep a daemon from ending
    logging.shutdown()
    os._exit(0)


def set_up_log(state: StateFolder) -> None:
    """A small rotated log; a disk too full for it must not end the daemon."""
    logging.raiseExceptions = False
    try:
        handler = logging.handlers.RotatingFileHandler(state.log, maxBytes=LOG_BYTES, backupCount=1)
    except OSError as error:
        raise of_os_error(error, "cannot open the log", state.log) from error
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    for log in (LOG, logging.getLogger("asyncio")):
        log.addHandler(handler)
        log.setLevel(logging.INFO)


def keep_last_words(state: StateFolder) -> None:
    """Whoever started us reads our stderr no longer; what may yet end us there belongs into the log."""
    handle = os.open(state.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.dup2(handle, 2)
    os.close(handle)


__all__ = ["Daemon", "Refusal", "serve"]
