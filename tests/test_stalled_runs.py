"""Trainings that stand still or lose a rank for real: noticed by their steps, asked, and judged from the run folder."""

from __future__ import annotations

import base64
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent import kept, stall, wire
from agent.triage import triage
from agent.triage.verdict import Fault
from agent.vigil import Vigil
from jobs.progress import Progress
from jobs.run_folder import RunFolder
from tests import trainings
from tests.fakes import astray
from tests.fakes.node import Node, variables
from tests.test_jobs_session import Home, ranks, records, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    monkeypatch.setattr(stall, "LEAST_S", 4.0)
    made = Home(tmp_path, trainings.MODEL, trainings.make_data(tmp_path))
    yield made
    for process in made.started:
        if process.poll() is None:
            process.kill()  # ranks die with it, also those that are stopped
        process.wait(60)


def start(home: Home, name: str, count: int, act: str = "") -> tuple[RunFolder, subprocess.Popen[bytes], Vigil]:
    folder = home.run(name, home.spec(f"hardware: {{processes: {count}}}\n"))
    if act:
        folder.script.write_text(astray.script(act))
    vigil = Vigil.from_now(folder)
    return folder, home.launch(folder), vigil


def asked(vigil: Vigil) -> bool:
    vigil.look()
    return vigil.asked is not None and not vigil.asked.is_alive()


def judged(folder: RunFolder) -> Fault:
    verdict = triage([folder.path])
    assert verdict.faults, verdict.notes
    return verdict.faults[0]


def test_a_rank_asleep_in_python(home: Home) -> None:
    folder, _, vigil = start(home, "asleep", 2, "time.sleep(3600)")
    until(lambda: asked(vigil), folder)
    fault = judged(folder)
    assert (fault.kind, fault.culprit.ranks) == ("app.rank-hung", (1,))
    assert "stands in astray (train.py:" in fault.cause and fault.evidence[0].file == "flight/rank-1.stacks"


def test_a_rank_stopped_by_a_signal_and_moving_again(home: Home) -> None:
    folder, _, vigil = start(home, "stopped", 2)
    until(lambda: len(records(folder, "step")) > 8, folder)
    second = ranks(folder, 2)[1]
    second.send(signal.SIGSTOP)
    try:
        until(lambda: asked(vigil), folder)
        fault = judged(folder)
        assert (fault.kind, fault.culprit.ranks) == ("app.rank-hung", (1,)) and "stopped by a signal" in fault.cause
    finally:
        second.send(signal.SIGCONT)
    until(lambda: not asked(vigil), folder)
    assert triage([folder.path]).verdict == "healthy"


def test_a_rank_in_another_collective(home: Home) -> None:
    folder, _, vigil = start(home, "astray", 3, "dist.barrier()")
    until(lambda: asked(vigil), folder)
    fault = judged(folder)
    assert (fault.kind, fault.culprit.ranks) == ("nccl.collective-mismatch", (1,))
    assert "rank 1 calls gloo:barrier" in fault.cause


def test_a_rank_killed(home: Home) -> None:
    folder, launcher, _ = start(home, "killed", 2)
    until(lambda: len(records(folder, "step")) > 4, folder)
    ranks(folder, 2)[1].send(signal.SIGKILL)
    launcher.wait(120)
    fault = judged(folder)
    assert (fault.kind, fault.culprit.ranks) == ("app.rank-dead", (1,))


def test_an_exception_of_one_rank(home: Home) -> None:
    folder, launcher, _ = start(home, "raises", 2, 'raise ValueError("row 17 is bad")')
    launcher.wait(300)
    fault = judged(folder)
    assert (fault.kind, fault.culprit.ranks) == ("app.exception-one-rank", (1,)) and "row 17 is bad" in fault.cause


def test_steps_that_come_are_no_stall(home: Home) -> None:
    folder, launcher, vigil = start(home, "moving", 2)
    until(lambda: records(folder, "step"), folder)
    began = time.monotonic()
    until(lambda: asked(vigil) or time.monotonic() > began + 8, folder)
    assert launcher.poll() is None and vigil.asked is None and not folder.flight_answers.exists()


def test_noticed_by_daemon_and_keeper_and_handed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way without torch: stand-ins do not answer, and one of them is stopped."""
    for name, value in variables(tmp_path).items():
        monkeypatch.setenv(name, value)
    node = Node(tmp_path)
    try:
        run = node.start("obedient")
        console = node.console()
        console.welcome()
        progress = Progress(run.progress)
        for step in range(stall.KNOWN):
            progress.write("step", step=step, total_steps=100000, step_time_s=0.02)
        first = kept.rank_records(run)[0].identity
        assert first is not None and first.send(signal.SIGSTOP)

        def kinds() -> list[str]:
            return [one.kind for one in console.events if isinstance(one, wire.Event) and one.run == run.name]

        until(lambda: "run.stalled" in kinds(), run)
        until(run.flight_answers.exists, run)
        assert (console.state().runs[run.name].stalled_s or 0) > 0
        reply = console.ask(wire.Evidence(run.name))
        archive = tmp_path / "evidence.tar.gz"
        archive.write_bytes(base64.b64decode(reply.result["archive"]))
        fault = triage([archive]).faults[0]
        assert (fault.kind, fault.culprit.ranks) == ("app.rank-hung", (0,)) and "stopped by a signal" in fault.cause
        assert first.send(signal.SIGCONT)
        progress.write("step", step=stall.KNOWN, total_steps=100000, step_time_s=0.02)
        until(lambda: "run.moving" in kinds(), run)
        until(lambda: 'moved_unix":null' not in run.flight_answers.read_text(), run)
    finally:
        node.close()
