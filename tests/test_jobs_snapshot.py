"""Snapshots on disk: published whole or not at all, and refused in words when a byte is not as written."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobs import retention, snapshot, snapshot_writer
from jobs.run_folder import RunFolder
from jobs.settings import Snapshots
from jobs.snapshot import Snapshot, SnapshotError
from jobs.snapshot_writer import Buffer

ROOT = Path(__file__).resolve().parent.parent
DAY_S = 86_400
DEADLINE_S = 20


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder.inside(tmp_path, "run-a")
    made.create()
    return made


def publish(
    folder: RunFolder, step: int, branch: int = 0, loss: float | None = 1.0, body: bytes = b"x" * 5000
) -> Snapshot:
    parts: dict[str, list[Buffer]] = {"weights.safetensors": [body, memoryview(body)], "state.json": [b"{}"]}
    return snapshot_writer.write(folder, branch, step, parts, 2 * len(body), {"loss": loss, "reason": "test"})


def test_published_and_verified(folder: RunFolder) -> None:
    made = publish(folder, 120)
    assert made.name == "b0-s00000120" and made.size_bytes == 10_002 and made.loss == 1.0
    assert snapshot.verify(folder, made.name) == made
    assert (made.path.stat().st_mode & 0o777, (made.path / "state.json").stat().st_mode & 0o777) == (0o700, 0o600)


def test_names_in_order_of_branch_and_step(folder: RunFolder) -> None:
    for branch, step in [(0, 10), (1, 4), (0, 9), (10, 1)]:
        publish(folder, step, branch)
    assert snapshot.names(folder) == ["b0-s00000009", "b0-s00000010", "b1-s00000004", "b10-s00000001"]


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _link(path: Path) -> None:
    outside = path.parents[2] / "outside"
    path.rename(outside)
    path.symlink_to(outside)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "truncated": (lambda at: os.truncate(at / "weights.safetensors", 77), "has 77 bytes, written were 10000"),
    "zero bytes": (lambda at: os.truncate(at / "weights.safetensors", 0), "has 0 bytes"),
    "bit flip": (lambda at: _flip(at / "weights.safetensors"), "was changed after it was written"),
    "missing": (lambda at: (at / "state.json").unlink(), "lacks the file state.json"),
    "extra": (lambda at: (at / "more.bin").write_bytes(b"?"), "holds a file that does not belong to it (more.bin)"),
    "link to a file": (
        lambda at: _link(at / "weights.safetensors"),
        "lacks the file weights.safetensors, or it is a link",
    ),
    "link to a folder": (_link, "is missing or a link"),
    "no manifest": (lambda at: (at / "manifest.json").unlink(), "has no manifest"),
    "empty manifest": (lambda at: os.truncate(at / "manifest.json", 0), "has a damaged manifest"),
    "flipped manifest": (lambda at: _flip(at / "manifest.json"), "has a damaged manifest"),
    "renamed": (lambda at: at.rename(at.with_name("b0-s00000021")), "was renamed"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_refused_and_the_older_one_offered(folder: RunFolder, kind: str) -> None:
    publish(folder, 10)
    damaged = publish(folder, 20)
    damage, words = DAMAGE[kind]
    damage(damaged.path)
    found, refused = snapshot.newest(folder)
    assert found is not None and found.name == "b0-s00000010"
    assert len(refused) == 1 and words in refused[0].message and refused[0].hint


def test_a_snapshot_of_another_run_is_refused(folder: RunFolder, tmp_path: Path) -> None:
    other = RunFolder.inside(tmp_path, "run-b")
    other.create()
    publish(other, 30).path.rename(folder.snapshots / "b0-s00000030")
    with pytest.raises(SnapshotError, match=r"belongs to another run \(run-b\)"):
        snapshot.verify(folder, "b0-s00000030")
    assert snapshot.verify(folder, "b0-s00000030", run="run-b").step == 30


@pytest.mark.parametrize("name", ["../run-b", "b0-s1/../..", "", "manifest.json"])
def test_only_names_of_snapshots_are_taken(folder: RunFolder, name: str) -> None:
    with pytest.raises(SnapshotError, match="is not a snapshot's name"):
        snapshot.read(folder, name)


def test_the_same_name_is_never_overwritten(folder: RunFolder) -> None:
    first = publish(folder, 10)
    with pytest.raises(SnapshotError, match="is there already"):
        publish(folder, 10, body=b"y")
    assert snapshot.verify(folder, first.name) == first


def test_no_room_is_found_out_beforehand(folder: RunFolder) -> None:
    with pytest.raises(SnapshotError, match=r"no room for a snapshot: it takes \d+ MiB and the disk has \d+ MiB free"):
        snapshot_writer.write(folder, 0, 1, {"a": [b""]}, 1 << 60, {})
    assert list(folder.snapshots.iterdir()) == []


def _in_child(folder: RunFolder, body: str) -> subprocess.Popen[str]:
    code = (
        "import sys, time, resource; from pathlib import Path; from jobs import snapshot_writer\n"
        "from jobs.run_folder import RunFolder; from jobs.snapshot import SnapshotError\n"
        f"folder = RunFolder(Path({str(folder.path)!r}))\n{body}"
    )
    return subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_a_write_that_fails_midway_leaves_nothing(folder: RunFolder) -> None:
    """The limit on a file's size fails like a full disk: in the middle of a write."""
    limit = f"resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, {resource.RLIM_INFINITY}))\n"
    attempt = (
        "try: snapshot_writer.write(folder, 0, 5, {'big': [b'x' * 1_000_000]}, 10, {})\n"
        "except SnapshotError as wrong: print(wrong.message)\n"
    )
    child = _in_child(folder, limit + attempt)
    out, _ = child.communicate(timeout=DEADLINE_S)
    assert "snapshot b0-s00000005 could not be written: File too large" in out
    assert list(folder.snapshots.iterdir()) == []


