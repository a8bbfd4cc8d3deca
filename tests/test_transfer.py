"""An export on its way home: links and consoles may go, disks may fill up; nothing half or wrong is ever in place."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent import exporting, wire
from agent.refusal import Refusal
from console import transfer
from console.commands.export import FromNode
from console.failure import Failure
from console.fleet import LinkView
from console.refusal import Question
from console.session import Inbox, Session
from console.transfer import PARTIAL, SLICE_BYTES, File, Pull
from jobs.run_folder import RunFolder

ROOT = Path(__file__).resolve().parent.parent
SIZES = {"adapter_model.safetensors": 5 * SLICE_BYTES + 12345, "adapter_config.json": 700, "empty": 0}


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """An export as it lies in a run folder, with its list."""
    folder = tmp_path / "run-1" / "exports" / "final"
    folder.mkdir(parents=True)
    for name, size in SIZES.items():
        (folder / name).write_bytes(os.urandom(size))
    sums = (f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(folder.iterdir()))
    (folder / "SHA256SUMS").write_text("".join(sums))
    return folder


def listed(made: Path) -> list[File]:
    return [File.listed(entry) for entry in exporting.files(made)]


@dataclass
class Near:
    """The agent's own reading, without a link. `spoil`: offsets whose slice arrives with one bit turned, once each."""

    made: Path
    spoil: set[int] = field(default_factory=set)
    asked: list[int] = field(default_factory=list)
    limit_bytes: int = SLICE_BYTES

    def ask(self, path: str, offset: int, limit_bytes: int) -> Future[wire.Reply]:
        self.asked.append(offset)
        order = wire.ReadExport("run-1", self.made.name, path, offset, min(limit_bytes, self.limit_bytes))
        answer = exporting.read(RunFolder(self.made.parent.parent), order)
        if offset in self.spoil:
            self.spoil.remove(offset)
            answer["base64"] = ("B" if answer["base64"][0] == "A" else "A") + answer["base64"][1:]
        future: Future[wire.Reply] = Future()
        future.set_result(wire.Reply("o", True, answer))
        return future

    def result(self, _path: str, _offset: int, future: Future[wire.Reply]) -> dict[str, Any]:
        return future.result().result


def same(made: Path, target: Path) -> bool:
    return {p.name: p.read_bytes() for p in made.iterdir()} == {p.name: p.read_bytes() for p in target.iterdir()}


@pytest.mark.parametrize("limit_bytes", [SLICE_BYTES, 300_000])
def test_all_files_arrive_and_a_second_time_nothing_has_to(made: Path, tmp_path: Path, limit_bytes: int) -> None:
    heard: list[tuple[int, int]] = []
    target = tmp_path / "here"
    total = sum(file.size_bytes for file in listed(made))
    pull = Pull(Near(made, limit_bytes=limit_bytes), listed(made), target, lambda *now: heard.append(now))
    assert pull.run() == total and same(made, target)
    assert heard[-1] == (total, total) and heard == sorted(heard)
    again = Near(made)
    assert Pull(again, listed(made), target).run() == 0
    assert again.asked == []


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.test_transfer import Near, listed
from console.transfer import Pull

def die(done, total):
    if done > 3_000_000:
        os.kill(os.getpid(), signal.SIGKILL)

