"""No key crashes any screen in any state: random keys while nodes come, go and talk. The seed is printed."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot

from agent import wire
from console.bindings import TABLE
from tests.fakes.screen import app_of, console
from tests.fakes.sitting import MemoryLink, Sitting, node_state, run_state, sitting

PRESSES = int(os.environ.get("TUNEDECK_KEYS", "240"))
LEAVING = {"q", "ctrl+q"}
OTHERS = [
    "space",
    "backspace",
    "delete",
    "shift+tab",
    "a",
    "Z",
    "é",
    "千",
    "ctrl+a",
    "ctrl+k",
    "ctrl+c",
    "ctrl+z",
    "f1",
    "0",
]
KEYS = sorted({one for key in TABLE for one in key.keys.split(",")} - LEAVING) + OTHERS
STRANGE: list[dict[str, object]] = [
    {},
    {"snapshots": [{"name": "b0-s00000010"}], "refused": []},
    {"snapshots": [], "refused": [{"name": "x", "reason": "r"}, {"name": "b-s", "reason": ""}]},
    {"label": "?", "differences": ["a", 1], "open": [2], "refused": [3], "forecast_s": "x", "bytes": None, "step": 1},
    {"files": [{"path": "../x", "bytes": 1, "sha256": "0"}], "folder": 1},
    {"files": "none"},
]
SIZES = [(80, 24), (160, 50), (40, 10), (12, 4), (121, 37)]


def churn(dice: random.Random, link: MemoryLink) -> None:
    """Something happens to a node."""
    happening = dice.randrange(8)
    if happening == 0:
        link.live("down", why="no route to host", hint="look")
    elif happening == 1:
        link.live(dice.choice(["connecting", "carrying", "stale", "live", "strange"]))
    elif happening == 2:
        link.welcome(read_only=dice.random() < 0.3)
        link.tell(wire.NodeState())
    elif happening == 3:
        runs = tuple(
            run_state(f"r{i}", dice.choice(["training", "ended", "unknown", ""]), None)
            for i in range(dice.randrange(4))
        )
        link.welcome()
        link.tell(node_state(link.name, dice.randrange(9), runs))
    elif happening == 4:
        link.event(
            dice.randrange(1000), "x", "words " * dice.randrange(40), dice.choice(["info", "warn", "critical", "?"])
        )
    elif happening == 5:
        link.answers[wire.Kill] = wire.Reply("o", dice.random() < 0.5, {"alive": [1]}, "error", "hint")
        doubts = {"run": "r1", "kind": dice.choice(["busy-gpus", "does-not-fit", "other", 1])}
        link.answers[wire.Launch] = wire.Reply("o", dice.random() < 0.5, doubts, "error", "")
        for kind in (wire.Steer, wire.Resume, wire.Export, wire.ListSnapshots):
            link.answers.pop(kind, None)
            if dice.random() < 0.5:
                link.answers[kind] = wire.Reply("o", dice.random() < 0.5, dict(dice.choice(STRANGE)), "error", "hint")
    elif happening == 6:
        link.silent = not link.silent
    else:
        link.live()
        link.tell(replace(link.state, host=replace(link.state.host, cpu_percent=dice.random() * 100)))


async def play(pilot: Pilot[None], dice: random.Random, sat: Sitting, presses: int) -> list[str]:
    pressed: list[str] = []
    for _press in range(presses):
        key = dice.choice(KEYS)
        pressed.append(key)
        await pilot.press(key)
        if dice.random() < 0.2:
            churn(dice, dice.choice(list(sat.links.values())))
        if dice.random() < 0.03:
            await pilot.resize_terminal(*dice.choice(SIZES))
        assert app_of(pilot).is_running
    return pressed


@pytest.mark.parametrize("player", [0, 1])
async def test_no_key_crashes_the_console(player: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # an export goes below the working directory
    seed = int(os.environ.get("TUNEDECK_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
    print(f"TUNEDECK_SEED={seed} player {player}")
    dice = random.Random(seed + player)
    sat = sitting("node1", "node2", "node3", demo=dice.random() < 0.5)
    async with console(sat) as pilot:
        await play(pilot, dice, sat, PRESSES // 2)
        assert app_of(pilot).return_code in (None, 0)
