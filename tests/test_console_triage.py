"""Triage by its key: evidence from the node, the verdict, a quoted line in its place, and what can be done about it."""

from __future__ import annotations

import base64
import io
import json
import tarfile
from pathlib import Path

import pytest
from textual.pilot import Pilot

from agent import wire
from agent.triage import triage
from console.__main__ import main
from console.failure import Failure
from console.incident import kept
from console.screens.dialogs import Question
from console.screens.quote import QuoteScreen
from console.screens.run import RunScreen
from console.screens.triage import TriageScreen
from console.widgets.table import Table
from tests.fakes.screen import app_of, console, shows, told, until
from tests.fakes.sitting import sitting
from tests.triage_grading import CORPUS

CASE = CORPUS / "t041"
ENDED = "qwen-dora-20261129-1"


def packed(case: Path) -> str:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        tar.add(case, "run-1")
    return base64.b64encode(buffer.getvalue()).decode()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


async def at_verdict(pilot: Pilot[None]) -> None:
    await pilot.press("2", "G", "enter")
    await until(pilot, lambda: isinstance(app_of(pilot).screen, RunScreen))
    await shows(pilot, "t tells why")
    await pilot.press("t")
    await until(pilot, lambda: isinstance(app_of(pilot).screen, TriageScreen))


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
async def test_the_verdict_its_evidence_and_the_remedy(size: tuple[int, int]) -> None:
    sat = sitting("node1")
    async with console(sat, size) as pilot:
        answer = {"archive": packed(CASE), "files": 3, "left_out": ["node/dmesg: not permitted"]}
        sat.links["node1"].answers[wire.Evidence] = wire.Reply("o", True, answer)
        await at_verdict(pilot)
        await shows(pilot, "gpu.fell-off-bus", "gpu-c08, GPU 3, rank 11", "drain the node")
        assert wire.Evidence(ENDED, alias="node1") in sat.links["node1"].asked
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, QuoteScreen))
        await shows(pilot, "dmesg_gpu-c08.txt", "▶", "Xid")
        await pilot.press("escape", "C")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, Question))
        await shows(pilot, "Keep new runs off node1?")
        await pilot.press("enter")
        assert not [body for body in sat.links["node1"].asked if isinstance(body, wire.Cordon)], "the default is No"


async def test_a_quoted_line_far_down_is_in_sight() -> None:
    async with console(sitting("node1"), (80, 24)) as pilot:
        app = app_of(pilot)
        texts = [f"line {number} of the log" for number in range(1, 3001)]
        app.push_screen(QuoteScreen(app.desk, "logs/rank-0.log", texts, 2000))
        await shows(pilot, "▶  2000 line 2000 of the log", "1995 line 1995")


async def test_a_saved_incident_triages_the_same_elsewhere(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sat = sitting("node1")
    async with console(sat, (100, 40)) as pilot:
        sat.links["node1"].answers[wire.Evidence] = wire.Reply("o", True, {"archive": packed(CASE)})
        await at_verdict(pilot)
        await shows(pilot, "gpu.fell-off-bus")
        await pilot.press("w", "w")
        await until(pilot, lambda: len(list(home.iterdir())) == 2)
        await until(pilot, lambda: "reads it anywhere" in told(app_of(pilot)))
    saved = sorted(home.iterdir())
    assert [oct(one.stat().st_mode & 0o777) for one in saved] == ["0o600", "0o600"]
    assert main(["triage", "--json", str(saved[0])]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["faults"][0]["kind"] == "gpu.fell-off-bus"
    assert said["faults"][0]["culprit"] == triage([CASE]).as_json()["faults"][0]["culprit"]


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (wire.Reply("o", False, error="there is no run like that", hint="Look again."), "there is no run like that"),
        (wire.Reply("o", True, {"archive": "%%%"}), "something that is no evidence"),
        (wire.Reply("o", True, {}), "no evidence that can be kept"),
        (wire.Reply("o", True, {"archive": base64.b64encode(b"no archive").decode()}), "no evidence that can be kept"),
        (wire.Reply("o", True, {"archive": base64.b64encode(b"\x1f\x8bno").decode()}), "nothing could be read"),
    ],
)
async def test_what_is_no_evidence_is_told_and_may_be_asked_for_again(reply: wire.Reply, words: str) -> None:
    sat = sitting("node1")
    async with console(sat, (100, 40)) as pilot:
        link = sat.links["node1"]
        link.answers[wire.Evidence] = reply
        await at_verdict(pilot)
        await shows(pilot, words)
        await pilot.press("enter", "y")
        link.answers[wire.Evidence] = wire.Reply("o", True, {"archive": packed(CASE)})
        await pilot.press("t")
        await shows(pilot, "gpu.fell-off-bus")
        assert app_of(pilot).screen.query_one(Table).rows


def test_the_name_of_an_archive_never_leaves_its_folder(tmp_path: Path) -> None:
    made = kept({"archive": packed(CASE)}, "../../etc/x", 0.0, tmp_path / "incidents")
    assert made.archive == tmp_path / "incidents" / "incident-etcx-19700101-000000.tar.gz"
    assert oct(made.archive.parent.stat().st_mode & 0o777) == "0o700"
    with pytest.raises(Failure, match="no evidence"):
        kept({"archive": ""}, "run", 0.0, tmp_path)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["here", "incidents"]
