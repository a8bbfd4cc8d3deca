"""Steering a run by its keys: what each asks, what it sends, and what it says when it makes no sense."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Button, Input

from agent import wire
from console.app import TunedeckApp
from console.screens.dialogs import Notice, Question
from console.screens.export import AskExport
from console.screens.fleet import FleetScreen
from console.screens.new_run import NewRunScreen
from console.screens.rollback import RollBack
from console.screens.run import RunScreen
from console.screens.run_list import RunList
from console.screens.runs import RunsScreen
from console.screens.timeline import Timeline
from console.session import Conversation, Inbox
from console.widgets.editor import SpecEditor
from console.widgets.table import Table
from tests.fakes.screen import app_of, console, painted, shows, told, until
from tests.fakes.sitting import EXPORTED, PLAN, SPEC, MemoryLink, Sitting, back_and_on, sitting, snapshot

Link = Callable[[], MemoryLink]
LIVE, ENDED = "faults-lora-20261130-1", "qwen-dora-20261129-1"


def asked(link: Link, kind: type[wire.Body]) -> list[wire.Body]:
    return [body for body in link().asked if isinstance(body, kind)]


def started(**changes: object) -> tuple[Sitting, Link]:
    """A sitting of one node that has these things to tell."""
    sat = sitting("node1")
    connect = sat.session.connect

    def connected(name: str, inbox: Inbox) -> Conversation:
        made = connect(name, inbox)
        for key, value in changes.items():
            setattr(made, key, value)
        return made

    sat.session.connect = connected
    return sat, lambda: sat.links["node1"]


async def at_live_run(pilot: Pilot[None]) -> Timeline:
    """The Run screen of the live run, its snapshots listed."""
    await pilot.press("2", "enter")
    await until(pilot, lambda: isinstance(app_of(pilot).screen, RunScreen))
    timeline = app_of(pilot).screen.query_one(Timeline)
    await until(pilot, lambda: timeline.rows)
    return timeline


async def at_ended_run(pilot: Pilot[None]) -> Timeline:
    await pilot.press("2", "G", "enter")
    await until(pilot, lambda: isinstance(app_of(pilot).screen, RunScreen))
    timeline = app_of(pilot).screen.query_one(Timeline)
    await until(pilot, lambda: timeline.rows)
    return timeline


async def test_rollback_names_everything_and_defaults_to_no() -> None:
    sat, link = started()
    async with console(sat, (100, 40)) as pilot:
        await at_live_run(pilot)
        await pilot.press("B")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, RollBack))
        await shows(pilot, LIVE, "on node1", "from step 120/300", "step 100 (b0-s00000100)?")
        await shows(pilot, "20 steps are abandoned and stay as a branch.")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, RunScreen))
        assert asked(link, wire.Steer) == []


async def test_rollback_goes_to_the_chosen_snapshot_with_another_rate_and_other_data() -> None:
    sat, link = started()
    async with console(sat, (100, 40)) as pilot:
        await at_live_run(pilot)
        await pilot.press("j", "j", "B")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, RollBack))
        await shows(pilot, "b0-s00000050", "70 steps are abandoned")
        await pilot.press("shift+tab", "space", "shift+tab", *"5e-5", "enter", "y")
        await until(pilot, lambda: asked(link, wire.Steer))
        wanted = {"snapshot": "b0-s00000050", "lr": 5e-5, "skip_data": True}
        assert asked(link, wire.Steer) == [wire.Steer(LIVE, "rollback", wanted)]
        await until(pilot, lambda: "rollback is done" in told(app_of(pilot)))


@pytest.mark.parametrize(
    ("step", "words", "sent"),
    [
        ("80", "step 75 (b0-s00000075)?", {"snapshot": "b0-s00000075"}),
        ("7", "step 7 or before?", {"step": 7}),
        ("121", "Step 121 is ahead", None),
        ("", "Give the step to go back to.", None),
    ],
)
async def test_rollback_to_a_step_that_was_typed(step: str, words: str, sent: dict[str, object] | None) -> None:
    sat, link = started()
    async with console(sat, (100, 40)) as pilot:
        await at_live_run(pilot)
        await pilot.press("B")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, RollBack))
        app_of(pilot).screen.query_one("#step", Input).value = step
        await shows(pilot, words)
        assert app_of(pilot).screen.query_one("#yes", Button).disabled == (sent is None)
        await pilot.press("y")
        if sent is None:
            assert isinstance(app_of(pilot).screen, RollBack)
        else:
            await until(pilot, lambda: asked(link, wire.Steer) == [wire.Steer(LIVE, "rollback", sent)])


async def test_a_refused_rollback_is_told_in_the_words_of_the_job() -> None:
    sat, link = started()
    async with console(sat, (100, 40)) as pilot:
        await at_live_run(pilot)
        link().answers[wire.Steer] = wire.Reply(
            "o", False, error="snapshot b0-s00000100 has a damaged manifest", hint="H"
        )
        await pilot.press("B", "y")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, Notice))
        await shows(pilot, f"{LIVE} on node1: not done", "has a damaged manifest", "→ H")


async def test_the_branch_left_behind_shows_in_chart_and_timeline() -> None:
    listed = [snapshot(75, 1), snapshot(100), snapshot(50)]
    sat, link = started(records=back_and_on(50, 120, 95), snapshots=listed)
    async with console(sat, (160, 50)) as pilot:
        timeline = await at_live_run(pilot)
        await shows(pilot, "◆ 50", "step 120", "↶")
        assert timeline.cursor == "b1-s00000075"
        await pilot.press("j")
        await shows(pilot, "abandoned")
        await pilot.press("B")
        await shows(pilot, "70 steps are abandoned")  # the run was at 120; its branches part at 50
        assert not asked(link, wire.Steer)


async def test_refused_snapshots_are_shown_with_their_words() -> None:
    sat, _link = started(refused=[{"name": "b0-s00000110", "reason": "snapshot b0-s00000110 has a damaged manifest"}])
    async with console(sat, (160, 50)) as pilot:
        await at_live_run(pilot)
        await shows(pilot, "✕ unusable")
        await pilot.press("G")
        await shows(pilot, "a damaged")


async def test_space_pins_and_lets_go_and_v_verifies() -> None:
    sat, link = started()
    async with console(sat, (160, 50)) as pilot:
        await at_live_run(pilot)
        await pilot.press("space")
        await until(pilot, lambda: asked(link, wire.Pin) == [wire.Pin(LIVE, "b0-s00000100", True)])
        await until(pilot, lambda: painted(app_of(pilot)).count("⚑") == 2)
        await pilot.press("space")
        await until(pilot, lambda: asked(link, wire.Pin)[1:] == [wire.Pin(LIVE, "b0-s00000100", False)])
        await until(pilot, lambda: painted(app_of(pilot)).count("⚑") == 1)
        await pilot.press("v")
        await until(pilot, lambda: "every byte is as it was written" in told(app_of(pilot)))
        await shows(pilot, "· verified")


async def test_the_cursor_stays_on_the_newest_until_it_is_moved_and_escape_lets_it_go() -> None:
    sat, link = started()
    async with console(sat, (160, 50)) as pilot:
        timeline = await at_live_run(pilot)
        assert timeline.cursor == "b0-s00000100"
        link().snapshots.insert(0, snapshot(110))
        state = link().state
        link().tell(replace(state, runs={**state.runs, LIVE: replace(state.runs[LIVE], snapshot_step=110)}))
        await until(pilot, lambda: timeline.cursor == "b0-s00000110")
        await pilot.press("j", "j")
        link().snapshots.insert(0, snapshot(115))
        link().tell(replace(state, runs={**state.runs, LIVE: replace(state.runs[LIVE], snapshot_step=115)}))
        await until(pilot, lambda: len(timeline.rows) == 6)
        assert timeline.cursor == "b0-s00000075"
        await pilot.press("escape")
        await until(pilot, lambda: timeline.cursor == "b0-s00000115")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, RunsScreen))


async def test_snapshot_now_and_pause_are_orders_to_the_live_job() -> None:
    sat, link = started()
    async with console(sat, (160, 50)) as pilot:
        await at_live_run(pilot)
        await pilot.press("S")
        await until(pilot, lambda: "snapshot is done" in told(app_of(pilot)))
        await pilot.press("P")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, Question))
        await shows(pilot, f"Pause {LIVE} on node1 at step 120/300?", "It keeps its state in a snapshot")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, RunScreen))
        await pilot.press("P", "y")
        await until(pilot, lambda: "pause is done" in told(app_of(pilot)))
        assert asked(link, wire.Steer) == [wire.Steer(LIVE, "snapshot"), wire.Steer(LIVE, "pause")]


async def test_resume_shows_the_preflight_before_it_asks() -> None:
    sat, link = started()
    async with console(sat, (100, 40)) as pilot:
        await at_ended_run(pilot)
        await pilot.press("R")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, Question))
        assert asked(link, wire.Resume) == [wire.Resume(ENDED, "newest", check=True)]
        await shows(
            pilot,
            f"Resume {ENDED} on node1",
            "100? The steps up to 300 stay as a branch.",
            "inexact",
            "torch 2.12.0 → 2.13.0",
        )
        await shows(pilot, "cuda", "b0-s00000110 has a damaged manifest", "29.0 MiB to read, about 400 ms")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, RunScreen))
        assert len(asked(link, wire.Resume)) == 1
        await pilot.press("j", "R")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, Question))
        assert asked(link, wire.Resume)[1:] == [wire.Resume(ENDED, "b0-s00000075", check=True)]
        await pilot.press("y")
        await until(pilot, lambda: asked(link, wire.Resume)[2:] == [wire.Resume(ENDED, "b0-s00000100")])
        await until(pilot, lambda: "goes on from b0-s00000100" in told(app_of(pilot)))


async def test_a_user_who_went_elsewhere_is_not_asked_by_surprise() -> None:
    sat, link = started()
    async with console(sat, (100, 40)) as pilot:
        await at_ended_run(pilot)
        link().silent = True
        await pilot.press("R")
        await until(pilot, lambda: app_of(pilot).desk.pending)
        await pilot.press("n")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, NewRunScreen))
        app_of(pilot).desk.pending[0].future.set_result(wire.Reply("o", True, dict(PLAN)))
        await until(pilot, lambda: "press R there again" in told(app_of(pilot)))
        assert isinstance(app_of(pilot).screen, NewRunScreen)


async def test_a_resume_may_be_forced_where_the_node_only_has_doubts() -> None:
    sat, link = started()
    async with console(sat, (100, 40)) as pilot:
        await at_ended_run(pilot)
        link().answers[wire.Resume] = wire.Reply("o", False, {"kind": "does-not-fit"}, "needs 90 GiB, 80 free", "Wait.")
        await pilot.press("R")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, Question))
        await shows(pilot, f"Start {ENDED} on node1 anyway?", "needs 90 GiB, 80 free", "out of memory")
        del link().answers[wire.Resume]
        await pilot.press("y")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, Question))
        await shows(pilot, f"Resume {ENDED} on node1")
        await pilot.press("y")
        await until(pilot, lambda: len(asked(link, wire.Resume)) == 3)
        forced = [(body.check, body.force) for body in asked(link, wire.Resume) if isinstance(body, wire.Resume)]
        assert forced == [(True, False), (True, True), (False, True)]


async def test_a_changed_spec_is_forked_from_the_chosen_snapshot() -> None:
    sat, link = started()
    async with console(sat, (100, 40)) as pilot:
        link().answers[wire.ReadSpec] = wire.Reply("o", True, {"spec_text": SPEC})
        await at_ended_run(pilot)
        await pilot.press("j", "F")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, NewRunScreen))
        await shows(pilot, f"fork of {ENDED} from b0-s00000075")
        editor = app_of(pilot).screen.query_one(SpecEditor)
        assert editor.text == SPEC
        editor.load_text(SPEC + "rules: {on_nan: rollback}\n")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, RunScreen))
        await pilot.press("n")  # what was begun is kept, and what it is a fork of
        await shows(pilot, f"fork of {ENDED} from b0-s00000075")
        await pilot.press("ctrl+s")
        await until(pilot, lambda: asked(link, wire.Resume))
        changed = SPEC + "rules: {on_nan: rollback}\n"
        assert asked(link, wire.Resume) == [wire.Resume(ENDED, "b0-s00000075", fork=True, spec_text=changed)]
        assert not asked(link, wire.Launch)


@pytest.mark.parametrize("keys", ["2", "1 enter"])
async def test_rolled_back_from_a_list_the_question_comes_where_its_snapshots_are_seen(keys: str) -> None:
    sat, link = started()
    async with console(sat, (100, 40)) as pilot:
        await pilot.press(*keys.split())
        await until(pilot, lambda: isinstance(app_of(pilot).screen, RunList) and rows_of(pilot))
        await pilot.press("B")
        await shows(pilot, f"Roll {LIVE} on node1 back from step")
        await pilot.press("n")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, RunScreen))
        await pilot.pause(1.0)
        assert isinstance(app_of(pilot).screen, RunScreen), "it asks once"
        assert not asked(link, wire.Steer)


def rows_of(pilot: Pilot[None]) -> object:
    return app_of(pilot).screen.query_one(Table).cursor


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("2 enter R", "is live; B rolls it back, P pauses it."),
        ("2 G enter B", "has ended (failed); R lets it go on from a snapshot."),
        ("2 G enter S", "has ended (failed); R"),
        ("2 G P", "has ended (failed); R"),
    ],
)
async def test_in_the_wrong_state_it_says_why(keys: str, words: str) -> None:
    sat, link = started()
    async with console(sat, (100, 40)) as pilot:
        await pilot.press(*keys.split())
        await until(pilot, lambda: words in told(app_of(pilot)))
        assert not asked(link, wire.Steer)
        assert not asked(link, wire.Resume)


async def test_a_read_only_node_takes_no_orders() -> None:
    sat, link = started()
    async with console(sat, (100, 40)) as pilot:
        link().welcome(read_only=True)
        link().tell()
        await until(pilot, lambda: sat.session.fleet.nodes["node1"].read_only)
        await pilot.press("2", "enter", "B", "P", "S", "E", "space")
        await until(pilot, lambda: told(app_of(pilot)).count("open read-only") >= 4)
        assert not any(isinstance(body, wire.DESTRUCTIVE) for body in link().asked)


async def test_export_comes_to_a_folder_verified(tmp_path: Path) -> None:
    sat, link = started()
    async with console(sat, (100, 40)) as pilot:
        await at_live_run(pilot)
        await pilot.press("E")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, AskExport))
        await shows(pilot, "Export the newest snapshot of", f"{LIVE}-newest")
        app_of(pilot).screen.query_one("#folder", Input).value = str(tmp_path / "mine")
        await pilot.press("enter")
        await until(pilot, lambda: "every SHA-256 verified" in told(app_of(pilot)))
        assert "logits differ by at most 0" in told(app_of(pilot))
        assert {name: (tmp_path / "mine" / name).read_bytes() for name in EXPORTED} == EXPORTED
        assert asked(link, wire.Export) == [wire.Export(LIVE, "newest")]


async def test_an_export_that_arrives_damaged_is_no_success(tmp_path: Path) -> None:
    sat, link = started()
    async with console(sat, (100, 40)) as pilot:
        await at_live_run(pilot)
        block = {"base64": "AAAA", "next": 3, "size": len(EXPORTED["adapter_config.json"])}
        link().answers[wire.ReadExport] = wire.Reply("o", True, block)
        await pilot.press("E")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, AskExport))
        app_of(pilot).screen.query_one("#folder", Input).value = str(tmp_path / "mine")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, Notice))
        await shows(pilot, "was not exported", "arrived damaged")
        assert [entry.name for entry in (tmp_path / "mine").iterdir()] == [".tunedeck-partial"]


@pytest.mark.parametrize("kind", ["busy-gpus", "does-not-fit", "stale-gpus", "full-disk"])
async def test_a_launch_may_be_forced_where_the_node_only_has_doubts(kind: str) -> None:
    sat = sitting("node1", runs=False, demo=True)

    def link() -> MemoryLink:
        return sat.links["node1"]

    async with console(sat, (100, 40)) as pilot:
        link().answers[wire.Launch] = wire.Reply("o", False, {"kind": kind}, "2 GPUs wanted, 1 free", "Wait.")
        await pilot.press("n")
        await until(pilot, lambda: app_of(pilot).screen.query(SpecEditor))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, Question))
        await shows(pilot, "Launch faults-lora on node1 anyway?", "2 GPUs wanted, 1 free")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, NewRunScreen))
        await pilot.press("ctrl+s")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, Question))
        del link().answers[wire.Launch]
        await pilot.press("y")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, RunScreen))
        assert [body.force for body in asked(link, wire.Launch) if isinstance(body, wire.Launch)] == [
            False,
            False,
            True,
        ]


async def test_leaving_the_demo_asks_for_its_run_ends_with_it() -> None:
    sat = sitting("node1")
    app = TunedeckApp(lambda: sat.session, ends_runs=True, farewell=lambda _session: "")
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: app.desk.fleet.runs())
        await until(pilot, lambda: isinstance(app.screen, FleetScreen))
        await pilot.press("q")
        await until(pilot, lambda: isinstance(app.screen, Question))
        await shows(pilot, "End the demo?", LIVE, "at step 120/300, ends with it")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, FleetScreen))
        assert app.is_running
        await pilot.press("q", "y")
        await until(pilot, lambda: not app.is_running)


@pytest.mark.parametrize("answer", [{}, {"snapshot": 1}, {"snapshot": "x", "step": "y", "differences": []}])
async def test_an_answer_that_is_no_plan_is_no_question(answer: dict[str, object]) -> None:
    sat, link = started()
    async with console(sat, (100, 40)) as pilot:
        await at_ended_run(pilot)
        link().answers[wire.Resume] = wire.Reply("o", True, answer)
        await pilot.press("R")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, Notice))
        await shows(pilot, "no plan for a resume")


@pytest.mark.parametrize("answer", [{"snapshots": [{"name": "b0-s00000010"}]}, {"snapshots": 1}])
async def test_a_list_that_is_none_is_told_in_its_place(answer: dict[str, object]) -> None:
    sat, link = started()
    async with console(sat, (160, 50)) as pilot:
        link().answers[wire.ListSnapshots] = wire.Reply("o", True, answer)
        await pilot.press("2", "enter")
        await shows(pilot, "the node sent something that is")
        await pilot.press("B")
        await shows(pilot, "Give the step to go back to.")


async def test_an_export_outside_the_folder_is_refused(tmp_path: Path) -> None:
    sat, link = started()
    async with console(sat, (100, 40)) as pilot:
        await at_live_run(pilot)
        files = [{"path": "../evil", "bytes": 1, "sha256": "0" * 64}]
        link().answers[wire.Export] = wire.Reply("o", True, {"folder": "e1", "files": files})
        await pilot.press("E")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, AskExport))
        app_of(pilot).screen.query_one("#folder", Input).value = str(tmp_path / "mine")
        await pilot.press("enter")
        await shows(pilot, "which is no place in a folder")
        assert not list(tmp_path.iterdir())


async def test_a_long_question_scrolls_and_its_answers_stay_in_sight() -> None:
    sat, link = started()
    async with console(sat, (80, 24)) as pilot:
        await at_ended_run(pilot)
        many = [f"package-{n} 1.0 → 2.0" for n in range(60)]
        link().answers[wire.Resume] = wire.Reply("o", True, {**PLAN, "differences": many})
        await pilot.press("R")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, Question))
        await shows(pilot, "Resume it (y)", "package-0")
        await pilot.press(*["down"] * 40)
        await shows(pilot, "Resume it (y)", "29.0 MiB to read")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, RunScreen))