made = Path({made!r})
Pull(Near(made), listed(made), Path({target!r}), die).run()
"""


def test_a_killed_console_leaves_what_the_next_one_goes_on_with(made: Path, tmp_path: Path) -> None:
    target = tmp_path / "here"
    code = KILLED.format(root=str(ROOT), made=str(made), target=str(target))
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == -9
    assert [path.name for path in target.iterdir()] == [PARTIAL], "nothing is in place before all of it is"
    total = sum(file.size_bytes for file in listed(made))
    near = Near(made)
    assert Pull(near, listed(made), target).run() <= total - 3_000_000
    assert min(offset for offset in near.asked if offset) >= 2 * SLICE_BYTES and same(made, target)


def test_a_partial_file_with_wrong_bytes_is_fetched_anew(made: Path, tmp_path: Path) -> None:
    target, near = tmp_path / "here", Near(made)
    large = max(listed(made), key=lambda file: file.size_bytes)
    (target / PARTIAL).mkdir(parents=True)
    (target / PARTIAL / large.partial_name).write_bytes(b"x" * 100)
    Pull(near, listed(made), target).run()
    assert same(made, target) and near.asked.count(100) == 1


def test_what_arrives_damaged_is_fetched_again_and_never_put_in_place(made: Path, tmp_path: Path) -> None:
    target = tmp_path / "here"
    target.mkdir()
    old = target / "adapter_model.safetensors"
    old.write_bytes(b"the one before")
    Pull(Near(made, spoil={SLICE_BYTES}), listed(made), target).run()
    assert same(made, target)
    old.write_bytes(b"the one before")

    class Always(Near):
        def ask(self, path: str, offset: int, limit_bytes: int) -> Future[wire.Reply]:
            self.spoil.add(0)
            return super().ask(path, offset, limit_bytes)

    with pytest.raises(Failure, match="arrived damaged 2 times"):
        Pull(Always(made), listed(made), target).run()
    assert old.read_bytes() == b"the one before"


def test_an_export_that_changes_on_the_node_is_noticed(made: Path, tmp_path: Path) -> None:
    files = listed(made)
    (made / "adapter_config.json").write_bytes(b"{}")
    with pytest.raises(Failure, match=r"adapter_config\.json changed on the node"):
        Pull(Near(made), files, tmp_path / "here").run()


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", "", "a//b", ".", f"{PARTIAL}/x", "a\\..\\x", "a\nb"])
def test_names_that_lead_elsewhere_are_refused(path: str) -> None:
    with pytest.raises(Failure, match="no place in a folder"):
        File.listed({"path": path, "bytes": 1, "sha256": "0" * 64})


def test_nothing_is_written_through_links(made: Path, tmp_path: Path) -> None:
    elsewhere, target = tmp_path / "elsewhere", tmp_path / "here"
    elsewhere.mkdir()
    target.mkdir()
    (target / "sub").symlink_to(elsewhere)
    (made / "sub").mkdir()
    (made / "sub" / "weights").write_bytes(b"w")
    entry = {"path": "sub/weights", "bytes": 1, "sha256": hashlib.sha256(b"w").hexdigest()}
    with pytest.raises(Failure, match="is a link"):
        Pull(Near(made), [File.listed(entry)], target).run()
    (target / "sub").unlink()
    (target / PARTIAL).rename(target / "sub")
    (target / PARTIAL).symlink_to(elsewhere)
    with pytest.raises(Failure, match="is a link"):
        Pull(Near(made), listed(made), target).run()
    assert list(elsewhere.iterdir()) == []


def test_other_files_in_the_folder_stay(made: Path, tmp_path: Path) -> None:
    target = tmp_path / "here"
    target.mkdir()
    (target / "notes.txt").write_text("mine")
    Pull(Near(made), listed(made), target).run()
    assert (target / "notes.txt").read_text() == "mine"


def test_two_at_once_do_not_mix(made: Path, tmp_path: Path) -> None:
    class Second(Near):
        def ask(self, path: str, offset: int, limit_bytes: int) -> Future[wire.Reply]:
            with pytest.raises(Failure, match="another tunedeck is writing"):
                Pull(Near(made), listed(made), tmp_path / "here").run()
            return super().ask(path, offset, limit_bytes)

    Pull(Second(made), listed(made), tmp_path / "here").run()
    assert same(made, tmp_path / "here")


def test_a_full_disk_is_said_and_what_has_arrived_is_kept(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m,mode=0700", "tmpfs", str(small)], check=True)
    try:
        target = small / "here"
        with pytest.raises(Failure, match="are still to come"):
            Pull(Near(made), listed(made), target).run()
        monkeypatch.setattr(Pull, "check_room", lambda *_: None)  # it fills up while files arrive
        with pytest.raises(Failure, match="the disk is full") as full:
            Pull(Near(made), listed(made), target).run()
        assert "is kept" in full.value.hint
        kept = sum(part.stat().st_size for part in (target / PARTIAL).iterdir())
        assert kept >= 2 * SLICE_BYTES
        subprocess.run(["mount", "-o", "remount,size=20m", str(small)], check=True)
        total = sum(file.size_bytes for file in listed(made))
        assert Pull(Near(made), listed(made), target).run() == total - kept
        assert same(made, target)
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


@dataclass
class Shaky:
    """A link over which every third question is lost together with the connection."""

    made: Path
    inbox: Inbox
    asked: int = 0

    def answer(self, question: Question, text: str) -> None:
        raise AssertionError((question, text))

    def order(self, body: wire.Body, _deadline_s: float, order_id: str | None = None) -> Future[wire.Reply]:
        assert isinstance(body, wire.ReadExport)
        self.asked += 1
        future: Future[wire.Reply] = Future()
        lost = self.asked % 3 == 0
        view = (
            LinkView("down", time.monotonic(), "the connection broke") if lost else LinkView("live", time.monotonic())
        )
        self.inbox.append(("n1", view))
        try:
            answer = exporting.read(RunFolder(self.made.parent.parent), body)
        except Refusal as error:
            future.set_result(wire.Reply(order_id or "", False, error=error.message, hint=error.hint))
            return future
        future.set_result(wire.Reply(order_id or "", not lost, answer, "" if not lost else "no reply within 30 s"))
        return future

    def close(self) -> None:
        return


def shaky(made: Path) -> FromNode:
    session = Session(["n1"], lambda _name, inbox: Shaky(made, inbox))
    session.start()
    return FromNode(session, "n1", "run-1", made.name)


def test_a_lost_link_is_waited_for(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Pull(shaky(made), listed(made), tmp_path / "here").run()
    assert same(made, tmp_path / "here")
    assert "n1 is away (the connection broke); the transfer waits" in capsys.readouterr().err


def test_a_node_that_refuses_ends_the_transfer(made: Path, tmp_path: Path) -> None:
    files = listed(made)
    (made / "adapter_model.safetensors").unlink()
    with pytest.raises(Failure, match=r"n1: .*adapter_model\.safetensors is not there"):
        Pull(shaky(made), files, tmp_path / "here").run()


def test_a_node_that_stays_away_is_given_up(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("console.commands.export.PATIENCE_S", 0.0)
    source = shaky(made)
    link = source.session.links["n1"]
    assert isinstance(link, Shaky)
    link.asked = 2
    with pytest.raises(Failure, match="the connection broke") as gone:
        Pull(source, listed(made), tmp_path / "here").run()
    assert gone.value.status == 255 and "is kept" in gone.value.hint


def test_the_wire_takes_a_whole_slice() -> None:
    assert transfer.SLICE_BYTES <= exporting.SLICE_BYTES
    longest = wire.Reply("o" * 64, True, {"base64": "x" * (4 * exporting.SLICE_BYTES // 3 + 4), "next": 1, "size": 1})
    assert wire.read_from_agent(wire.encode(longest)) == longest
