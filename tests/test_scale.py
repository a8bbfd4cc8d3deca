"""Many nodes: one thread for all conversations, none of them held up by another, and a pace the console can bear."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import paramiko
import pytest

from agent import wire
from agent.conversation import Conversation
from console import known_hosts
from console.channel import Connection
from console.config import Config
from console.fleet import Node
from console.known_hosts import KnownHosts
from console.link import connector
from console.screens.fleet import node_cells
from console.session import Session
from console.sweeper import Sweeper
from console.widgets.paint import Line
from console.widgets.table import Table
from tests.bench.fleet import emulator
from tests.fakes.emulated import targets
from tests.fakes.mutation import AgentEnd
from tests.fakes.screen import app_of, console, painted, until
from tests.fakes.sitting import sitting

PATIENCE_S = 60.0


def wait(done: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_fleet_is_heard_on_one_thread_and_its_hung_nodes_are_noticed() -> None:
    nodes, hung = 24, 4
    with emulator(nodes) as (folder, port, orders):
        config = Config(tuple(targets(folder, nodes, port)), folder, folder)
        session = Session([one.name for one in config.nodes], connector(config))
        session.start()
        fleet = list(session.fleet.nodes.values())
        try:
            wait(lambda: session.pump() and all(node.live(time.monotonic()) and node.level > 1 for node in fleet))
            assert sum(one.name == "sweeper" for one in threading.enumerate()) == 1
            assert not [one for one in threading.enumerate() if one.name.startswith("link gpu")]
            assert session.ask("gpu0000", wire.ListRuns(0)).result(30).ok
            orders.write(f"freeze {hung}\n")
            orders.flush()
            wait(lambda: session.pump() and all(node.link.phase == "down" for node in fleet[-hung:]))
            assert all(node.live(time.monotonic()) for node in fleet[:-hung])
        finally:
            session.close()


def test_a_turn_that_does_not_come_back_holds_up_nobody() -> None:
    sweeper, release, turns = Sweeper(), threading.Event(), [0, 0]

    def stuck() -> float | None:
        turns[0] += 1
        release.wait(PATIENCE_S)
        return None

    def fine() -> float | None:
        turns[1] += 1
        return 5.0

    held, well = sweeper.seat(stuck), sweeper.seat(fine)
    wait(lambda: turns[0] == 1)

    def ring() -> bool:
        well.hasty = True
        well.set()
        held.set()
        return turns[1] >= 3

    wait(ring)
    assert turns[0] == 1, "and it is not called again while it is stuck"
    release.set()
    wait(lambda: held.turn is None)
    before = turns[1]
    well.set()
    wait(lambda: turns[1] > before)


def test_a_mistake_in_one_turn_ends_that_one_alone() -> None:
    sweeper, told, turns = Sweeper(), list[object](), [0]
    before, threading.excepthook = threading.excepthook, lambda args: told.append(args.exc_type)

    def wrong() -> float | None:
        raise ZeroDivisionError

    def fine() -> float | None:
        turns[0] += 1
        return 5.0

    try:
        bad, well = sweeper.seat(wrong), sweeper.seat(fine)
        wait(lambda: told and bad.turn is None)
        seen = turns[0]
        well.set()
        wait(lambda: turns[0] > seen)
        assert told == [ZeroDivisionError]
    finally:
        threading.excepthook = before


async def test_an_agent_keeps_the_pace_it_was_asked_for(tmp_path: Path) -> None:
    from agent.events import Events

    sent: list[wire.FromAgent] = []

    class Recorder(Conversation):
        async def send(self, message: wire.FromAgent) -> None:
            sent.append(message)

    node = AgentEnd(Events(tmp_path / "events.jsonl")).node
    hasty, calm = (Recorder(node, None, None, False) for _time in range(2))  # type: ignore[arg-type]
    calm.pace_s = 100.0
    for talk in (hasty, calm):
        before = len(sent)
        for _tick in range(3):
            node.tick()
            await talk.send_level()
            talk.acked = talk.n
        assert len(sent) - before == (3 if talk is hasty else 1)


def test_known_hosts_are_found_by_name_pattern_and_hash_in_the_order_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    lines = ["Plain,other ssh-rsa QUFB", "pl* ssh-rsa QkJC", "!plain,* ssh-rsa Q0ND", "[plain]:2222 ssh-rsa RERE"]
    file.write_text("\n".join(lines) + "\n")
    found = known_hosts.listing(file)
    assert [entry.blob for entry in found.covering("plain")] == [b"AAA", b"BBB"]
    assert [entry.blob for entry in found.covering("else")] == [b"CCC"]
    assert KnownHosts([file]).judge("plain", 2222, b"DDD").word == "known"
    file.write_text("plain ssh-rsa RUVF\n")
    assert KnownHosts([file]).judge("plain", 22, b"EEE").word == "known", "a changed file is read again"


async def test_a_table_makes_only_the_rows_in_sight(monkeypatch: pytest.MonkeyPatch) -> None:
    made: set[str] = set()

    def counted(node: Node, now: float) -> tuple[Line, ...]:
        made.add(node.name)
        return node_cells(node, now)

    monkeypatch.setattr("console.screens.fleet.node_cells", counted)
    names = [f"n{i:04d}" for i in range(300)]
    async with console(sitting(*names, runs=False, gpus=1), (100, 30)) as pilot:
        app = app_of(pilot)
        await until(pilot, lambda: "n0000" in painted(app) and app.screen.query_one("#nodes", Table).max_scroll_y > 100)
        assert len(made) < 40
        await pilot.press("G")
        await until(pilot, lambda: "n0299" in painted(app))
        assert len(made) < 80


def test_a_connection_over_one_that_is_gone_ends_without_a_word() -> None:
    """Its thread would else print a traceback over the screen."""

    class Gone:
        def settimeout(self, _seconds: float) -> None: ...

        def recv(self, _size: int) -> bytes:
            return b""

        def send(self, _data: bytes) -> int:
            raise EOFError

        def close(self) -> None:
            raise EOFError

    connection = Connection(Gone(), ())  # type: ignore[arg-type]
    with pytest.raises((paramiko.SSHException, EOFError)):
        connection.start_client(timeout=10)
    connection.join(10)
    assert not connection.is_alive()
