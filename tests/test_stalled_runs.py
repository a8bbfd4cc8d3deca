"""Trainings that stand still or lose a rank for real: noticed by their steps, asked, and judged from the run folder."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent import stall
from agent.triage import triage
from agent.triage.verdict import Fault
from agent.vigil import Vigil
from jobs.run_folder import RunFolder
from tests import trainings
from tests.test_jobs_session import Home, ranks, records, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TURN = """
import os, time
import torch.distributed as dist
from jobs.train.exchange import Exchange

whole, count = Exchange.start, 0

def astray(self, *given):
    global count
    count += 1
    whole(self, *given)
    if count == 8 and os.environ["RANK"] == "1":
        {act}

Exchange.start = astray
from jobs.train.__main__ import main
main()
"""


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
        folder.script.write_text(TURN.format(act=act))
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
