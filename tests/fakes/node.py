"""A node on this machine: its own home, its own door, a console that speaks the wire by a real `attach`."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from agent import keepers, kept, reexec, wire
from agent.door import Door
from agent.kept import Kept
from agent.state import StateFolder
from jobs import durable
from jobs.identity import ProcessIdentity
from jobs.run_folder import RunFolder

T = TypeVar("T")
STANDIN = Path(__file__).with_name("standin.py")
PATIENCE_S = 60.0


def until(what: Callable[[], T | None], patience_s: float = PATIENCE_S) -> T:
    """The first truthy value of `what`."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        value = what()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {patience_s:.0f} s: {what}")


def variables(folder: Path) -> dict[str, str]:
    return {"TUNEDECK_HOME": str(folder / "home"), "TUNEDECK_RUNTIME": str(folder / "door")}


class Node:
    """Everything below `folder`; the processes of this node bear its door in their environment.

    The test's own environment must name the home and the door already: keepers and daemons inherit it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runtime = folder / "door"
        self.consoles: list[Console] = []
        self.state = StateFolder.locate()
        self.door = Door.of(self.state)

    def console(self, *arguments: str, hello: wire.Hello | None = None) -> Console:
        one = Console(arguments, hello)
        self.consoles.append(one)
        return one

    def daemon(self) -> ProcessIdentity:
        """The process that holds the daemon's lock."""
        return until(lambda: self.find_daemon())

    def find_daemon(self) -> ProcessIdentity | None:
        try:
            return ProcessIdentity.of(int(self.door.lock.read_text()))
        except (OSError, ValueError):
            return None

    def prepare(self, mode: str, ranks: int = 2, name: str = "standin") -> RunFolder:
        """A run folder as a launch leaves it, with the stand-in for its launcher."""
        self.state.create()
        folder = RunFolder.inside(self.state.runs, f"{name}-{uuid.uuid4().hex[:6]}")
        staging = RunFolder(self.state.runs / f".{folder.name}")
        staging.create()
        record = {
            "run": folder.name,
            "name": name,
            "created_unix": time.time(),
            "argv": [sys.executable, str(STANDIN), "launch", str(folder.path), str(ranks), mode],
            "environment": {"STANDIN": mode},
            "world_size": ranks,
            "gpu_uuids": [],
            "launched_by": "test",
        }
        durable.write_json(staging.record, record)
        staging.path.rename(folder.path)
        return folder

    def start(self, mode: str, ranks: int = 2, name: str = "standin") -> RunFolder:
        """A run that has got as far as all its ranks having written who they are."""
        folder = self.prepare(mode, ranks, name)
        keepers.start(folder)
        until(lambda: len(kept.rank_records(folder)) == ranks or self.ended(folder))
        return folder

    def ended(self, folder: RunFolder) -> Kept | None:
        now = kept.read(folder)
        return now if now and now.phase == "ended" else None

    def processes(self) -> list[int]:
        """Live processes that belong to this node, this one excepted."""
        mark = f"TUNEDECK_RUNTIME={self.runtime}".encode()
        return [pid for pid in pids() if pid != os.getpid() and mark in environ(pid) and ProcessIdentity.of(pid)]

    def close(self) -> None:
        for console in self.consoles:
            console.close()
        while left := self.processes():
            for pid in left:
                who = ProcessIdentity.of(pid)
                if who:
                    who.send(signal.SIGKILL)
            time.sleep(0.02)
        for child in keepers.CHILDREN:
            child.wait()
        keepers.CHILDREN.clear()


def pids() -> Iterator[int]:
    yield from (int(entry.name) for entry in os.scandir("/proc") if entry.name.isdecimal())


def environ(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


class Console:
    """Speaks to `attach` and collects what comes back."""

    def __init__(self, arguments: tuple[str, ...] = (), hello: wire.Hello | None = None) -> None:
        self.process = subprocess.Popen(
            reexec.command("attach", *arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
        )
        self.tree: dict[str, Any] = {}
        self.levels: list[wire.Level] = []
        self.events: list[wire.Event | wire.Gap] = []
        self.replies: dict[str, wire.Reply] = {}
        self.welcomes: queue.Queue[wire.Welcome] = queue.Queue()
        self.acks = True
        self.over = threading.Event()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        self.send(hello or wire.Hello(wire.PROTOCOL, wire.VERSION, "tester@here"))

    def send(self, message: wire.FromConsole) -> None:
        self.raw(wire.encode(message))

    def raw(self, line: bytes) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(line)
            self.process.stdin.flush()
        except BrokenPipeError:
            return

    def read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.take(wire.read_from_agent(line))
        self.over.set()

    def take(self, message: wire.FromAgent) -> None:
        if isinstance(message, wire.Level):
            self.tree = (
                message.changed if message.keyframe else wire.apply_difference(self.tree, message.changed, message.gone)
            )
            self.levels.append(message)
            if self.acks:
                self.send(wire.Ack(message.n))
        elif isinstance(message, wire.Reply):
            self.replies[message.order] = message
        elif isinstance(message, wire.Welcome):
            self.welcomes.put(message)
        else:
            self.events.append(message)

    def welcome(self) -> wire.Welcome:
        return self.welcomes.get(timeout=PATIENCE_S)

    def give(self, body: wire.Body, order_id: str = "", deadline_s: float = PATIENCE_S) -> str:
        order_id = order_id or uuid.uuid4().hex
        self.send(wire.Order(order_id, deadline_s, body))
        return order_id

    def ask(self, body: wire.Body, order_id: str = "", deadline_s: float = PATIENCE_S) -> wire.Reply:
        given = self.give(body, order_id, deadline_s)
        return until(lambda: self.replies.pop(given, None))

    def state(self) -> wire.NodeState:
        return wire.from_tree(self.tree)

    def run_phase(self, run: str) -> str:
        return str(self.tree.get("runs", {}).get(run, {}).get("phase"))

    def numbered(self) -> list[wire.Event]:
        return [event for event in list(self.events) if isinstance(event, wire.Event)]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.reader.join()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                continue
