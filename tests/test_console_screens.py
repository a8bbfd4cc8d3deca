"""The console driven by its keys, over a real session whose links answer from memory."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from textual.app import ComposeResult
from textual.widgets import Button, Select

from agent import wire
from console.app import TunedeckApp, runs_go_on
from console.screens.desk import Desk
from console.screens.dialogs import Notice, Question
from console.screens.fleet import FleetScreen
from console.screens.log import LogScreen
from console.screens.new_run import NewRunScreen
from console.screens.node import NodeScreen
from console.screens.run import RunScreen
from console.screens.runs import RunsScreen
from console.widgets.editor import SpecEditor
from console.widgets.levels import fullest
from console.widgets.table import Table
from tests.fakes.screen import app_of, console, painted, shows, told, until
from tests.fakes.sitting import SPEC, gpu, node_state, run_state, sitting

RUN = "faults-lora-20261130-1"


def asked(sat: object, kind: type[wire.Body]) -> list[wire.Body]:
    links = getattr(sat, "links", {})
    return [body for link in links.values() for body in link.asked if isinstance(body, kind)]


async def test_fleet_shows_every_figure_with_its_unit() -> None:
    async with console(sitting("node1", "node2"), (160, 50)) as pilot:
        await shows(pilot, "● live", "12 ms", "37%", "95%!", "70°C", "16.0/80.0 GiB", "100 W / 700 W", "1.14 MiB/s")
        await shows(pilot, "SIMULATED", "2/2 nodes", "1 run", "no alerts", "CUDA out of memory on rank 1")


async def test_a_node_that_is_down_says_since_when_and_why() -> None:
    sat = sitting("node1", "node2")
    async with console(sat) as pilot:
        sat.links["node2"].live("down", why="connection refused", hint="is it on?")
        await shows(pilot, "✕ down", "1 alert!", "1/2 nodes")
        await pilot.press("j")
        await shows(pilot, "down for", "connection refused", "→ is it on?")


async def test_unknown_is_a_dash() -> None:
    sat = sitting("node1", runs=False)
    async with console(sat, (160, 50)) as pilot:
        sat.links["node1"].tell(wire.NodeState(gpus={"GPU-1": wire.Gpu("GPU-1", 0, "A100")}))
        await until(pilot, lambda: "A100" in painted(app_of(pilot)))
        row = next(line for line in painted(app_of(pilot)).splitlines() if "● live" in line and "node1" in line)
        assert row.count("–") >= 5
        assert "0%" not in row


async def test_a_lost_gpu_blanks_one_card_only() -> None:
    sat = sitting("node1", runs=False)
    async with console(sat, (160, 50)) as pilot:
        cards = {"GPU-1": gpu(0, 0.5, 70), "GPU-2": replace(gpu(1, 0.5, 70), uuid="GPU-2", lost="GPU is lost")}
        sat.links["node1"].tell(replace(node_state("node1"), gpus=cards))
        await shows(pilot, "✕ GPU is lost", "40.0/80.0 GiB", "1 alert!", "node1!")


WORN = {
    "sm_active_percent": 71.0,
    "sm_clock_max_mhz": 1980.0,
    "temperature_slowdown_c": 89.0,
    "temperature_memory_c": 66.0,
    "pcie_gen": 5,
    "pcie_width": 16,
    "nvlinks": 18,
    "nvlinks_down": 2,
    "ecc_corrected": 41,
    "ecc_uncorrected": 1,
    "remapped_rows": 1,
    "remap_pending": 1,
    "xid": 94,
    "xids_hardware": 1,
    "memory_reserved_bytes": 600 << 20,
}


async def test_a_card_tells_its_health_and_its_instances() -> None:
    sat = sitting("node1", runs=False)
    async with console(sat, (200, 50)) as pilot:
        parts = (wire.MigInstance("MIG-7", "3g.40gb", 40 << 30, 10 << 30),)
        cards = {"GPU-1": replace(gpu(0, 0.5, 70), mig=parts, **WORN)}  # type: ignore[arg-type]
        sat.links["node1"].tell(replace(node_state("node1"), gpus=cards))
        await pilot.press("enter")
        await shows(pilot, "Xid 94", "ECC 1!", "bad memory waits for a reset", "2 NVLinks down")
        await shows(
            pilot, "SM busy 71%", "slows at 89 °C", "PCIe 5x16", "NVLink 16/18", "ECC 41/1", "held back 600 MiB"
        )
        await shows(pilot, "MIG 3g.40gb", "10.0/40.0 GiB")


async def test_a_node_shows_who_ordered_what() -> None:
    sat = sitting("node1")
    entry = {"unix": 1.0, "operator": "ann@laptop", "verb": "kill", "run": RUN, "step": 88, "outcome": "done"}
    refused = {**entry, "verb": "\x1b[31mroll back", "step": None, "outcome": "the run has ended"}
    async with console(sat, (160, 70)) as pilot:
        sat.links["node1"].answers[wire.ReadAudit] = wire.Reply("o", True, {"entries": [entry, refused, "nonsense"]})
        await pilot.press("enter")
        await shows(pilot, "Orders", f"kill {RUN} step 88  ann@laptop  done", "roll back", "the run has ended")
        assert [body.limit for body in asked(sat, wire.ReadAudit) if isinstance(body, wire.ReadAudit)][:1] == [8]


async def test_a_narrow_screen_tells_what_is_wrong_and_leaves_the_rest_out() -> None:
    sat = sitting("node1", runs=False)
    async with console(sat, (80, 24)) as pilot:
        cards = {"GPU-1": replace(gpu(0, 0.5, 70), **WORN)}  # type: ignore[arg-type]
        sat.links["node1"].tell(replace(node_state("node1"), gpus=cards))
        await pilot.press("enter")
        await shows(pilot, "Xid 94", "ECC 1!")
        assert "SM busy" not in painted(app_of(pilot))


async def test_enter_drills_in_and_escape_comes_back_and_never_quits() -> None:
    async with console(sitting("node1")) as pilot:
        app = app_of(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, NodeScreen))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, RunScreen))
        await pilot.press("l")
        await until(pilot, lambda: isinstance(app.screen, LogScreen))
        for _press in range(6):
            await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, FleetScreen))
        assert app.is_running


async def test_sections_switch_and_absent_ones_say_so() -> None:
    async with console(sitting("node1")) as pilot:
        app = app_of(pilot)
        await pilot.press("enter", "2")
        await until(pilot, lambda: isinstance(app.screen, RunsScreen))
        await pilot.press("1")
        await until(pilot, lambda: app.current_mode == "fleet")
        await pilot.press("1")
        await until(pilot, lambda: isinstance(app.screen, FleetScreen))
        await pilot.press("6")
        await until(pilot, lambda: "Costs: this version has no such section yet." in told(app_of(pilot)))


async def test_run_screen_has_figures_charts_log_and_events() -> None:
    sat = sitting("node1")
    async with console(sat, (160, 50)) as pilot:
        await pilot.press("2", "enter")
        await shows(pilot, "training", "120/300", "40%", "ETA 2m 31s", "1.834", "834 tok/s", "840 ms", "1.20e-4")
        await shows(pilot, "host memory rank 0 1.90 GiB", "Loss", "Throughput", "step 120", "step 120/300 loss 1.800")
        await shows(pilot, "step time doubled", "live")
        await pilot.press("right_square_bracket")
        await shows(pilot, "Log, rank 1")


async def test_what_a_screen_followed_is_let_go() -> None:
    sat = sitting("node1")
    async with console(sat) as pilot:
        await pilot.press("2", "enter")
        await until(pilot, lambda: sat.session.fleet.histories and sat.session.fleet.tails)
        await pilot.press("l")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, LogScreen))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, RunScreen))
        assert sat.session.fleet.tails, "the screen behind still reads it"
        await pilot.press("escape")
        await until(pilot, lambda: not sat.session.fleet.tails and not sat.session.fleet.histories)


async def test_log_follows_until_one_scrolls_up() -> None:
    async with console(sitting("node1"), (80, 24)) as pilot:
        await pilot.press("2", "l")
        await shows(pilot, "following", "step 120/300")
        await pilot.press("g")
        await shows(pilot, "held", "Warning: no GPU seen")
        await pilot.press("G")
        await shows(pilot, "following", "step 120/300")


async def test_kill_names_what_it_kills_and_defaults_to_no() -> None:
    sat = sitting("node1")
    async with console(sat) as pilot:
        app = app_of(pilot)
        await pilot.press("2", "X")
        await until(pilot, lambda: isinstance(app.screen, Question))
        await shows(pilot, RUN, "on node1", "at step 120/300")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, RunsScreen))
        assert asked(sat, wire.Kill) == []


async def test_kill_asks_the_node_and_tells_what_it_proved() -> None:
    sat = sitting("node1")
    async with console(sat) as pilot:
        await pilot.press("2", "X", "y")
        await until(pilot, lambda: asked(sat, wire.Kill))
        assert asked(sat, wire.Kill) == [wire.Kill(RUN, 20.0)]
        await until(pilot, lambda: "3 processes proved gone after 2.1 s" in told(app_of(pilot)))
        await shows(pilot, "◼ killed")
        await pilot.press("g", "X")
        await until(pilot, lambda: "has already ended" in told(app_of(pilot)))


async def test_processes_that_stay_alive_are_no_success() -> None:
    sat = sitting("node1")
    async with console(sat) as pilot:
        left = {"reason": "killed", "gone": [1], "alive": [4711], "seconds": 61.0}
        sat.links["node1"].answers[wire.Kill] = wire.Reply("o", True, left)
        await pilot.press("2", "X", "y")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, Notice))
        await shows(pilot, "Still alive", "4711")


async def test_an_order_in_flight_shows() -> None:
    sat = sitting("node1")
    async with console(sat, (120, 30)) as pilot:
        sat.links["node1"].silent = True
        await pilot.press("2", "X", "y")
        await shows(pilot, "⋯ killing faults-lora on node1")


async def test_a_read_only_node_cannot_be_ordered_from_here() -> None:
    sat = sitting("node1")
    async with console(sat) as pilot:
        sat.links["node1"].welcome(read_only=True)
        sat.links["node1"].tell()
        await until(pilot, lambda: sat.session.fleet.nodes["node1"].read_only)
        await pilot.press("2", "X")
        await until(pilot, lambda: "read-only" in told(app_of(pilot)))
        assert asked(sat, wire.Kill) == []


async def test_the_demo_is_one_key_away_and_enter_starts_it() -> None:
    sat = sitting("node1", "node2", runs=False, demo=True)
    async with console(sat, (80, 24)) as pilot:
        await shows(pilot, "Press n: LoRA fine-tune of smollm2-135m", "on node1")
        await pilot.press("n")
        await shows(pilot, "✓ the spec is valid on node1", "300 steps")
        await pilot.press("enter")
        await until(pilot, lambda: asked(sat, wire.Launch))
        launch = asked(sat, wire.Launch)[0]
        assert isinstance(launch, wire.Launch)
        assert launch.spec_text == SPEC
        await until(pilot, lambda: isinstance(app_of(pilot).screen, RunScreen))
        await shows(pilot, "faults-lora-new", "starting")


async def test_a_wrong_spec_is_told_by_line_and_not_launched() -> None:
    sat = sitting("node1", runs=False, demo=True)
    async with console(sat, (80, 24)) as pilot:
        await pilot.press("n")
        await until(pilot, lambda: app_of(pilot).screen.query(SpecEditor))
        screen = app_of(pilot).screen
        screen.query_one(SpecEditor).load_text(SPEC.replace("steps", "stebs"))
        await shows(pilot, "✕ line 6: train.stebs is not a setting", "Did you mean `steps`?")
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "The spec has an error" in told(app_of(pilot)))
        assert screen.query_one("#launch", Button).disabled
        assert asked(sat, wire.Launch) == []


async def test_a_refused_launch_shows_error_and_hint_as_plain_text() -> None:
    sat = sitting("node1", runs=False, demo=True)
    async with console(sat) as pilot:
        refusal = wire.Reply("o", False, error="spec.yaml:2: model [bold]x[/] is not there", hint="Copy it there [/b].")
        sat.links["node1"].answers[wire.Launch] = refusal
        await pilot.press("n", "enter")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, Notice))
        await shows(pilot, "Nothing was started on node1", "model [bold]x[/] is not there", "→ Copy it there [/b].")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, NewRunScreen))
        assert not app_of(pilot).screen.query_one("#launch", Button).disabled


async def test_a_spec_can_be_read_from_a_file_and_a_missing_one_is_told(tmp_path: Path) -> None:
    spec = tmp_path / "mine.yaml"
    spec.write_text(SPEC.replace("300", "77"), encoding="utf-8")
    async with console(sitting("node1", runs=False)) as pilot:
        await pilot.press("n")
        await until(pilot, lambda: app_of(pilot).screen.query("#path"))
        path = app_of(pilot).screen.query_one("#path")
        path.focus()
        await pilot.press(*str(spec), "enter")
        await shows(pilot, "Spec: mine.yaml", "77 steps")
        path.focus()
        await pilot.press("x", "enter")
        await shows(pilot, "The file was not read", "No such file")


async def test_a_draft_survives_leaving_the_screen() -> None:
    async with console(sitting("node1", runs=False, demo=True)) as pilot:
        app = app_of(pilot)
        await pilot.press("n", "ctrl+e")
        await until(pilot, lambda: isinstance(app.focused, SpecEditor))
        await pilot.press("x", "escape")
        await until(pilot, lambda: isinstance(app.screen, FleetScreen))
        await pilot.press("n")
        await until(pilot, lambda: app.screen.query(SpecEditor))
        assert app.screen.query_one(SpecEditor).text.startswith("x")
        assert app.screen.query_one("#node", Select).value == "node1"


async def test_filter_narrows_and_escape_clears() -> None:
    async with console(sitting("node1", "node2", "gpu-lab-03")) as pilot:
        table = app_of(pilot).screen.query_one("#nodes", Table)
        await pilot.press("slash", *"LAB")
        await until(pilot, lambda: [row.key for row in table.rows] == ["gpu-lab-03"])
        await pilot.press("enter")
        await until(pilot, lambda: table.has_focus)
        await shows(pilot, "2 filtered out")
        await pilot.press("escape")
        await until(pilot, lambda: len(table.rows) == 3)


async def test_the_cursor_stays_with_its_row() -> None:
    sat = sitting("node1")
    async with console(sat) as pilot:
        await pilot.press("2", "G")
        table = app_of(pilot).screen.query_one("#runs", Table)
        await until(pilot, lambda: (table.cursor or "").endswith("qwen-dora-20261129-1"))
        state = sat.links["node1"].state
        new = run_state("new-run", name="new")
        sat.links["node1"].tell(replace(state, runs={**state.runs, "new-run": new}))
        await until(pilot, lambda: len(table.rows) == 3)
        assert (table.cursor or "").endswith("qwen-dora-20261129-1")
        assert table.index == 2


async def test_pause_holds_the_screen_and_says_so() -> None:
    sat = sitting("node1")
    async with console(sat) as pilot:
        await pilot.press("p")
        await shows(pilot, "PAUSED")
        state = sat.links["node1"].state
        sat.links["node1"].tell(replace(state, host=replace(state.host, cpu_percent=99.0)))
        await until(pilot, lambda: sat.session.fleet.nodes["node1"].state.host.cpu_percent == 99.0)
        app_of(pilot).tick()
        await pilot.pause()
        assert "99%" not in painted(app_of(pilot))
        await pilot.press("p")
        await shows(pilot, "99%")


async def test_help_lists_the_keys_of_the_screen_in_front() -> None:
    async with console(sitting("node1"), (100, 50)) as pilot:
        await pilot.press("2", "enter")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, RunScreen))
        await pilot.press("question_mark")
        await shows(pilot, "The whole log of this run", "Stop this run; asks first", "Everywhere", "Leave; runs go on")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, RunScreen))


async def test_palette_finds_nodes_runs_and_actions() -> None:
    async with console(sitting("node1", "node2")) as pilot:
        await pilot.press("ctrl+p")
        await until(pilot, lambda: app_of(pilot).screen.query("Input"))
        await pilot.press(*"node2")
        await shows(pilot, "node node2")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, NodeScreen))
        await shows(pilot, "Node  node2")


async def test_names_are_shown_as_they_are_not_as_markup() -> None:
    sat = sitting("node1", "[red]x[/]")
    async with console(sat, (160, 50)) as pilot:
        state = node_state("node1", 1, (run_state("r1", name="[b]run[/b] @click=quit"),))
        sat.links["node1"].tell(state)
        sat.links["node1"].event(9, "run.error", "[link=x]text[/link] [", "critical", "r1")
        await shows(pilot, "[red]x[/]", "[b]run[/b]", "[link=x]text[/link] [")
        await pilot.press("j", "enter")
        await shows(pilot, "Node  [red]x[/]")
        await pilot.press("n")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, NewRunScreen))


@pytest.mark.parametrize("keys", ["3", "enter", "2", "2 enter", "2 l", "n enter", "2 X", "question_mark", "ctrl+p"])
async def test_any_size_at_any_moment(keys: str) -> None:
    async with console(sitting("node1", "node2")) as pilot:
        await pilot.press(*keys.split())
        for size in ((160, 50), (20, 5), (1, 1), (300, 90), (80, 24)):
            await pilot.resize_terminal(*size)
            app_of(pilot).tick()
            await pilot.pause()
        rows = painted(app_of(pilot)).splitlines()
        assert len(rows) == 24


async def test_both_themes_paint() -> None:
    async with console(sitting("node1")) as pilot:
        app = app_of(pilot)
        assert app.theme == "tunedeck-dark"
        await pilot.press("T")
        await until(pilot, lambda: app.theme == "tunedeck-light")
        await shows(pilot, "node1")


async def test_without_colour_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with console(sitting("node1"), (160, 50)) as pilot:
        assert app_of(pilot).no_color
        await shows(pilot, "● live", "95%!", "‼ node1", "▌node1")


async def test_a_session_that_cannot_be_opened_is_told() -> None:
    def factory() -> None:
        raise ValueError("fleet.yaml:3: no such key [b]hots[/b]")

    app = TunedeckApp(factory)  # type: ignore[arg-type]
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "fleet.yaml:3: no such key [b]hots[/b]" in painted(app))
        await pilot.press("n")
        assert app.is_running


async def test_first_paint_does_not_wait_for_the_session() -> None:
    opened = threading.Event()
    sat = sitting("node1")

    def factory() -> object:
        assert opened.wait(20)
        return sat.session

    app = TunedeckApp(factory, desk=Desk.expecting(["node1"]))  # type: ignore[arg-type]
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "Opening the links" in painted(app))
        assert "▌node1" in painted(app)
        assert "◌ connecting" in painted(app)
        await pilot.press("2", "question_mark", "escape", "1", "n", "ctrl+p", "escape", "enter", "E", "X", "escape")
        opened.set()
        await until(pilot, lambda: app.desk.session is sat.session)
        await asyncio.to_thread(app.opener.join)


async def test_leaving_says_that_runs_go_on() -> None:
    sat = sitting("node1")
    async with console(sat) as pilot:
        assert runs_go_on(sat.session) == f"1 run goes on: {RUN} on node1"
        await pilot.press("q")
        await until(pilot, lambda: not app_of(pilot).is_running)
    assert runs_go_on(None) == ""


async def test_a_screen_taken_away_before_it_was_whole_does_no_harm() -> None:
    class Bare(RunScreen):
        def compose(self) -> ComposeResult:
            yield from ()

    async with console(sitting("node1")) as pilot:
        app_of(pilot).push_screen(Bare(app_of(pilot).desk, "node1", "any"))
        await pilot.pause()
        app_of(pilot).pop_screen()
        await shows(pilot, "node1")


def test_two_cards_as_full_as_each_other_under_one_name() -> None:
    cards = [wire.Gpu("GPU-1", index, memory_total_bytes=10, memory_used_bytes=5) for index in (0, 1)]
    assert fullest(cards) in cards


@pytest.mark.parametrize("turns", range(0, 60, 6))
async def test_leaving_while_a_screen_is_being_made_does_no_harm(turns: int) -> None:
    """So many turns of the loop after it was opened; an exception in a handler fails the test on the way out."""
    async with console(sitting("node1")) as pilot:
        app_of(pilot).push_screen(RunScreen(app_of(pilot).desk, "node1", "any"))
        for _turn in range(turns):
            await asyncio.sleep(0)
    assert not app_of(pilot).is_running
