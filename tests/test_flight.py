"""A rank says where it stands while its main thread sleeps, computes in C or has no torch yet."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent import questioning
from agent.triage import triage
from jobs.identity import ProcessIdentity
from jobs.run_folder import RunFolder
from tests.fakes.node import until

ROOT = Path(__file__).resolve().parent.parent
RANK = """
import sys, time, ctypes
from pathlib import Path
from jobs.run_folder import RunFolder
from jobs.train.flight import Flight
from jobs.train.rank import Rank

rank = Rank(int(sys.argv[2]), 2, 0, RunFolder(Path(sys.argv[1])))
rank._write({})
Flight(rank.folder, rank.number, rank.world).start()

def stuck_here():
    if sys.argv[3] == "held":
        ctypes.PyDLL(None).sleep(600)  # keeps Python's lock
    time.sleep(600)

print("ready", flush=True)
stuck_here()
"""


class Ranks:
    def __init__(self, folder: RunFolder) -> None:
        self.folder, self.started = folder, list[subprocess.Popen[str]]()

    def start(self, number: int, how: str) -> ProcessIdentity:
        script = self.folder.path / "rank.py"
        script.write_text(RANK)
        made = subprocess.Popen(
            [sys.executable, str(script), str(self.folder.path), str(number), how],
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        )
        self.started.append(made)
        assert made.stdout is not None and made.stdout.readline() == "ready\n"
        who = ProcessIdentity.of(made.pid)
        assert who is not None
        return who


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Ranks]:
    folder = RunFolder.inside(tmp_path, "standing")
    folder.create()
    made = Ranks(folder)
    yield made
    for one in made.started:
        one.kill()
        one.wait()
        if one.stdout is not None:
            one.stdout.close()


def test_asleep_in_python_and_holding_its_lock(ranks: Ranks) -> None:
    ranks.start(0, "asleep")
    ranks.start(1, "held")
    answers = questioning.ask(ranks.folder, 30.0)["ranks"]
    assert [(one["answered"], one["stacks"]) for one in answers] == [(True, True), (False, True)]
    dump = json.loads(ranks.folder.flight_dump(0).read_text())
    assert (dump["rank"], dump["entries"]) == (0, [])  # torch is not loaded there
    assert all("stuck_here" in ranks.folder.flight_stacks(number).read_text() for number in (0, 1))
    verdict = triage([ranks.folder.path])
    first = verdict.faults[0]
    assert (first.kind, first.culprit.ranks) == ("app.rank-hung", (1,))
    assert "holds Python's lock" in first.cause and any("stuck_here" in quote.text for quote in first.evidence)


def test_stopped_by_a_signal_and_gone(ranks: Ranks) -> None:
    stopped, gone = ranks.start(0, "asleep"), ranks.start(1, "asleep")
    stopped.send(signal.SIGSTOP)
    gone.send(signal.SIGKILL)
    ranks.started[1].wait()
    until(lambda: questioning.status_of(stopped.pid).get("State", "")[:1] == "T")
    answers = questioning.ask(ranks.folder, 30.0)["ranks"]
    assert [(one["alive"], one["answered"], one["state"]) for one in answers] == [
        (True, False, "T"),
        (False, False, ""),
    ]
    first = triage([ranks.folder.path]).faults[0]
    assert first.culprit.ranks == (0,) and "stopped by a signal" in first.cause


def test_a_process_that_does_not_handle_the_signal_is_not_sent_it() -> None:
    with subprocess.Popen(["sleep", "600"]) as child:
        assert not questioning.catches(child.pid)
        child.kill()
