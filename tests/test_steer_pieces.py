"""What steering is made of: judging a snapshot, following branches, resuming once, journals that stay small."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from agent import exporting, orders, preflight, ram, resuming, snapshots, steering, wire
from agent.audit import verb_of
from agent.desk import Desk
from agent.events import Events
from agent.following import Followed
from agent.interpreters import Interpreter
from agent.journal import Journal
from agent.judging import Memory
from agent.kept import Kept
from agent.launch import Surroundings
from agent.node import Machine
from agent.orders import OrderBook
from agent.preflight import Badge, Versions
from agent.probe import Probe
from agent.records import describe
from agent.refusal import Refusal
from agent.snapshots import ReadSpeed
from agent.state import StateFolder
from jobs import durable, snapshot_writer
from jobs.changes import changes
from jobs.lineage import came_to
from jobs.progress import Progress
from jobs.run_folder import RunFolder
from jobs.snapshot import Snapshot
from jobs.spec import Spec
from tests import trainings
from tests.fakes.node import Node, until, variables

CPU = {"torch": "2.13.0", "python": "3.11.7", "ranks": 2, "device": "cpu", "threads": 1, "cpu": "AVX2"}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "run-1")
    made.create()
    return made


def take(folder: RunFolder, branch: int, step: int, **meta: Any) -> Snapshot:
    return snapshot_writer.write(folder, branch, step, {"weights": [b"w" * 5000]}, 5000, {"loss": 1.0, **meta})


def judged(folder: RunFolder, now: dict[str, Any] | None, changed: tuple[str, ...] = ()) -> Badge:
    found = next(iter(snapshots.sound(folder)[0]), None) or take(folder, 0, 5, environment=CPU)
    return preflight.judge(found, changed, now)


def test_what_is_known_is_compared_and_what_is_not_stays_open(folder: RunFolder) -> None:
    known = {key: value for key, value in CPU.items() if key != "cpu"}
    assert judged(folder, CPU) == Badge("exact")
    assert judged(folder, known) == Badge("exact", (), ("cpu",))
    other = judged(folder, {**known, "torch": "2.14.0", "ranks": 1})
    assert other == Badge("inexact", ("ranks 2 → 1", "torch 2.13.0 → 2.14.0"), ("cpu",))
    assert other.why == "ranks 2 → 1; torch 2.13.0 → 2.14.0; compared only when it starts: cpu"
    assert judged(folder, {**known, "device": "cuda", "gpu": "H100"}).open == ()
    assert judged(folder, None).label == "unknown"
    assert judged(folder, CPU, ("lora.rank 8 → 16",)) == Badge("weights-only", ("lora.rank 8 → 16",))


def test_a_snapshot_that_does_not_say_what_it_was_taken_on_is_not_called_exact(folder: RunFolder) -> None:
    assert preflight.judge(take(folder, 0, 5), (), CPU).label == "unknown"


def test_what_a_training_would_run_on_is_found_without_loading_it() -> None:
    versions = Versions()
    python, installed = versions.of(sys.executable)
    assert python is not None and installed is not None and installed["torch"] and installed["os"] == "posix"
    here = preflight.surroundings(python, installed, 2, None, {"OMP_NUM_THREADS": "1"})
    assert (here["ranks"], here["device"], here["threads"]) == (2, "cpu", 1)
    card = preflight.surroundings(Interpreter("p", "12.8"), installed, 1, ["NVIDIA H200"], {})
    assert (card["device"], card["gpu"], card["cuda"]) == ("cuda", "NVIDIA H200", "12.8")
    assert "gpu" not in preflight.surroundings(Interpreter("p", "12.8"), installed, 1, [""], {}), "a card not seen"
    assert versions.of("/nowhere/python") == (None, None)


def test_lists_and_tuples_of_a_spec_are_the_same() -> None:
    before = {"model": "m", "lora": {"targets": ["q", "k"], "rank": 8}}
    assert changes(before, {"model": "m", "lora": {"targets": ("q", "k"), "rank": 8}}) == []
    assert changes(before, {"model": "m", "lora": None}) == [
        "lora.rank 8 → None",
        "lora.targets ['q', 'k'] → None",
    ]


def test_the_newest_is_sought_on_the_way_to_the_present_state_only(folder: RunFolder) -> None:
    for branch, step in ((0, 10), (0, 20), (1, 15)):
        take(folder, branch, step)
    progress = Progress(folder.progress)
    progress.write("step", step=20)
    progress.branch = 1
    progress.write("rollback", from_step=20, to_step=10, lineage=[[0, 10], [1, -1]])
    place = came_to(folder)
    assert place.step == 10 and place.lineage.holds(0, 10) and not place.lineage.holds(0, 20)
    assert snapshots.choose(folder, "newest", place, ReadSpeed()).found.name == "b1-s00000015"
    (folder.snapshots / "b1-s00000015" / "weights").write_bytes(b"")
    (folder.snapshots / "b0-s00000020" / "manifest.json").write_text("{")
    found = snapshots.choose(folder, "newest", place, ReadSpeed())
    assert found.found.name == "b0-s00000010"
    assert ["b0-s00000020" in found.refused[0], "b1-s00000015" in found.refused[1]] == [True, True]
    with pytest.raises(Refusal, match="damaged manifest") as wrong:
        snapshots.choose(folder, "b0-s00000020", place, ReadSpeed())
    assert wrong.value.hint == "The next older good one is b0-s00000010 (step 10): take that."
    for name in ("b0-s00000010", "b1-s00000015"):
        (folder.snapshots / name / "weights").unlink()
    with pytest.raises(Refusal, match="no snapshot to go on from"):
        snapshots.choose(folder, "newest", place, ReadSpeed())


def test_a_forecast_is_made_of_a_measured_speed_or_not_at_all() -> None:
    speed = ReadSpeed()
    speed.note(1000, 0.001)
    assert speed.forecast_s(10**9) is None, "too little to measure by"
    speed.note(200_000_000, 0.5)
    assert speed.forecast_s(10**9) == 2.5


def test_the_latest_snapshot_shown_is_one_that_leads_to_where_the_run_is(folder: RunFolder, tmp_path: Path) -> None:
    progress, events = Progress(folder.progress), Events(tmp_path / "events")
    one = Followed(folder, {"run": "run-1"})

    def seen() -> tuple[int | None, int | None, int]:
        one.refresh(events)
        view = one.view()
        return view.step, view.snapshot_step, view.branch

    progress.write("step", step=10, loss=1.0)
    progress.write("snapshot", step=10, name="b0-s00000010", state="published")
    progress.write("step", step=20, loss=1.0)
    progress.write("snapshot", step=20, name="b0-s00000020", state="published")
    progress.write("snapshot", step=30, name="b0-s00000030", state="merged")
    assert seen() == (20, 20, 0)
    progress.branch = 1
    progress.write("rollback", from_step=20, to_step=10, lineage=[[0, 10], [1, -1]])
    assert seen() == (10, 10, 1) and one.view().loss is None
    progress.write("step", step=11, loss=0.5)
    assert seen() == (11, 10, 1)


def test_records_become_events_in_words() -> None:
    failed = {"state": "failed", "step": 7, "message": "no room for a snapshot", "hint": "Free some."}
    assert describe("snapshot", failed) == ("warn", "no room for a snapshot (step 7). Free some.")
    resumed = {"to_step": 7, "snapshot": "b0-s00000007", "badge": "inexact", "reasons": ["torch 1 → 2"]}
    assert describe("resume", resumed) == ("warn", "goes on at step 7 from b0-s00000007: inexact (torch 1 → 2)")
    assert describe("resume", {**resumed, "badge": "exact", "reasons": []}) == (
        "info",
        "goes on at step 7 from b0-s00000007: exact",
    )


@pytest.mark.parametrize(
    ("verb", "args", "words"),
    [
        ("dance", {}, "not an order"),
        ("pause", {"hard": True}, "pause knows no 'hard'"),
        ("rollback", {"step": -1}, "step is -1"),
        ("rollback", {"step": True}, "step is True"),
        ("rollback", {"lr": 0}, "lr is 0"),
        ("rollback", {"lr": float("nan")}, "lr is nan"),
        ("rollback", {"skip_data": "yes"}, "skip_data is 'yes'"),
        ("snapshot", {"pin": 1}, "pin is 1"),
    ],
)
def test_orders_are_checked_before_the_job_sees_them(verb: str, args: dict[str, Any], words: str) -> None:
    with pytest.raises(Refusal, match=words):
        steering.checked(wire.Steer("run-1", verb, args))


def test_an_order_that_the_job_does_not_answer_ends_at_its_deadline(node: Node) -> None:
    console = node.console()
    folder = node.start("deaf")
    until(lambda: console.run_phase(folder.name) == "training")
    reply = console.ask(wire.Steer(folder.name, "snapshot"), deadline_s=0.3)
    assert not reply.ok and "not finished within" in reply.error


def test_a_resume_that_its_daemon_did_not_live_to_carry_out_is_carried_out_when_asked_again(node: Node) -> None:
    folder = node.start("short")
    ended = until(lambda: node.ended(folder))
    console = node.console()
    until(lambda: console.run_phase(folder.name) == "ended")
    record = durable.read_json(folder.record) or {}
    result = {"run": folder.name, "snapshot": "b0-s00000003", "label": "exact"}
    again = {"number": 1, "order": "r-1", "operator": "me", "unix": time.time(), "snapshot": "x", "result": result}
    durable.write_json(folder.record, {**record, "resume": again})
    assert console.ask(wire.Resume(folder.name), "r-1").result == result
    second = until(lambda: (now := node.ended(folder)) and now.started_unix != ended.started_unix and now)
    assert getattr(second, "reason", "") == "completed"
    until(lambda: [one.kind for one in console.numbered() if one.run == folder.name].count("run.ended") == 2)
    kinds = [one.kind for one in console.numbered() if one.run == folder.name]
    assert [kind for kind in kinds if kind != "run.order"] == ["run.started", "run.ended", "run.resumed", "run.ended"]


def test_read_only_may_look_at_snapshots_and_no_more(node: Node) -> None:
    folder = node.start("short", ranks=1)
    (folder.spec).write_text("model: m\ndata: {path: d}\n")
    console = node.console("--read-only")
    assert console.ask(wire.ListSnapshots(folder.name, True)).result["snapshots"] == []
    for body in (wire.Resume(folder.name), wire.Pin(folder.name, "b0-s00000001"), wire.Export(folder.name)):
        reply = console.ask(body)
        assert not reply.ok and "read-only" in reply.error


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("import sys; sys.exit('error: this run has no result yet. Take a snapshot.')", "this run has no result yet"),
        ("print('hello')", "ended without a result"),
        ("import os; os.kill(os.getpid(), 9)", "exit status -9 without a word"),
        ("import time; time.sleep(600)", "was not done within"),
    ],
)
async def test_an_export_that_fails_says_why(
    folder: RunFolder, script: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "LIMIT_S", 2.0 if "sleep" in script else 60.0)
    folder.export_script.write_text(script)
    durable.write_json(folder.record, {"python": sys.executable, "environment": {"X": "1"}, "gpu_uuids": ["GPU-1"]})
    with pytest.raises(Refusal, match=words):
        await exporting.export(folder, wire.Export(folder.name), ())


def test_an_export_keeps_off_the_cards_of_live_runs() -> None:
    record = {"environment": {"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2", "OMP_NUM_THREADS": "3"}, "gpu_uuids": ["GPU-1"]}
    assert exporting.variables(record, {"GPU-1"})["CUDA_VISIBLE_DEVICES"] == ""
    free = exporting.variables(record, ())
    assert (free["CUDA_VISIBLE_DEVICES"], free["OMP_NUM_THREADS"]) == ("GPU-1", "3")


def test_an_audit_is_begun_anew_when_it_is_large_and_the_one_before_is_kept(tmp_path: Path) -> None:
    book = Journal(tmp_path / "audit.jsonl")
    for number in range(40):
        book.rotate(200)
        book.append({"n": number, "text": "x" * 20})
    kept = [*Journal(tmp_path / "audit.jsonl.1").entries(), *book.entries()]
    assert [entry["n"] for entry in kept] == list(range(40 - len(kept), 40))
    assert 5 <= len(kept) <= 20 and len(list(tmp_path.iterdir())) == 2


async def test_the_book_of_orders_stays_small_and_still_knows_the_latest(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orders, "KEPT", 4)
    monkeypatch.setattr(orders, "SLACK", 2)
    node.state.create()
    events = Events(node.state.events)
    book = OrderBook(node.state, Desk(Machine(node.state, events, Probe())), events)
    for number in range(20):
        reply = await book.take(wire.Order(f"o-{number}", 30.0, wire.Pin("nothing", "b0-s00000001")), "me", False)
        assert not reply.ok
    lines = [json.loads(line) for line in node.state.orders.read_text().splitlines()]
    assert len(lines) <= 2 * (4 + 2) and lines[-1]["id"] == "o-19"
    assert "o-19" in book.replies and "o-3" not in book.replies and len(book.replies) <= 6
    again = OrderBook(node.state, book.desk, events)
    assert again.replies["o-19"] == book.replies["o-19"]


@pytest.mark.parametrize("scarce", ["memory", "disk"])
def test_a_resume_that_finds_no_room_is_refused_as_a_launch_is_and_may_be_forced(
    folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scarce: str
) -> None:
    for name, value in variables(tmp_path).items():
        monkeypatch.setenv(name, value)
    state = StateFolder.locate()
    state.create()
    data = tmp_path / "rows.jsonl"
    data.write_text('{"instruction": "a", "input": "", "output": "b"}\n' * 8)
    text = f"model: {trainings.MODEL}\npython: {sys.executable}\ndata: {{path: {data}}}\nhardware: {{device: cpu}}\n"
    folder.spec.write_text(text)
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    durable.write_json(folder.record, {"run": folder.name, "spec_sha256": sha256})
    Kept("ended", None, None, ended_unix=2.0, reason="stopped").write(folder)
    take(folder, 0, 5, environment=CPU, deciding=Spec.parse(text).deciding(), total_steps=50)
    around, memory = Surroundings(state, {}, None, "", frozenset()), Memory(Versions(), ReadSpeed())
    if scarce == "memory":
        monkeypatch.setattr(ram, "available_bytes", lambda: 1 << 20)
    else:
        monkeypatch.setattr(shutil, "disk_usage", lambda _path: shutil._ntuple_diskusage(10**12, 10**12, 1 << 30))

    def check(force: bool) -> dict[str, Any]:
        body = wire.Resume(folder.name, check=True, force=force)
        return resuming.resume(folder, body, "order-1", "somebody", around, memory)

    with pytest.raises(Refusal) as refused:
        check(force=False)
    assert refused.value.result["kind"] == {"memory": "does-not-fit", "disk": "full-disk"}[scarce]
    assert check(force=True)["snapshot"] == "b0-s00000005"


def test_a_check_does_not_read_like_a_resume_in_the_trail() -> None:
    assert verb_of(wire.Resume("run-1", check=True)) == "check resume"
    assert verb_of(wire.Resume("run-1")) == "resume"
    assert verb_of(wire.Steer("run-1", "rollback")) == "rollback"
