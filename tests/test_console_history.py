"""A node's past on its screen: fetched once, continued with what the node tells, and never made up."""

from __future__ import annotations

import csv
import json
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent import wire
from console.commands.history import blocks, read, seconds
from console.failure import Failure
from console.screens.past import POINTS, WINDOWS_S, Past
from console.screens.strips import LEAST, past_lines, rows_for
from console.widgets.paint import cells
from tests.fakes.node import until as until_true
from tests.fakes.screen import app_of, console, painted, shows, until
from tests.fakes.sitting import GIB, Sitting, gpu, node_state, sitting
from tests.hosts.sshd import Sshd, running
from tests.test_exec import tunedeck

BUSY = "GPU-0000/utilisation_percent"
HELD = "GPU-0000/memory_used_bytes"


def told(first: float, series: dict[str, Any], note: str = "") -> wire.Reply:
    return wire.Reply("o", True, {"step_s": 30.0, "unix": first, "series": series, "note": note})


def history(sat: Sitting, name: str, series: dict[str, list[float | None]], note: str = "") -> None:
    """An hour up to now."""
    first = (time.time() // 30 - POINTS + 1) * 30
    sat.links[name].answers[wire.ReadHistory] = told(first, series, note)


def asked(sat: Sitting, name: str) -> list[wire.ReadHistory]:
    return [body for body in sat.links[name].asked if isinstance(body, wire.ReadHistory)]


def rising(count: int = POINTS) -> list[float | None]:
    return [100.0 * i / count for i in range(count)]


async def test_charts_are_fetched_once_and_continued() -> None:
    sat = sitting("node1")
    async with console(sat, (160, 50)) as pilot:
        history(sat, "node1", {BUSY: rising(), HELD: [40.0 * GIB] * POINTS, "host/cpu_percent": rising()})
        await pilot.press("enter")
        await shows(pilot, "History, 1 h", "history and live", "Host CPU", "1 h ago", "now")
        rows = [line.split("││")[-1] for line in painted(app_of(pilot)).splitlines()]
        assert any("0 SIMULATED H100" in row and "memory" in row and "16.0/80.0 GiB" in row for row in rows)
        for _ in range(5):
            sat.links["node1"].tell(replace(sat.links["node1"].state, gpu_age_s=0.0))
            await pilot.pause(0.1)
        first = asked(sat, "node1")
        assert len(first) == 1, "not each second again"
        assert {BUSY, HELD, "host/cpu_percent"} < set(first[0].series) and first[0].since_s == 3600
        await pilot.press("h")
        await shows(pilot, "History, 6 h", "6 h ago")
        for shown in ("1 d", "14 d", "1 h"):
            await pilot.press("h")
            await shows(pilot, f"History, {shown}", f"{shown} ago")
        await until(pilot, lambda: [body.since_s for body in asked(sat, "node1")] == [*WINDOWS_S, WINDOWS_S[0]])


async def test_a_new_connection_is_asked_again_for_what_was_missed() -> None:
    sat = sitting("node1")
    async with console(sat, (160, 50)) as pilot:
        history(sat, "node1", {BUSY: rising()})
        await pilot.press("enter")
        await until(pilot, lambda: len(asked(sat, "node1")) == 1)
        sat.links["node1"].live("down", why="connection refused")
        await shows(pilot, "history, stale")
        sat.links["node1"].live()
        sat.links["node1"].welcome()
        sat.links["node1"].tell()
        await until(pilot, lambda: len(asked(sat, "node1")) == 2)
        await shows(pilot, "history and live")


async def test_an_older_agent_is_told_in_a_sentence_and_drawing_begins_now() -> None:
    sat = sitting("node1")
    refusal = wire.Reply("o", False, error="this node does not understand: message.body: none of […]")
    async with console(sat, (160, 50)) as pilot:
        sat.links["node1"].answers[wire.ReadHistory] = refusal
        await pilot.press("enter")
        await shows(pilot, "an older one that keeps no", "drawn is", "Host CPU")
        assert "none of" not in painted(app_of(pilot))
        assert len(asked(sat, "node1")) == 1


async def test_what_the_node_says_of_a_paused_history_is_shown() -> None:
    sat = sitting("node1")
    async with console(sat, (160, 50)) as pilot:
        history(sat, "node1", {BUSY: rising()}, note="no history is kept: the disk is full (/home/x)")
        await pilot.press("enter")
        await shows(pilot, "no history is kept: the disk is full")


async def test_a_narrow_terminal_has_no_charts_and_asks_for_none() -> None:
    sat = sitting("node1")
    async with console(sat, (80, 24)) as pilot:
        await pilot.press("enter")
        await shows(pilot, "Host node1.example")
        await pilot.press("h")
        assert "History" not in painted(app_of(pilot)) and asked(sat, "node1") == []


def test_live_figures_go_on_where_history_ends() -> None:
    past = Past()
    first = 1_800_000_000.0
    column: list[float | None] = [10.0] * 119 + [None]
    past.take(told(first, {BUSY: column, HELD: column}))
    now = first + 119 * 30
    state = node_state("n", 1)
    card = gpu(0, 0.5, 80.0)
    past.go_on(replace(state, gpus={card.uuid: card}), now + 1)
    past.go_on(replace(state, gpus={card.uuid: replace(card, utilisation_percent=40.0)}), now + 2)
    assert past.columns[BUSY][-3:] == [10, 10, 60] and past.columns[HELD][-1] == 40 * GIB
    past.go_on(replace(state, gpus={card.uuid: replace(card, memory_used_bytes=GIB)}), now + 3)
    assert past.columns[HELD][-1] == 40 * GIB, "of memory the largest"
    past.go_on(replace(state, gpus={card.uuid: replace(card, utilisation_percent=None)}), now + 95)
    assert past.columns[BUSY][-4] == pytest.approx(200 / 3) and all(map(math.isnan, past.columns[BUSY][-3:]))
    assert len(past.columns[BUSY]) == POINTS
    past.go_on(replace(state, gpus={card.uuid: card}, gpu_age_s=9.0), now + 96)
    assert math.isnan(past.columns[BUSY][-1]), "a driver that hangs tells nothing"
    past.go_on(replace(state, gpus={card.uuid: card}), now + 10**8)
    assert [value for value in past.columns[BUSY] if value == value] == [80]
    past.go_on(replace(state, gpus={card.uuid: card}), now)
    assert len(past.columns[BUSY]) == POINTS


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"step_s": 0, "unix": 0, "series": {}},
        {"step_s": math.nan, "unix": 0, "series": {}},
        {"step_s": 30, "unix": math.inf, "series": {}},
        {"step_s": 30, "unix": 0, "series": []},
        {"step_s": 30, "unix": 0, "series": {"x": 5}},
        {"step_s": "x", "unix": 0, "series": {}},
    ],
)
def test_what_is_no_history_is_said(result: dict[str, Any]) -> None:
    past = Past()
    past.take(wire.Reply("o", True, result))
    assert "no history" in past.trouble
    past.take(told(5.0, {"host/cpu_percent": [1.0, None, True, "x", {}, 2.0]}))
    assert past.trouble == "" and past.columns["host/cpu_percent"][-1] == 2.0