def test_a_killed_writer_leaves_only_staging(folder: RunFolder) -> None:
    publish(folder, 1)
    body = (
        "def slow():\n    yield b'x' * 100_000\n    print('half', flush=True)\n    time.sleep(600)\n"
        "snapshot_writer.write(folder, 0, 2, {'big': slow()}, 10, {})\n"
    )
    child = _in_child(folder, body)
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == "half\n"
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait(DEADLINE_S)
        child.stdout.close()
    assert snapshot.names(folder) == ["b0-s00000001"]
    assert [path.name.startswith(".staging-b0-s00000002") for path in folder.snapshots.iterdir()].count(True) == 1
    snapshot_writer.sweep(folder)
    assert [path.name for path in folder.snapshots.iterdir()] == ["b0-s00000001"]


def _aged(found: list[Snapshot], now: float, days: Iterator[float]) -> list[Snapshot]:
    from dataclasses import replace

    return [replace(one, created_unix=now - next(days) * DAY_S) for one in found]


def test_retention_keeps_young_last_best_and_pinned(folder: RunFolder) -> None:
    losses = {10: 9.0, 20: 0.1, 30: 5.0, 40: float("nan"), 50: 4.0, 60: 3.0, 70: 2.0}
    for step, loss in losses.items():
        publish(folder, step, loss=loss)
    snapshot.pin(folder, "b0-s00000010", True)
    now = time.time()
    found = _aged(snapshot.listing(folder), now, iter([20, 19, 18, 17, 6, 5, 4]))
    gone = retention.expendable(found, Snapshots(keep_days=7, keep_last=2, keep_best=1), now)
    assert [one.step for one in gone] == [30, 40]
    everything = retention.expendable(found, Snapshots(keep_days=0, keep_last=1, keep_best=0), now)
    assert [one.step for one in everything] == [20, 30, 40, 50, 60]


def test_nothing_is_pruned_while_the_clock_is_wrong(folder: RunFolder) -> None:
    for step in (10, 20, 30):
        publish(folder, step)
    now = time.time()
    found = _aged(snapshot.listing(folder), now, iter([20, 19, -1]))
    assert retention.expendable(found, Snapshots(keep_days=0, keep_last=1, keep_best=0), now) == []


def test_pruning_waits_for_a_newer_one_that_verifies(folder: RunFolder) -> None:
    for step in (10, 20):
        publish(folder, step)
    keep = Snapshots(keep_days=0, keep_last=1, keep_best=0)
    _flip(folder.snapshots / "b0-s00000020" / "weights.safetensors")
    with pytest.raises(SnapshotError, match="was changed after it was written"):
        retention.prune(folder, keep, "b0-s00000020")
    assert snapshot.names(folder) == ["b0-s00000010", "b0-s00000020"]
    publish(folder, 30)
    assert retention.prune(folder, keep, "b0-s00000030") == ["b0-s00000010", "b0-s00000020"]
    assert [path.name for path in folder.snapshots.iterdir()] == ["b0-s00000030"]


def test_pins_come_and_go(folder: RunFolder) -> None:
    name = publish(folder, 10).name
    snapshot.pin(folder, name, True)
    assert snapshot.read(folder, name).pinned
    snapshot.pin(folder, name, False)
    assert not snapshot.read(folder, name).pinned
    with pytest.raises(SnapshotError, match="is missing"):
        snapshot.pin(folder, "b0-s00000011", True)
