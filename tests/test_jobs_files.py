"""Process identity, progress records, orders and examples: the files and facts that runs live by."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs import examples, orders, progress
from jobs.failure import JobError
from jobs.identity import ProcessIdentity
from jobs.orders import Order
from jobs.progress import Progress
from jobs.run_folder import RunFolder
from jobs.settings import Rules
from jobs.train.rules import Watch


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder.inside(tmp_path, "run-a")
    made.create()
    return made


def test_identity_of_a_process_through_its_life() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    try:
        known = ProcessIdentity.of(child.pid)
        assert known is not None and known.state() == "alive"
        assert ProcessIdentity.from_json(json.loads(json.dumps(known.to_json()))) == known
        assert replace(known, start_ticks=known.start_ticks + 1).state() == "gone"
        assert not replace(known, start_ticks=known.start_ticks + 1).send(signal.SIGKILL)
        assert replace(known, boot_id="another").state() == "gone"
        assert replace(known, pid_namespace="pid:[1]").state() == "unknown"
        assert not replace(known, pid_namespace="pid:[1]").send(signal.SIGKILL)
        assert child.poll() is None
        assert known.send(signal.SIGTERM)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert known.state() == "gone" and ProcessIdentity.of(child.pid) is None  # a zombie does nothing any more
    finally:
        child.kill()
        child.communicate()
    assert known.state() == "gone" and not known.send(signal.SIGTERM)


def test_progress_is_read_in_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    assert progress.records(path) == ([], 0)
    writer = Progress(path)
    writer.write("step", step=1, loss=float("nan"), grad_norm=float("-inf"))
    with path.open("ab") as stream:
        stream.write(b'{"kind":"step","st')
    found, offset = progress.records(path)
    assert [(one["kind"], one["loss"], one["grad_norm"], one["branch"]) for one in found] == [
        ("step", "nan", "-inf", 0)
    ]
    assert progress.records(path, offset) == ([], offset)
    writer.close()
    again = Progress(path)  # a writer that died mid-line does not spoil the next one's first record
    again.branch = 3
    again.write("end", outcome="completed")
    found, offset = progress.records(path, offset)
    assert [one["kind"] for one in found] == ["end"] and offset == path.stat().st_size
    assert Progress(path).branch == 3


def test_progress_in_small_bites_and_after_truncation(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    writer = Progress(path)
    for step in range(50):
        writer.write("step", step=step, text="é" * step)
    found: list[dict[str, Any]] = []
    offset = 0
    while True:
        more, following = progress.records(path, offset, limit_bytes=64)
        if following == offset:
            break
        found, offset = found + more, following
    assert [one["step"] for one in found] == list(range(50))
    os.truncate(path, 0)
    writer.write("step", step=0)
    assert [one["step"] for one in progress.records(path, offset)[0]] == [0]


def test_progress_from_two_threads(tmp_path: Path) -> None:
    writer = Progress(tmp_path / "progress.jsonl")

    def write(name: str) -> None:
        for at in range(200):
            writer.write("note", name=name, at=at)

    threads = [threading.Thread(target=write, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found, _ = progress.records(tmp_path / "progress.jsonl")
    assert len(found) == 400 and [one["at"] for one in found if one["name"] == "a"] == list(range(200))


def test_progress_survives_a_full_disk(tmp_path: Path) -> None:
    """/dev/full answers as a full disk does."""
    writer = Progress(tmp_path / "progress.jsonl")
    real = os.dup(writer._handle)
    full = os.open("/dev/full", os.O_RDWR)
    os.dup2(full, writer._handle)
    writer.write("step", step=1)
    writer.write("step", step=2)
    os.dup2(real, writer._handle)
    writer.write("step", step=3)
    os.close(real)
    os.close(full)
    found, _ = progress.records(tmp_path / "progress.jsonl")
    assert [one["kind"] for one in found] == ["step", "warning"]
    assert found[1]["message"] == "2 records were lost while the disk was full"


def test_orders_come_once_and_in_turn(folder: RunFolder) -> None:
    for name in ("b", "a"):
        orders.post(folder, Order(name, "snapshot"))
    orders.post(folder, Order("b", "stop"))  # the same id again is the same order
    assert [(one.id, one.verb) for one in orders.pending(folder)] == [("b", "snapshot"), ("a", "snapshot")]
    assert orders.answer(folder, "b") is None
    orders.reply(folder, "b", "done", "taken", 7, snapshot="b0-s00000007")
    answer = orders.answer(folder, "b")
    assert answer is not None and (answer["outcome"], answer["step"], answer["snapshot"]) == ("done", 7, "b0-s00000007")
    assert orders.names(folder) == ["a"] and orders.pending(folder, seen={"a"}) == []


def test_bad_orders_are_refused(folder: RunFolder) -> None:
    with pytest.raises(ValueError, match="is not an order; a job takes stop, pause"):
        orders.post(folder, Order("x", "explode"))
    for name in ("../x", "", "a.b", "x" * 65):
        with pytest.raises(ValueError, match="is not an order id"):
            orders.post(folder, Order(name, "stop"))
    (folder.orders / "torn.json").write_text("{")
    (folder.orders / ".hidden.tmp").write_text("{")
    (folder.orders / "bad id.json").write_text("{}")
    assert orders.pending(folder) == []
    answer = orders.answer(folder, "torn")
    assert answer is not None and answer["outcome"] == "refused" and "unreadable" in answer["message"]


def read(tmp_path: Path, name: str, text: str, layout: str = "auto") -> examples.Examples:
    path = tmp_path / name
    path.write_bytes(text.encode())
    return examples.read(path, layout)


def test_examples_in_their_layouts(tmp_path: Path) -> None:
    row = {"instruction": "Explain.", "input": "Xid 79", "output": "Off the bus."}
    wanted = examples.Instruction("Explain.", "Xid 79", "Off the bus.")
    assert wanted.question == "Explain.\n\nXid 79"
    assert read(tmp_path, "a.jsonl", "\ufeff" + json.dumps(row) + "\n\n").rows == (wanted,)
    assert read(tmp_path, "a.json", json.dumps([row, row], indent=1)).rows == (wanted, wanted)
    odd = {**row, "output": "one\u2028line"}  # a line separator inside a string does not end the row
    assert read(tmp_path, "b.jsonl", json.dumps(odd, ensure_ascii=False)).rows[0] == replace(
        wanted, output="one\u2028line"
    )
    assert read(tmp_path, "c.jsonl", '{"text": "all of it"}').rows == (examples.Passage("all of it"),)
    assert read(tmp_path, "d.txt", "one\ntwo\r\n\r\nthree\n").rows == (
        examples.Passage("one\ntwo"),
        examples.Passage("three"),
    )
    assert read(tmp_path, "e.jsonl", json.dumps(row) + "\n" + json.dumps({**row, "output": " "})).skipped == 1


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.jsonl", '{"instruction": "x", "output": "y"}\n{"instruction": "x"}\n', "line 2: has no `output`"),
        ("a.jsonl", '{"instruction": "x", "output": 7}', "line 1: `output` is int, expected text"),
        ("a.jsonl", '{"instruction": "x"\n', "line 1: is not JSON"),
        ("a.jsonl", "[1]", "row 1: is int, expected an object"),
        ("a.json", "[{]", "is not JSON"),
        ("a.jsonl", "\n\n", "holds no examples"),
        ("a.txt", "\n", "holds no examples"),
    ],
)
def test_wrong_examples_are_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(JobError) as caught:
        read(tmp_path, name, text)
    assert message in caught.value.message and caught.value.hint


def test_other_encodings_are_said(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"caf\xe9")
    with pytest.raises(JobError, match=r"is not UTF-8 at byte 3"):
        examples.read(tmp_path / "a.txt")


def test_a_jump_of_the_loss_after_a_resume_is_said_once() -> None:
    watch = Watch(Rules(on_spike="rollback", on_nan="stop"))
    watch.expect(100, 1.4)
    verdicts = [watch.judge(step, 3.9, 1.0) for step in range(101, 106)]
    assert [verdict is not None for verdict in verdicts] == [False, False, True, False, False]
    assert verdicts[2] is not None and verdicts[2].action == "ignore" and "was all of it loaded?" in verdicts[2].symptom
    calm = Watch(Rules())
    calm.expect(100, 1.4)
    assert [calm.judge(step, 1.6, 1.0) for step in range(101, 106)] == [None] * 5


def test_rules_by_symptom_and_their_limit() -> None:
    watch = Watch(Rules(on_nan="rollback", on_spike="stop", max_rollbacks=2))
    for step in range(1, 11):
        assert watch.judge(step, 2.0, 1.0) is None
    spike = watch.judge(11, 9.0, 1.0)
    assert spike is not None and spike.action == "stop" and "usual was 2.000" in spike.symptom
    watch.forget_after(10)
    actions = [verdict.action for at in range(3) if (verdict := watch.judge(11 + at, float("nan"), 1.0))]
    assert actions == ["rollback", "rollback", "stop"]
    infinite = Watch(Rules(on_nan="ignore")).judge(1, 2.0, float("inf"))
    assert infinite is not None and infinite.action == "ignore"