def test_every_size_is_filled_and_never_overrun() -> None:
    node = sitting("node1").session.fleet.nodes["node1"]
    past = Past()
    for cards in (0, 1, 4, 8, 16):
        node.state = node_state("node1", cards)
        past.go_on(node.state, 1_800_000_000.0)
        for width in (1, 23, 24, 40, 63, 120):
            for height in (0, 1, 2, 3, 4, 7, 12, 20, 40, 60):
                lines = past_lines(past, node, width, height, True)
                assert len(lines) <= height and all(cells(line) <= width for line in lines)
        assert len(rows_for(past, node.state, LEAST * (cards + 1))) == cards + 1
        if cards > 1:
            assert len(rows_for(past, node.state, 2 * LEAST)) == 2, "all cards as one, and the machine"


@pytest.mark.parametrize("text", ["", "5", "h", "-1h", "0s", "15d", "1e9s", "1w", "nand"])
def test_a_time_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(Failure, match="no time up to 14 days"):
        seconds(text)
    assert (seconds("90s"), seconds("1.5h"), seconds("14d")) == (90, 5400, 14 * 86400)


def test_a_row_of_blocks_leaves_out_what_is_not_known() -> None:
    assert blocks([0.0, 50.0, None, 100.0]) == "▁▄ █"
    assert len(blocks([1.0] * 300)) == 40 and blocks([0.0]) == "▁"
    assert read({"series": {"a/b": [None], "c/d": ["x", 1, math.nan], "e": 5}}) == {"c/d": [None, 1, None]}
    with pytest.raises(Failure, match="no history"):
        read({"series": [1]})


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Sshd]:
    with running(Sshd(tmp_path / "host")) as one:
        yield one


def test_the_command_on_a_real_node(server: Sshd) -> None:
    def told_of(*words: str) -> str:
        done = tunedeck(server, "history", "-w", "n1", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    until_true(lambda: "host     ram used" in told_of("n1"))
    answer = json.loads(told_of("--json", "--since", "2m"))
    assert answer["node"] == "n1" and answer["step_s"] == 1
    rows = list(csv.reader(told_of("--csv", "--since", "1m", "--series", "host/ram_used_bytes").splitlines()))
    assert rows[0] == ["time", "host/ram_used_bytes"] and len(rows) == 61
    assert any(int(row[1]) > GIB // 4 for row in rows[1:] if row[1]) and any(not row[1] for row in rows[1:])
    wrong = tunedeck(server, "history", "-w", "n1", "--series", "host/nonsense")
    assert wrong.returncode == 1 and "is no series" in wrong.stderr and "cpu_percent" in wrong.stderr
    assert tunedeck(server, "history", "-w", "n1", "--since", "soon").returncode == 2
