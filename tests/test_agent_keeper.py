"""Runs belong to keepers: who ends how, what a kill leaves (nothing), and who takes over from a lost keeper."""

from __future__ import annotations

import signal
import time

import pytest

from agent import desk, family, keepers, kept, killing
from jobs import durable, progress
from jobs.identity import ProcessIdentity
from jobs.run_folder import RunFolder
from tests.fakes.node import Node, until


def ask(folder: RunFolder, grace_s: float, hard: bool = False) -> None:
    killing.KillRequest("order-1", grace_s, hard, time.time()).write(folder)


def members(folder: RunFolder) -> list[ProcessIdentity]:
    return family.members(folder.name, kept.recorded(folder))


def ended(node: Node, folder: RunFolder) -> kept.Kept:
    return until(lambda: node.ended(folder))


def orphan_of(folder: RunFolder) -> int:
    path = folder.path / "orphan.pid"
    return int(until(lambda: path.read_text() if path.exists() else ""))


def steps(folder: RunFolder) -> int:
    return len([one for one in progress.records(folder.progress)[0] if one["kind"] == "step"])


def test_completes_by_itself(node: Node) -> None:
    folder = node.start("short")
    last = ended(node, folder)
    assert (last.reason, last.exit_code, last.signal) == ("completed", 0, None)
    assert last.started_unix and last.ended_unix and last.ended_unix >= last.started_unix
    assert (folder.path / "logs" / "launcher.log").stat().st_mode & 0o777 == 0o600


def test_a_failing_rank_is_named_before_those_that_fell_with_it(node: Node) -> None:
    last = ended(node, node.start("crash"))
    assert last.reason == "failed"
    assert "rank 1: broken 1" in last.detail, "rank 0 says of itself that it failed because of another"


def test_ranks_that_vanish_are_told_apart_from_ranks_that_end(node: Node) -> None:
    last = ended(node, node.start("vanish"))
    assert last.reason == "failed"
    assert "exit code 9" in last.detail


def test_soft_kill_lets_the_job_stop_at_a_step(node: Node) -> None:
    folder = node.start("obedient")
    until(lambda: steps(folder) > 2)
    alive = members(folder)
    assert len(alive) == 3
    ask(folder, grace_s=30)
    assert ended(node, folder).reason == "stopped"
    found = killing.result(folder)
    assert found is not None and found.alive == ()
    assert set(found.gone) >= {one.pid for one in alive}
    assert [one for one in alive if one.state() != "gone"] == []


@pytest.mark.parametrize("mode", ["deaf", "frozen"])
def test_what_hears_nothing_is_killed_after_the_grace(node: Node, mode: str) -> None:
    folder = node.start(mode)
    alive = members(folder)
    assert len(alive) == 3
    ask(folder, grace_s=0.3)
    last = ended(node, folder)
    assert last.reason == "killed"
    assert [one.state() for one in alive] == ["gone"] * 3


def test_hard_kill_finds_a_daemonised_grandchild(node: Node) -> None:
    folder = node.start("orphan")
    pid = orphan_of(folder)
    orphan = ProcessIdentity.of(pid)
    assert orphan is not None
    assert pid in {one.pid for one in members(folder)}
    ask(folder, grace_s=0, hard=True)
    assert ended(node, folder).reason == "killed"
    assert orphan.state() == "gone"
    found = killing.result(folder)
    assert found is not None and pid in found.gone


def test_a_kill_spares_a_stranger_that_has_a_recorded_pid(node: Node) -> None:
    """After a restart a recorded pid may be anybody's; its start time gives it away."""
    folder = node.start("obedient", ranks=1)
    stranger = node.start("obedient", ranks=1, name="other")
    rank = kept.rank_records(stranger)[0].identity
    assert rank is not None
    former = {**rank.to_json(), "start_ticks": rank.start_ticks - 1}
    durable.write_json(folder.rank(7), {"identity": former, "outcome": None, "error": None})
    ask(folder, grace_s=0, hard=True)
    ended(node, folder)
    assert rank.state() == "alive"


