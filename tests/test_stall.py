"""When a training stands still: told by its steps alone, and not while it loads, saves or carries out an order."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from agent import questioning
from agent.events import Events
from agent.following import Followed
from agent.kept import Kept
from agent.stall import FIRST_S, LEAST_S, SAVING_S, SLOWER, Pace
from agent.vigil import Vigil
from jobs import orders
from jobs.identity import ProcessIdentity
from jobs.run_folder import RunFolder

NOW = 1_000_000.0


def steps(count: int, took: float, end: float = NOW) -> list[dict[str, Any]]:
    return [
        {"kind": "step", "step": n + 1, "step_time_s": took, "time_unix": end - (count - 1 - n) * took, "branch": 0}
        for n in range(count)
    ]


def pace(*records: dict[str, Any]) -> Pace:
    made = Pace()
    for one in records:
        made.take(one)
    return made


@pytest.mark.parametrize(("took", "limit"), [(0.1, LEAST_S), (10.0, 10.0 * SLOWER)])
def test_a_multiple_of_the_usual_step_and_never_too_early(took: float, limit: float) -> None:
    made = pace(*steps(9, took))
    assert made.stalled_s(NOW + limit - 0.1) is None
    assert made.stalled_s(NOW + limit + 0.1) == pytest.approx(limit + 0.1 - took)


def test_the_first_steps_may_take_their_time() -> None:
    made = pace({"kind": "phase", "phase": "training", "time_unix": NOW}, *steps(2, 0.1))
    assert made.stalled_s(NOW + FIRST_S - 1) is None and made.stalled_s(NOW + FIRST_S + 1) is not None


@pytest.mark.parametrize("phase", ["loading", "saving"])
def test_loading_and_saving_have_no_pace(phase: str) -> None:
    assert pace(*steps(9, 0.1), {"kind": "phase", "phase": phase, "time_unix": NOW}).stalled_s(NOW + 1e6) is None


def test_one_that_ended_does_not_stall() -> None:
    assert pace(*steps(9, 0.1), {"kind": "end", "outcome": "stopped", "time_unix": NOW}).stalled_s(NOW + 1e6) is None


def test_a_snapshot_being_written_gets_longer() -> None:
    begun = {"kind": "snapshot", "state": "writing", "time_unix": NOW}
    done = {"kind": "snapshot", "state": "published", "time_unix": NOW}
    assert pace(*steps(9, 0.1), begun).stalled_s(NOW + SAVING_S - 1) is None
    assert pace(*steps(9, 0.1), begun, done).stalled_s(NOW + LEAST_S + 1) is not None
    assert pace(*steps(9, 0.1)).stalled_s(NOW + SAVING_S - 1, waiting=True) is None


def test_after_a_rollback_the_usual_step_is_learnt_anew() -> None:
    made = pace(*steps(9, 0.1), {"kind": "rollback", "from_step": 9, "to_step": 2, "time_unix": NOW})
    assert made.step_s is None and made.stalled_s(NOW + LEAST_S + 1) is None


def live(tmp_path: Path, silent_s: float) -> RunFolder:
    """A run whose last step is so long ago and whose keeper, launcher and only rank is this process."""
    folder = RunFolder.inside(tmp_path, "standing")
    folder.create()
    me = ProcessIdentity.of(os.getpid())
    assert me is not None
    began = time.time() - 10_000
    Kept("running", me, me, began).write(folder)
    folder.rank(0).write_text(json.dumps({"rank": 0, "identity": me.to_json()}))
    phase = {"kind": "phase", "phase": "training", "time_unix": began + 1}
    write(folder, [phase, *steps(9, 0.5, time.time() - silent_s)])
    return folder


def write(folder: RunFolder, records: list[dict[str, Any]]) -> None:
    with folder.progress.open("a") as stream:
        stream.writelines(json.dumps(one) + "\n" for one in records)


def test_told_once_and_told_again_when_it_moves(tmp_path: Path) -> None:
    folder = live(tmp_path, 100)
    events = Events(tmp_path / "events")
    followed = Followed(folder, {"name": "standing"})
    for _ in range(3):
        followed.refresh(events)
    assert 90 < (followed.view().stalled_s or 0) < 110
    write(folder, steps(1, 0.5, time.time()))
    followed.refresh(events)
    assert followed.view().stalled_s is None
    events.flush()
    told = [(one.kind, one.severity) for one in events.kept if one.kind in ("run.stalled", "run.moving")]
    assert told == [("run.stalled", "warn"), ("run.moving", "info")]
    text = next(one.text for one in events.kept if one.kind == "run.stalled")
    assert text.startswith("standing stands still: no step for 1") and text.endswith("s, one takes 0.5 s")


def test_an_order_that_is_carried_out_is_no_stall(tmp_path: Path) -> None:
    folder = live(tmp_path, 100)
    orders.post(folder, orders.Order("hold", "pause"))
    followed = Followed(folder, {"name": "standing"})
    followed.refresh(Events(tmp_path / "events"))
    assert followed.view().stalled_s is None


def test_a_keeper_asks_once_and_notes_when_it_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questioning, "ANSWER_S", 0.3)
    folder = live(tmp_path, 100)
    vigil = Vigil.halfway(folder)
    vigil.look()
    asked = vigil.asked
    assert asked is not None
    asked.join(60)
    vigil.due = 0.0
    vigil.look()
    assert vigil.asked is asked
    answers = json.loads(folder.flight_answers.read_text())
    assert answers["moved_unix"] is None and answers["stalled_s"] > 90
    one = answers["ranks"][0]  # this process has no thread that answers, and does not handle the signal
    assert (one["rank"], one["alive"], one["answered"], one["stacks"]) == (0, True, False, False)
    assert (folder.flight / "rank-0.py-spy.txt").read_text()
    write(folder, steps(1, 0.5, time.time()))
    vigil.due = 0.0
    vigil.look()
    assert vigil.asked is None and json.loads(folder.flight_answers.read_text())["moved_unix"] > NOW


def test_a_session_that_begins_does_not_look_back(tmp_path: Path) -> None:
    vigil = Vigil.from_now(live(tmp_path, 100))
    vigil.look()
    assert vigil.asked is None
