"""The model behind screens and commands: levels, events, runs, and files read slice by slice."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from agent import wire
from console.fleet import Fleet, History, LinkView, LogTail, Node
from console.refusal import Question
from console.session import Inbox, Session


def level(n: int, state: wire.NodeState, before: wire.NodeState | None = None) -> wire.Level:
    tree = wire.to_tree(state)
    if before is None:
        return wire.Level(n, True, float(n), 1000.0 + n, tree)
    return wire.Level(n, False, float(n), 1000.0 + n, *wire.difference(wire.to_tree(before), tree))


def fleet() -> Fleet:
    return Fleet({"n1": Node("n1", LinkView("live", 0.0))})


ONE = wire.NodeState(wire.Host("n1", cpu_percent=1.0))
TWO = wire.NodeState(wire.Host("n1", cpu_percent=2.0), runs={"r-1": wire.RunState("r-1", "r", "training", step=5)})


def test_differences_build_on_the_keyframe() -> None:
    f = fleet()
    f.apply("n1", level(1, ONE), 10.0, 1001.0)
    f.apply("n1", level(2, TWO, ONE), 11.0, 1002.0)
    assert f.nodes["n1"].state == TWO
    assert f.nodes["n1"].level_age_s(13.5) == 2.5


def test_a_lost_level_is_not_papered_over() -> None:
    f = fleet()
    f.apply("n1", level(1, ONE), 10.0, 0.0)
    f.apply("n1", level(3, TWO, ONE), 11.0, 0.0)
    assert f.nodes["n1"].state == ONE and f.nodes["n1"].broken
    f.apply("n1", level(4, TWO, ONE), 12.0, 0.0)
    assert f.nodes["n1"].state == ONE
    f.apply("n1", level(5, TWO), 13.0, 0.0)
    assert f.nodes["n1"].state == TWO and not f.nodes["n1"].broken


def test_a_silent_node_is_not_live_although_its_link_says_so() -> None:
    f = fleet()
    f.apply("n1", level(1, ONE), 10.0, 0.0)
    assert f.nodes["n1"].live(12.0)
    assert not f.nodes["n1"].live(20.0)


def test_replayed_events_count_once_and_a_gap_is_told() -> None:
    f = fleet()
    for seq in (1, 2, 2, 1, 3):
        f.apply("n1", wire.Event("s", seq, 0.0, "k", f"event {seq}"), 0.0, 0.0)
    f.apply("n1", wire.Gap("s", 4, 9), 0.0, 0.0)
    f.apply("n1", wire.Event("s", 10, 0.0, "k", "event 10"), 0.0, 0.0)
    assert [e.text for e in f.nodes["n1"].events] == [
        "event 1",
        "event 2",
        "event 3",
        "6 events are no longer on the node",
        "event 10",
    ]
    f.apply("n1", wire.Event("another", 1, 0.0, "k", "a new numbering"), 0.0, 0.0)
    assert f.nodes["n1"].events[-1].text == "a new numbering"


def test_runs_are_found_by_id_beginning_or_name_and_an_exact_id_wins() -> None:
    f = fleet()
    runs = {i: wire.RunState(i, "lora", "ended", started_unix=s) for s, i in enumerate(("lora-1", "lora-12"))}
    f.apply("n1", level(1, wire.NodeState(runs=runs)), 0.0, 0.0)
    assert [r.state.run for r in f.find("lora-1")] == ["lora-1"]
    assert [r.state.run for r in f.find("lora")] == ["lora-12", "lora-1"]
    assert f.find("other") == []


def test_time_left_is_known_only_when_steps_and_pace_are() -> None:
    state = wire.RunState("r", "r", "training", step=5, total_steps=10, step_time_s=2.0)
    f = fleet()
    f.apply("n1", level(1, wire.NodeState(runs={"r": state})), 0.0, 0.0)
    assert f.runs()[0].eta_s == 10.0
    f.apply("n1", level(2, wire.NodeState(runs={"r": wire.RunState("r", "r", "training", step=5)})), 0.0, 0.0)
    assert f.runs()[0].eta_s is None


def test_history_keeps_branches_apart_and_skips_what_is_no_number() -> None:
    history = History()
    history.add(
        [
            {"kind": "start", "world_size": 1},
            {"kind": "step", "step": 1, "loss": 3.0, "branch": 0},
            {"kind": "step", "step": 2, "loss": "nan", "branch": 0},
            {"kind": "rollback", "to_step": 1},
            {"kind": "step", "step": 2, "loss": 2.5, "branch": 1},
        ]
    )
    assert history.series("loss", branch=0) == ([1], [3.0])
    assert history.series("loss") == ([1, 2], [3.0, 2.5])
    assert history.branch == 1
    assert history.mark("rollback") == {"kind": "rollback", "to_step": 1}


def test_a_log_tail_joins_lines_cut_between_slices() -> None:
    tail = LogTail(0)
    tail.add("one\ntw")
    tail.add("o\nthree")
    assert (list(tail.lines), tail.rest) == (["one", "two"], "three")


class Script:
    """A conversation that answers slices from memory and can be cut."""

    def __init__(self, log: str) -> None:
        self.log, self.asked, self.cut = log, list[wire.Body](), False

    def answer(self, question: Question, text: str) -> None:
        raise AssertionError((question, text))

    def order(self, body: wire.Body, deadline_s: float, order_id: str | None = None) -> Future[wire.Reply]:
        assert isinstance(body, wire.Logs) and deadline_s > 0 and order_id
        self.asked.append(body)
        future: Future[wire.Reply] = Future()
        start = body.offset if body.offset >= 0 else max(0, len(self.log) + body.offset)
        text = self.log[start : start + 10]
        result: dict[str, Any] = {"text": text, "next": start + len(text), "size": len(self.log), "ranks": [0]}
        future.set_result(wire.Reply(order_id, not self.cut, {} if self.cut else result))
        return future

    def close(self) -> None: ...


@pytest.fixture
def script() -> Script:
    return Script("".join(f"line {i}\n" for i in range(20)))


def sat_down(script: Script) -> Session:
    def connect(name: str, inbox: Inbox) -> Script:
        inbox.append((name, LinkView("live", 0.0)))
        inbox.append((name, level(1, ONE)))
        return script

    session = Session(["n1"], connect)
    session.start()
    return session


def test_a_tail_is_complete_and_exact_across_a_cut(script: Script) -> None:
    session = sat_down(script)
    tail = session.tail("n1", "r", 0)
    for turn in range(60):
        script.cut = 5 < turn < 10
        session.pump()
    assert tail.complete
    assert "\n".join(tail.lines) + "\n" == script.log


def test_a_complete_tail_asks_once_a_level(script: Script) -> None:
    session = sat_down(script)
    session.tail("n1", "r", 0)
    for _ in range(50):
        session.pump()
    settled = len(script.asked)
    for _ in range(50):
        session.pump()
    assert len(script.asked) == settled
    session.inbox.append(("n1", level(2, TWO, ONE)))
    for _ in range(50):
        session.pump()
    assert len(script.asked) == settled + 1
    session.untail("n1", "r", 0)
    assert not session.readers and not session.fleet.tails


def test_what_is_no_state_is_said_and_does_not_stop_the_loop(script: Script) -> None:
    session = sat_down(script)
    session.inbox.append(("n1", wire.Level(2, True, 0.0, 0.0, {"host": {"cpu_percent": "much"}})))
    session.inbox.append(("n1", level(3, TWO)))
    assert session.pump()
    assert "Host.cpu_percent" in session.fleet.nodes["n1"].link.why
    assert session.fleet.nodes["n1"].state == TWO
