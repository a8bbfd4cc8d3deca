"""72 hours of ticks without the waiting: what agent and console hold on to, and what their journals come to.

python -m tests.bench.soak [--hours 72] [--bar]

The console takes in every tick. The agent's tick reads /proc and the disk, so unless --full is given it does every
fifteenth; its events and orders are those of the whole time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

ROOT = Path(__file__).resolve().parent.parent.parent
AGENT_EVERY = 15
EVENT_EVERY_TICKS = 20
ORDERS = 1800
"""More than the book of orders keeps; all in the first half of the time"""
SAMPLES = 40
GROWTH_BAR_MIB = 1.0
JOURNALS_BAR_MIB = 16.0


def unique_mib() -> float:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


class Scale:
    """Weighs this process at even distances."""

    def __init__(self, ticks: int) -> None:
        self.every, self.found = max(1, ticks // SAMPLES), list[float]()

    def tick(self, number: int) -> None:
        if number % self.every == 0:
            self.found.append(unique_mib())

    def verdict(self) -> dict[str, float]:
        """Growth: by how much the last quarter goes beyond everything before it, when all that fills up is full."""
        cut = len(self.found) * 3 // 4
        growth = max(self.found[cut:]) - max(self.found[:cut])
        return {"first_mib": self.found[0], "last_mib": self.found[-1], "growth_mib": growth}


async def agent(ticks: int, every: int, folder: Path) -> dict[str, float]:
    """Machine, journals, book of orders and consoles that come and go; no daemon around them."""
    from agent import wire
    from agent.conversation import Conversation
    from agent.desk import Desk
    from agent.events import Events
    from agent.node import Machine
    from agent.orders import OrderBook
    from agent.probe import Probe
    from agent.state import StateFolder
    from tests.fakes.emulated import Emulated
    from tests.fakes.mutation import Sink

    state = StateFolder(folder, "soak")
    state.create()
    events = Events(state.events)
    probe = Probe()
    machine = Machine(state, events, probe)
    book = OrderBook(state, Desk(machine), events)
    node = Emulated(0, events, book)
    scale = Scale(ticks // every)

    class Quiet(Conversation):
        async def send(self, message: wire.FromAgent) -> None:
            wire.encode(message)

    def visit() -> Conversation:
        return Quiet(node, asyncio.StreamReader(), cast(asyncio.StreamWriter, Sink()), read_only=False)

    console, ordered, told = visit(), 0, 0
    for number in range(ticks // every):
        node.tick()
        probe.sample = replace(probe.sample, gpus=dict(wire.from_tree(node.tree).gpus))
        while told < number * every // EVENT_EVERY_TICKS:
            told += 1
            events.add("run.warning", f"something happened at {number}", "warn", f"run-{told % 50}")
        machine.read()
        node.tree = machine.tree | {"gpus": node.tree["gpus"]}
        if number % 500 == 0:
            console = visit()
        await console.send_events()
        await console.send_level()
        console.acked = console.n
        while ordered < min(ORDERS, 2 * ORDERS * number // (ticks // every)):
            ordered += 1
            await book.take(wire.Order(f"order-{ordered}", 5.0, wire.Cordon(ordered % 2 == 0)), "ann", False)
        scale.tick(number)
    sizes = [path.stat().st_size for path in state.path.iterdir() if path.is_file()]
    return {**scale.verdict(), "journals_mib": sum(sizes) / 2**20, "ticks": ticks // every}


def console(ticks: int) -> dict[str, float]:
    """One node's lines through talk, session and model, with a keyframe a minute and an event now and then."""
    from agent import wire
    from agent.events import Events
    from agent.orders import OrderBook
    from console.outbox import Outbox
    from console.session import Conversation, Inbox, Session
    from console.talk import Position, Talk
    from tests.fakes.emulated import Emulated
    from tests.fakes.mutation import Pipe

    node, pipe = Emulated(0, cast(Events, None), cast(OrderBook, None)), Pipe()
    session = Session(["n"], lambda _name, _inbox: cast(Conversation, None))
    inbox: Inbox = session.inbox
    talk = Talk(pipe, Outbox(lambda: None), Position(), lambda message: inbox.append(("n", message)), b"")
    pipe.waiting.append(wire.encode(wire.Welcome(wire.PROTOCOL, "1", "n", "b", "s", 0)))
    trees = [node.tree]
    for _step in range(127):
        node.tick()
        trees.append(node.tree)
    ends = [wire.difference(before, now) for before, now in zip(trees[-1:] + trees[:-1], trees, strict=True)]
    scale, seq = Scale(ticks), 0
    for number in range(ticks):
        keyframe = number % 60 == 0
        changed, gone = (trees[number % 128], []) if keyframe else ends[number % 128]
        pipe.waiting.append(wire.encode(wire.Level(number + 1, keyframe, 1.0 * number, 1.0 * number, changed, gone)))
        if number % EVENT_EVERY_TICKS == 0:
            seq += 1
            pipe.waiting.append(wire.encode(wire.Event("s", seq, 1.0, "run.warning", f"at {number}", "warn", "run")))
        talk.turn()
        session.pump()
        scale.tick(number)
    assert session.fleet.nodes["n"].level == ticks and not session.fleet.nodes["n"].broken
    return {**scale.verdict(), "ticks": ticks}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=72.0)
    parser.add_argument("--full", action="store_true", help="every tick of the agent, too; takes some minutes")
    parser.add_argument("--bar", action="store_true", help="exit 1 when anything grows")
    parser.add_argument("--child", choices=("agent", "console"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    ticks = int(options.hours * 3600)
    if options.child == "console":
        print(json.dumps(console(ticks)))
        return 0
    if options.child == "agent":
        with tempfile.TemporaryDirectory(prefix="td-soak-") as place:
            print(json.dumps(asyncio.run(agent(ticks, 1 if options.full else AGENT_EVERY, Path(place)))))
        return 0
    began = time.monotonic()
    words = ["--hours", str(options.hours), *(["--full"] if options.full else [])]
    children = {
        who: subprocess.Popen(
            [sys.executable, "-m", "tests.bench.soak", "--child", who, *words],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for who in ("agent", "console")
    }
    found: dict[str, dict[str, Any]] = {who: json.loads(child.communicate()[0]) for who, child in children.items()}
    for who, figures in found.items():
        print(f"{who:8}" + "  ".join(f"{name} {value:.2f}" for name, value in figures.items()))
    print(f"{options.hours:g} h in {time.monotonic() - began:.0f} s")
    rows = [(f"{who} grows, MiB", figures["growth_mib"], GROWTH_BAR_MIB) for who, figures in found.items()]
    rows.append(("journals, MiB", found["agent"]["journals_mib"], JOURNALS_BAR_MIB))
    for name, value, bar in rows:
        print(f"{'ok  ' if value <= bar else 'MISS'} {name:24} {value:8.2f}  bar {bar:g}")
    return int(options.bar and any(value > bar for _name, value, bar in rows))


if __name__ == "__main__":
    sys.exit(main())
