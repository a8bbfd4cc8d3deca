"""Snapshots after a power cut: what was not synced may be lost, in part and any order; what is left is believable."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobs import retention, snapshot, snapshot_writer
from jobs.run_folder import RunFolder
from jobs.settings import Snapshots
from jobs.snapshot import SnapshotError
from tests.fakes.disk import LISTENING, Recorder, Tree, cuts

KEEP = Snapshots(keep_days=0, keep_last=1, keep_best=0)
FIRST = "b0-s00000010"


def materialise(tree: Tree, folder: RunFolder) -> None:
    for path, content in sorted(tree, key=lambda one: one[0]):
        place = folder.snapshots / path
        if content is None:
            place.mkdir()
        else:
            place.write_bytes(content)


def faults(recorder: Recorder, parent: Path) -> tuple[int, list[str]]:
    """Number of different states, and what was wrong in them."""
    wrong, number = [], 0
    for tree, promised in cuts(recorder, frozenset({FIRST})):
        number += 1
        folder = RunFolder.inside(parent / str(number), "run-a")
        folder.create()
        materialise(tree, folder)
        wrong += [f"{fault}: {sorted(path for path, _ in tree)}" for fault in judge(folder, promised)]
    return number, wrong


def judge(folder: RunFolder, promised: frozenset[str]) -> Iterator[str]:
    believed = set()
    for name in snapshot.names(folder):
        try:
            believed.add(snapshot.verify(folder, name).name)
        except SnapshotError as damaged:
            yield str(damaged)
    if promised - believed:
        yield f"lost {sorted(promised - believed)}"
    snapshot_writer.sweep(folder)
    if {entry.name for entry in folder.snapshots.iterdir()} != set(snapshot.names(folder)):
        yield "the next start leaves remains"


def write(folder: RunFolder, step: int) -> str:
    parts = {"weights.safetensors": [b"%d" % step * 20], "state.json": [b'{"step":%d}' % step]}
    return snapshot_writer.write(folder, 0, step, parts, 50, {"loss": 1.0}).name


def recorded(folder: RunFolder, patch: pytest.MonkeyPatch, act: Callable[[Recorder], None], deaf: str = "") -> Recorder:
    recorder = Recorder(folder.snapshots, deaf)
    patch.setattr(os, "fsync", recorder.fsync)
    LISTENING.append(recorder)
    recorder.on = True
    try:
        act(recorder)
    finally:
        recorder.on = False
        LISTENING.remove(recorder)
    assert recorder.nodes.keys() - {str(folder.snapshots)} == {str(path) for path in folder.snapshots.rglob("*")}
    return recorder


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder.inside(tmp_path, "run-a")
    made.create()
    write(made, 10)
    return made


def publish_and_prune(folder: RunFolder, recorder: Recorder) -> None:
    """Two more snapshots; each time the one before goes. A promise ends when its pruning begins."""
    before = FIRST
    for step in (20, 30):
        name = write(folder, step)
        recorder.promise(before, name)
        recorder.promise(name)
        assert retention.prune(folder, KEEP, name) == [before]
        before = name


def test_only_verified_or_ignored_folders_are_left(
    folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = recorded(folder, monkeypatch, lambda recorder: publish_and_prune(folder, recorder))
    number, wrong = faults(recorder, tmp_path / "cuts")
    assert wrong == [] and number > 100


@pytest.mark.parametrize(("deaf", "words"), [("file", " bytes, written were "), ("folder", "lost [")])
def test_without_syncs_the_cuts_would_be_felt(
    folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deaf: str, words: str
) -> None:
    def act(recorder: Recorder) -> None:
        recorder.promise(FIRST, write(folder, 20))

    _, wrong = faults(recorded(folder, monkeypatch, act, deaf), tmp_path / "cuts")
    assert any(words in one for one in wrong)
