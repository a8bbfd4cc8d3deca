"""What a broken or hostile peer sends costs nothing but its own connection, and does nothing to the screen."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import wire
from agent.codec import DEPTH_LIMIT, harmless
from agent.desk import Desk
from agent.events import Events
from agent.node import Machine
from agent.orders import OrderBook
from agent.probe import Probe
from agent.state import StateFolder
from console.screens.log import LogScreen
from console.screens.node import NodeScreen
from tests.fakes.mutation import AgentEnd, ConsoleEnd, Mutator, batches, from_agent, from_console
from tests.fakes.screen import app_of, console, painted, shows
from tests.fakes.sitting import GIB, gpu, node_state, run_state, sitting

EVIL = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x1b[0m\x9b5n\r\u202eevil\x00\x08[bold]b[/]"
RUN = "faults-lora-20261130-1"


@pytest.fixture
def seed() -> int:
    chosen = random.randrange(1 << 30)
    print(f"seed {chosen}")
    return chosen


def test_a_console_bears_every_line(seed: int) -> None:
    mutator, end = Mutator(seed, from_agent()), ConsoleEnd()
    for number in range(6000):
        end.take(mutator.line())
        if number % 20 == 0:
            end.painted()
    assert end.took > 100, "enough of it was near enough to a message to be taken in"


def test_an_agent_bears_every_line(seed: int, tmp_path: Path) -> None:
    mutator, end = Mutator(seed, from_console()), AgentEnd(Events(tmp_path / "events.jsonl"))
    for _batch in range(30):
        asyncio.run(end.take(batches(mutator, 200)))
    assert end.took > 100


def test_no_order_of_whatever_content_makes_the_agent_fail(seed: int, tmp_path: Path) -> None:
    """The real book and desk, read-only: what would change something is refused and written down."""
    state = StateFolder(tmp_path, "node")
    state.create()
    events = Events(state.events)
    end = AgentEnd(events, OrderBook(state, Desk(Machine(state, events, Probe())), events))
    mutator = Mutator(seed, [line for line in from_console() if b"Order" in line])
    for _batch in range(6):
        asyncio.run(end.take(batches(mutator, 150)))
        assert [one.error for one in end.replies if "the agent failed" in one.error] == []
    assert end.took > 50


NESTED = st.recursive(st.none() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=2), max_leaves=5)


@given(NESTED, st.integers(0, 60))
def test_the_quick_look_passes_nothing_that_the_thorough_one_would_change(value: object, depth: int) -> None:
    for _level in range(depth):
        value = [value, "]["]
    line = wire.encode(value)
    assert not harmless(line) or (depth <= DEPTH_LIMIT and "\x7f" not in line.decode())


@pytest.mark.parametrize("name", ["host", "gpu", "process", "run", "event"])
async def test_escape_sequences_of_a_node_do_nothing_on_the_screen(name: str) -> None:
    sat = sitting("node1")
    card = gpu(0, 0.5, 50.0, name=EVIL if name == "gpu" else "H100")
    card = replace(card, processes=(wire.GpuProcess(77, GIB, EVIL if name == "process" else "python", EVIL),))
    state = node_state("node1", 1, (run_state(RUN, name=EVIL if name == "run" else "run"),))
    host = wire.Host(hostname=EVIL if name == "host" else "h", gpu_note=EVIL, cordon=EVIL)
    level = wire.Level(9, True, 0.0, 0.0, wire.to_tree(wire.NodeState(host, {card.uuid: card}, state.runs)))
    event = wire.Event("s1", 50, 1.0, "k", EVIL if name == "event" else "fine", "warn")
    async with console(sat, (160, 50)) as pilot:
        for message in (level, event):
            sat.session.inbox.append(("node1", wire.read_from_agent(wire.encode(message))))
        app = app_of(pilot)
        for screen in (None, NodeScreen(app.desk, "node1")):
            if screen is not None:
                app.push_screen(screen)
            await shows(pilot, "red")
            harmless_on(painted(app))


async def test_escape_sequences_of_a_log_do_nothing_on_the_screen() -> None:
    sat = sitting("node1")
    reply = wire.Reply("o", True, {"text": f"{EVIL}\nlast\n", "next": 9, "size": 9, "ranks": [0]})
    back = wire.read_from_agent(wire.encode(reply))
    assert isinstance(back, wire.Reply)
    async with console(sat) as pilot:
        sat.links["node1"].answers[wire.Logs] = back
        app = app_of(pilot)
        app.push_screen(LogScreen(app.desk, "node1", RUN))
        await shows(pilot, "red", "last")
        harmless_on(painted(app))


def harmless_on(screen: str) -> None:
    assert "owned" not in screen
    left = {character for character in screen if character != "\n" and not character.isprintable()}
    assert left <= {"\u202f"}, f"{left!r}"
