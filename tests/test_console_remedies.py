"""From a verdict on: a quoted line in the log it is from, going on without the card at fault, looking at it again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot

from agent import excerpt, wire
from agent.interpreters import Interpreter
from agent.launch import Surroundings, pick_gpus
from agent.state import StateFolder
from console.screens.dialogs import Notice, Question
from console.screens.place import PlaceScreen
from console.screens.quote import QuoteScreen
from console.screens.triage import TriageScreen
from jobs.run_folder import RunFolder
from jobs.spec import Spec, SpecError
from tests.fakes.screen import app_of, console, shows, told, until
from tests.fakes.sitting import Sitting, sitting
from tests.test_console_triage import CASE, ENDED, at_verdict, packed

HEAD = [f"step {number}/900 loss 1.5" for number in range(1, 400)]
FALL = ["Traceback (most recent call last):", "[rank1]: ValueError: row 17 is bad"]
LOG = "\n".join([*HEAD, *FALL]) + "\n"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def failed(tmp_path: Path) -> Path:
    logs = tmp_path / "run" / "logs"
    logs.mkdir(parents=True)
    (logs / "rank-1.log").write_text(LOG)
    (logs / "rank-0.log").write_text("step 1/900 loss 1.5\n")
    return logs.parent


def answering(sat: Sitting, archive: Path, texts: list[str]) -> None:
    """`texts`: the log as it is on the node by now, from the line on that is asked for."""
    answers = sat.links["node1"].answers
    answers[wire.Evidence] = wire.Reply("o", True, {"archive": packed(archive)})
    text = "\n".join(texts)
    answers[wire.Logs] = wire.Reply("o", True, {"text": text, "next": 9, "size": 9, "ranks": [0, 1], "line": 201})


def triage_screen(pilot: Pilot[None]) -> TriageScreen:
    screen = app_of(pilot).screen
    assert isinstance(screen, TriageScreen)
    return screen


async def quoted(pilot: Pilot[None]) -> None:
    await at_verdict(pilot)
    await shows(pilot, "row 17 is bad")
    await pilot.press("enter")


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
async def test_a_quoted_line_in_the_log_on_the_node(size: tuple[int, int], failed: Path) -> None:
    sat = sitting("node1")
    async with console(sat, size) as pilot:
        answering(sat, failed, [*HEAD[200:], *FALL, "more that came since"])
        await quoted(pilot)
        await until(pilot, lambda: isinstance(app_of(pilot).screen, PlaceScreen))
        await shows(pilot, "▶   401", "row 17 is bad", "held at line 401; f follows", "more that came since")
        assert wire.Logs(ENDED, 1, line=201) in sat.links["node1"].asked
        await pilot.press("f")
        await shows(pilot, "rank 1, following")
        await pilot.press("escape")
        triage_screen(pilot)


async def test_a_log_that_says_something_else_by_now_gives_way_to_the_copy(failed: Path) -> None:
    sat = sitting("node1")
    async with console(sat, (100, 30)) as pilot:
        answering(sat, failed, ["written anew since"])
        await quoted(pilot)
        await until(pilot, lambda: isinstance(app_of(pilot).screen, QuoteScreen))
        await shows(pilot, "▶   401", "row 17 is bad", "rank-1.log, line 401")


def test_a_log_from_a_line_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(excerpt, "LIMIT_BYTES", 4096)
    folder = RunFolder.inside(tmp_path, "run")
    folder.create()
    folder.rank_log(0).write_text("".join(f"Zeile {n} über etwas\n" for n in range(1, 2001)))
    for line in (1, 2, 150, 151, 1999, 2000):
        answer = excerpt.log(folder, wire.Logs("run", 0, limit_bytes=64, line=line))
        assert answer["text"].startswith(f"Zeile {line} über") and answer["line"] == line
    assert excerpt.log(folder, wire.Logs("run", 0, line=3000))["line"] is None
    assert excerpt.log(folder, wire.Logs("run", 7, line=2))["line"] is None


async def test_going_on_without_the_card_at_fault() -> None:
    sat = sitting("node1")
    async with console(sat, (100, 40)) as pilot:
        link = sat.links["node1"]
        run = replace(link.state.runs[ENDED], gpu_uuids=tuple(f"GPU-{n:04d}" for n in range(12)))
        link.tell(replace(link.state, runs={**link.state.runs, ENDED: run}))
        link.answers[wire.Evidence] = wire.Reply("o", True, {"archive": packed(CASE)})
        await at_verdict(pilot)
        await shows(pilot, "rank 11")
        await pilot.press("W")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, Question))
        await shows(pilot, "Left alone: GPU-0011.")
        await pilot.press("y")
        asked = [body for body in link.asked if isinstance(body, wire.Resume)]
        assert [(body.check, body.without_gpus) for body in asked] == [(True, ("GPU-0011",)), (False, ("GPU-0011",))]


async def test_no_card_is_left_out_where_none_is_at_fault(failed: Path) -> None:
    sat = sitting("node1")
    async with console(sat, (100, 40)) as pilot:
        answering(sat, failed, [])
        await at_verdict(pilot)
        await shows(pilot, "row 17 is bad")
        await pilot.press("W", "c")
        await until(pilot, lambda: "blames no card" in told(app_of(pilot)))
        assert "There is no check for what this verdict blames." in told(app_of(pilot))
        assert not [body for body in sat.links["node1"].asked if isinstance(body, (wire.Resume, wire.RunChecks))]


async def test_looking_again_at_the_part_at_fault() -> None:
    sat = sitting("node1")
    async with console(sat, (100, 40)) as pilot:
        link = sat.links["node1"]
        link.answers[wire.Evidence] = wire.Reply("o", True, {"archive": packed(CASE)})
        checks = [
            {"family": "gpus", "name": "lost", "health": "fault", "reason": "GPU 3 is lost", "action": "Reboot."},
            {"family": "pcie", "name": "width", "health": "good", "reason": "full width"},
        ]
        link.answers[wire.RunChecks] = wire.Reply("o", True, {"checks": checks, "seconds": 0.1})
        await at_verdict(pilot)
        await shows(pilot, "gpu.fell-off-bus")
        await pilot.press("c")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, Notice))
        await shows(
            pilot, "The blamed part of node1 now", "fault: gpus, GPU 3 is lost. Reboot.", "looks at node1 alone"
        )
        asked = next(body for body in link.asked if isinstance(body, wire.RunChecks))
        assert asked.families == ("gpus", "pcie", "nvlink")


def test_a_card_left_alone_is_not_chosen_even_by_force() -> None:
    cards = {f"GPU-{n}": wire.Gpu(f"GPU-{n}", n, memory_used_bytes=0) for n in range(3)}
    around = Surroundings(StateFolder(Path("/nowhere"), "node"), cards, 0.0, "", frozenset({"GPU-0"}))
    spec = Spec.parse("model: m\ndata: {path: d}\nhardware: {processes: 2}\n")
    python = Interpreter("/usr/bin/python3", "13.0")
    assert pick_gpus(spec, python, around.without(["GPU-1"]), force=True) == ["GPU-0", "GPU-2"]
    with pytest.raises(SpecError, match="1 usable"):
        pick_gpus(spec, python, around.without(["GPU-1", "GPU-2"]), force=True)
