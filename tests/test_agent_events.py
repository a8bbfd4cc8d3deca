"""The event journal: numbers without holes, over crashes, pruning and full disks."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from agent import events as module
from agent.events import Events
from agent.journal import Journal
from agent.wire import Gap


def journal(path: Path, count: int) -> Events:
    events = Events(path)
    for number in range(count):
        events.add("test", f"event {number + 1}", run="run-1", record_number=number + 1)
    events.flush()
    return events


def test_numbers_go_on_after_a_restart(tmp_path: Path) -> None:
    first = journal(tmp_path / "e", 3)
    again = Events(tmp_path / "e")
    assert (again.stream, again.last_seq) == (first.stream, 3)
    again.add("test", "fourth")
    again.flush()
    gap, found = Events(tmp_path / "e").after(2, 10)
    assert gap is None and [event.seq for event in found] == [3, 4]
    assert again.cursor("run-1").record == 3


def test_nothing_is_told_before_it_is_on_disk(tmp_path: Path) -> None:
    events = journal(tmp_path / "e", 1)
    events.add("test", "queued")
    assert events.last_seq == 1 and events.after(1, 10) == (None, [])


def test_half_a_line_is_as_if_never_written(tmp_path: Path) -> None:
    journal(tmp_path / "e", 3)
    with (tmp_path / "e").open("rb+") as stream:
        stream.truncate((tmp_path / "e").stat().st_size - 7)
    again = Events(tmp_path / "e")
    assert again.last_seq == 2 and again.cursor("run-1").record == 2
    again.add("test", "third once more")
    again.flush()
    assert [event.text for event in Events(tmp_path / "e").after(0, 9)[1]][-1] == "third once more"


def test_a_journal_without_a_head_begins_a_new_stream(tmp_path: Path) -> None:
    first = journal(tmp_path / "e", 3)
    (tmp_path / "e").write_bytes(b"\0" * 100)
    again = Events(tmp_path / "e")
    assert again.stream != first.stream and again.last_seq == 0


def test_pruning_announces_a_gap_and_keeps_the_cursors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT", 10)
    monkeypatch.setattr(module, "SLACK", 5)
    events = Events(tmp_path / "e")
    events.add("run.started", "begin", run="old-run")
    for number in range(40):
        events.add("test", str(number))
        events.flush()
    again = Events(tmp_path / "e")
    assert again.last_seq == 41 and again.first_seq > 20
    gap, found = again.after(5, 100)
    assert gap == Gap(again.stream, 6, again.first_seq - 1)
    assert found[0].seq == again.first_seq and found[-1].seq == 41
    assert again.cursor("old-run").started, "or its start would be told again"
    assert len((tmp_path / "e").read_bytes().splitlines()) <= 16


def test_a_full_disk_keeps_the_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write fails after half of it: nothing of it may stay."""
    events = journal(tmp_path / "e", 1)
    real = os.pwrite
    room = [30]

    def full(handle: int, block: bytes, offset: int) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        part = block[: room[0]]
        room[0] -= len(part)
        return real(handle, part, offset)

    events.add("test", "second")
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space"):
            events.flush()
    assert Events(tmp_path / "e").last_seq == 1
    events.flush()
    assert [event.text for event in Events(tmp_path / "e").after(0, 9)[1]] == ["event 1", "second"]


def test_a_journal_line_is_whole_or_absent(tmp_path: Path) -> None:
    book = Journal(tmp_path / "j")
    assert book.entries() == []
    book.append({"id": 1})
    with (tmp_path / "j").open("ab") as stream:
        stream.write(b'{"id": 2, "text": "hal')
    assert book.entries() == [{"id": 1}]
    book.keep(1000)
    book.append({"id": 3})
    assert book.entries() == [{"id": 1}, {"id": 3}]
    assert (tmp_path / "j").stat().st_mode & 0o777 == 0o600