def test_launcher_killed_leaves_no_ranks_behind(node: Node) -> None:
    folder = node.start("obedient")
    alive = members(folder)
    launcher = until(lambda: kept.read(folder)).launcher
    assert launcher is not None and launcher.send(signal.SIGKILL)
    last = ended(node, folder)
    assert (last.reason, last.signal) == ("failed", signal.SIGKILL)
    assert [one.state() for one in alive] == ["gone"] * 3


def test_hangup_is_nothing_to_a_run(node: Node) -> None:
    folder = node.start("obedient")
    keeper = until(lambda: kept.read(folder)).keeper
    assert keeper is not None
    assert keeper.send(signal.SIGHUP)
    before = steps(folder)
    until(lambda: steps(folder) > before + 5)
    assert keeper.state() == "alive"


def test_lost_keeper_is_replaced_and_the_run_never_notices(node: Node) -> None:
    folder = node.start("obedient")
    first = until(lambda: kept.read(folder)).keeper
    assert first is not None and first.send(signal.SIGKILL)
    until(lambda: first.state() == "gone")
    alive = members(folder)
    assert len(alive) == 3
    keepers.spawn(folder, adopt=True)
    until(lambda: kept.read(folder).keeper != first)  # type: ignore[union-attr]
    before = steps(folder)
    until(lambda: steps(folder) > before + 5)
    assert [one.state() for one in alive] == ["alive"] * 3
    ask(folder, grace_s=30)
    last = ended(node, folder)
    assert last.reason == "stopped", "the ranks' own words count when nobody saw the exit code"
    assert last.exit_code is None
    assert [one.state() for one in alive] == ["gone"] * 3


def test_hard_kill_through_an_adopter_finds_orphans_that_are_not_its_children(node: Node) -> None:
    folder = node.start("orphan")
    pid = orphan_of(folder)
    first = until(lambda: kept.read(folder)).keeper
    assert first is not None and first.send(signal.SIGKILL)
    until(lambda: first.state() == "gone")
    ask(folder, grace_s=0, hard=True)  # waits in the folder for the next keeper
    keepers.spawn(folder, adopt=True)
    assert ended(node, folder).reason == "killed"
    assert ProcessIdentity.of(pid) is None


def test_adopter_that_finds_nobody_says_lost(node: Node) -> None:
    folder = node.start("deaf")
    now = until(lambda: kept.read(folder))
    assert now.keeper is not None and now.keeper.send(signal.SIGKILL)
    until(lambda: now.keeper is not None and now.keeper.state() == "gone")
    for one in members(folder):
        one.send(signal.SIGKILL)
    until(lambda: not members(folder))
    keepers.spawn(folder, adopt=True)
    last = ended(node, folder)
    assert (last.reason, last.exit_code) == ("lost", None)


def test_only_one_keeper_at_a_time(node: Node) -> None:
    folder = node.start("obedient")
    second = keepers.spawn(folder, adopt=True)
    assert second.wait(30) == 0
    assert steps(folder) >= 0 and kept.read(folder).phase == "running"  # type: ignore[union-attr]


def test_a_full_disk_does_not_prevent_a_kill(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = node.start("obedient")
    now = until(lambda: kept.read(folder))
    alive = members(folder)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(killing.KillRequest, "write", full)
    desk.ask_keeper(folder, killing.KillRequest("order-1", 0, True, time.time()), now)
    assert ended(node, folder).reason == "killed"
    assert [one.state() for one in alive] == ["gone"] * 3


def test_a_launcher_that_cannot_be_started_is_a_failed_run(node: Node) -> None:
    folder = node.prepare("obedient")
    record = durable.read_json(folder.record)
    assert record is not None
    durable.write_json(folder.record, {**record, "argv": ["/nowhere/python"]})
    keepers.start(folder)
    last = ended(node, folder)
    assert last.reason == "failed" and "/nowhere/python" in last.detail
