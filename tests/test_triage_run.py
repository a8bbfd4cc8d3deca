"""A run folder as triage's only input: who ended how, who stood where, and what is history."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.triage import triage
from agent.triage.verdict import Verdict
from jobs import durable
from jobs.run_folder import RunFolder


class Told:
    """A run folder, filled piece by piece."""

    def __init__(self, parent: Path, world: int) -> None:
        self.folder = RunFolder.inside(parent, "told")
        self.folder.create()
        self.folder.spec.write_text("model: ~/m\n")
        self.folder.script.write_text("main()\n")
        durable.write_json(self.folder.record, {"argv": ["python"], "world_size": world})

    def state(self, reason: str, detail: str = "") -> None:
        state = {"phase": "ended", "keeper": None, "reason": reason, "detail": detail}
        durable.write_json(self.folder.state, state)

    def rank(self, number: int, outcome: str | None, message: str = "", **error: Any) -> None:
        told = {"message": message, **error} if message else None
        record = {"rank": number, "identity": {"pid": 100 + number}, "outcome": outcome, "error": told}
        durable.write_json(self.folder.rank(number), record | {"ended_unix": 1000.0 + number})

    def dump(self, number: int, calls: list[str], pending: bool) -> None:
        """`calls`: the names of all collectives this rank has entered."""
        entries = [
            {
                "collective_seq_id": seq,
                "process_group": ["0", "default_pg"],
                "profiling_name": name,
                "input_sizes": [[8]],
                "state": "scheduled",
                "retired": not (pending and seq == len(calls)),
                "is_p2p": False,
            }
            for seq, name in enumerate(calls, 1)
        ]
        durable.write_json(self.folder.flight_dump(number), {"rank": number, "entries": entries})

    def answers(self, moved: bool = False, **states: str) -> None:
        """`states`: r0="S" answered, "T!" did not, "" gone."""
        ranks = [
            {
                "rank": int(name[1:]),
                "pid": 1,
                "alive": bool(state),
                "answered": bool(state) and not state.endswith("!"),
                "state": state[:1],
                "waits_in": "",
            }
            for name, state in states.items()
        ]
        told = {"tunedeck": "answers", "moved_unix": 5.0 if moved else None, "ranks": ranks}
        durable.write_json(self.folder.flight_answers, told)

    def stack(self, number: int, own: str) -> None:
        self.folder.flight_stacks(number).write_text(
            "Current thread 0x00007f1 (most recent call first):\n"
            '  File "/run/jobs/train/flight.py", line 70 in write\n'
            '  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap\n\n'
            "Thread 0x00007f2 (most recent call first):\n"
            '  File "/x/site-packages/torch/library.py", line 9 in inner\n'
            f'  File "/run/{own}.py", line 12 in {own}\n'
            '  File "/run/train.py", line 3 in <module>\n'
        )

    def verdict(self) -> Verdict:
        return triage([self.folder.path])


def first(verdict: Verdict) -> tuple[str, tuple[int, ...]]:
    assert verdict.faults
    return verdict.faults[0].kind, verdict.faults[0].culprit.ranks


SAME = ["all_reduce", "all_reduce", "broadcast"]


def test_behind_and_in_no_collective(tmp_path: Path) -> None:
    told = Told(tmp_path, 3)
    told.answers(r0="S", r1="S", r2="S")
    told.dump(0, SAME, pending=True)
    told.dump(1, SAME[:2], pending=False)
    told.dump(2, [*SAME, "all_reduce"], pending=True)  # its part of the broadcast was sent already
    told.stack(1, "fetch")
    verdict = told.verdict()
    assert first(verdict) == ("app.rank-hung", (1,))
    assert "never entered collective 3 and stands in fetch (fetch.py:12)" in verdict.faults[0].cause


def test_a_differing_call_among_three_and_among_two(tmp_path: Path) -> None:
    three = Told(tmp_path, 3)
    for rank in (0, 1):
        three.dump(rank, SAME, pending=True)
    three.dump(2, [*SAME[:2], "barrier"], pending=True)
    assert first(three.verdict()) == ("nccl.collective-mismatch", (2,))
    two = Told(tmp_path / "two", 2)
    two.dump(0, SAME, pending=True)
    two.dump(1, [*SAME[:2], "barrier"], pending=True)
    assert first(two.verdict()) == ("nccl.collective-mismatch", ())  # one of two is wrong: nobody says which


def test_all_stand_outside(tmp_path: Path) -> None:
    told = Told(tmp_path, 2)
    told.answers(r0="S", r1="S")
    for rank in (0, 1):
        told.dump(rank, SAME, pending=False)
        told.stack(rank, "read_shard")
    verdict = told.verdict()
    assert first(verdict) == ("app.rank-hung", (0, 1)) and "read_shard" in verdict.faults[0].cause


def test_a_lone_rank_that_hangs(tmp_path: Path) -> None:
    told = Told(tmp_path, 1)
    told.answers(r0="S")
    durable.write_json(told.folder.flight_dump(0), {"rank": 0, "entries": []})
    told.stack(0, "tokenise")
    assert first(told.verdict()) == ("app.rank-hung", (0,))


@pytest.mark.parametrize(("state", "words"), [("T!", "stopped by a signal"), ("D!", "waits in the kernel")])
def test_alive_without_an_answer(state: str, words: str, tmp_path: Path) -> None:
    told = Told(tmp_path, 2)
    told.answers(r0="S", r1=state)
    told.dump(0, SAME, pending=True)
    verdict = told.verdict()
    assert first(verdict) == ("app.rank-hung", (1,)) and words in verdict.faults[0].cause


def test_where_a_stopped_rank_stood_as_py_spy_saw_it(tmp_path: Path) -> None:
    told = Told(tmp_path, 2)
    told.answers(r0="S!", r1="T!")  # neither answers, but only one of them cannot
    (told.folder.flight / "rank-1.py-spy.txt").write_text(
        "Process 7: python train.py\nPython v3.11.7 (/usr/bin/python3.11)\n\n"
        'Thread 7 (idle): "MainThread"\n'
        "    forward (/x/site-packages/torch/nn/modules/linear.py:134)\n"
        "    collate (/run/loader.py:41)\n"
        "    <module> (/run/train.py:3)\n"
        'Thread 9 (idle): "flight"\n'
        "    _listen (/run/jobs/train/flight.py:58)\n"
    )
    verdict = told.verdict()
    assert first(verdict) == ("app.rank-hung", (1,))
    assert any(quote.text.strip() == "collate (/run/loader.py:41)" for quote in verdict.faults[0].evidence)


def test_gone_while_the_others_wait(tmp_path: Path) -> None:
    told = Told(tmp_path, 2)
    told.answers(r0="S", r1="")
    told.dump(0, SAME, pending=True)
    assert first(told.verdict()) == ("app.rank-dead", (1,))


def test_a_stall_that_is_over_accuses_nobody(tmp_path: Path) -> None:
    told = Told(tmp_path, 2)
    told.answers(moved=True, r0="S", r1="T!")
    told.dump(0, SAME, pending=True)
    told.dump(1, SAME[:2], pending=False)
    told.stack(1, "fetch")
    assert told.verdict().verdict == "healthy"


def test_the_first_that_failed_by_itself(tmp_path: Path) -> None:
    told = Told(tmp_path, 3)
    told.state("failed", "rank 2: ValueError: bad row")
    told.rank(0, "failed", "lost another rank: closed by peer", secondary=True)
    told.rank(1, None)
    told.rank(2, "failed", "ValueError: bad row")
    assert first(told.verdict()) == ("app.exception-one-rank", (2,))


def test_out_of_memory_and_full_disk_by_their_records(tmp_path: Path) -> None:
    memory = Told(tmp_path, 2)
    memory.rank(0, "failed", "lost another rank: closed by peer", secondary=True)
    memory.rank(1, "failed", "out of memory: OutOfMemoryError: CUDA")
    assert first(memory.verdict()) == ("app.rank-oom", (1,))
    disk = Told(tmp_path / "disk", 1)
    disk.rank(0, "failed", "the disk is full")
    assert first(disk.verdict())[0] == "host.disk-full"


def test_a_full_disk_that_left_no_room_to_say_so(tmp_path: Path) -> None:
    told = Told(tmp_path, 1)
    told.state("failed", "the launcher ended with exit code 1")
    node = told.folder.path / "node"
    node.mkdir()
    (node / "disks.txt").write_text(
        "Filesystem 1K-blocks Used Available Use% Mounted on\ndisk 1000 100 900 10% /\ndisk 9000 9000 0 100% /data\n"
    )
    verdict = told.verdict()
    assert first(verdict)[0] == "host.disk-full" and "/data" in verdict.faults[0].cause


def test_a_memory_limit_told_by_the_group(tmp_path: Path) -> None:
    told = Told(tmp_path, 2)
    told.state("failed")
    told.folder.launcher_log.write_text(
        "E1201 01:37:49.233000 16623 torch/distributed/elastic/multiprocessing/api.py:984] failed (exitcode: -9) "
        "local_rank: 1 (pid: 101) of binary: /usr/bin/python\n"
    )
    node = told.folder.path / "node"
    node.mkdir()
    (node / "memory.events.txt").write_text("low 0\nhigh 0\nmax 31\noom 1\noom_kill 1\n")
    assert first(told.verdict()) == ("app.host-oom-kill", (1,))


@pytest.mark.parametrize("reason", ["completed", "stopped", "killed"])
def test_one_that_ended_as_asked_has_no_fault(reason: str, tmp_path: Path) -> None:
    told = Told(tmp_path, 2)
    told.state(reason, "as asked")
    for rank in (0, 1):
        told.rank(rank, None if reason == "killed" else reason)
    told.folder.launcher_log.write_text(
        "W1201 01:37:49.233 16623 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 16687 closing "
        "signal SIGTERM\ntorch.distributed.elastic.multiprocessing.api.SignalException: Process 16623 got signal: 15\n"
    )
    assert told.verdict().verdict == "healthy"


def test_code_data_and_weights_of_a_run_are_no_evidence(tmp_path: Path) -> None:
    told = Told(tmp_path, 1)
    for name in ("jobs", "configs", "output", "snapshots"):
        (told.folder.path / name).mkdir(exist_ok=True)
        (told.folder.path / name / "examples.jsonl").write_text(
            json.dumps({"input": "NVRM: Xid (PCI:0000:3b:00): 79, pid=4211, GPU has fallen off the bus."}) + "\n"
        )
    assert told.verdict().verdict == "healthy"


@pytest.mark.parametrize(
    "content", ["{", "[]", "{}", '{"rank": "x", "identity": 7}', '{"tunedeck": "answers", "ranks": [7]}']
)
def test_files_that_only_bear_such_names(content: str, tmp_path: Path) -> None:
    told = Told(tmp_path, 1)
    for path in (told.folder.state, told.folder.rank(0), told.folder.flight_answers, told.folder.flight_dump(0)):
        path.write_text(content)
    assert told.verdict().verdict == "healthy"
