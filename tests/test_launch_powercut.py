"""A new run's folder after a power cut: published only when every byte and every name in it is on the disk."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from agent import launch, resuming
from agent.interpreters import Interpreter
from agent.launch import Start
from agent.state import StateFolder
from jobs import snapshot, snapshot_writer
from jobs.run_folder import RunFolder
from jobs.spec import Spec
from tests.fakes.node import variables

TEXT = "name: cut\nmodel: some/model\ndata: {path: example:faults}\n"
Seen = dict[Path, bytes | list[str]]
LISTENING: list[Witness] = []


def content(path: Path) -> bytes | list[str]:
    return sorted(one.name for one in path.iterdir()) if path.is_dir() else path.read_bytes()


class Witness:
    """What had been synced, as it then was, and what of a folder had not been when it was published by its rename."""

    def __init__(self, published: Path) -> None:
        self.published = published
        self.synced: Seen = {}
        self.missing: list[list[str]] = []

    def fsync(self, handle: int) -> None:
        path = Path(f"/proc/self/fd/{handle}").readlink()
        self.synced[path] = content(path)

    def hear(self, event: str, given: tuple[Any, ...]) -> None:
        if event == "os.rename" and Path(given[1]).parent == self.published:
            staging = Path(given[0])
            everything = [staging, *staging.rglob("*")]
            self.missing.append([str(one) for one in everything if self.synced.get(one) != content(one)])


def _hook(event: str, given: tuple[Any, ...]) -> None:
    for one in LISTENING:
        one.hear(event, given)


sys.addaudithook(_hook)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateFolder:
    for name, value in variables(tmp_path).items():
        monkeypatch.setenv(name, value)
    made = StateFolder.locate()
    made.create()
    return made


@pytest.fixture
def witness(state: StateFolder, monkeypatch: pytest.MonkeyPatch) -> Witness:
    one = Witness(state.runs)
    monkeypatch.setattr(os, "fsync", one.fsync)
    return one


def made(state: StateFolder, witness: Witness, **how: Any) -> RunFolder:
    start = Start(Spec.parse(TEXT), TEXT, Interpreter(sys.executable, None), [], "order-1", "somebody")
    LISTENING.append(witness)
    try:
        return launch.make_folder(start, state, **how)
    finally:
        LISTENING.remove(witness)


def test_a_launched_run_is_whole_on_the_disk_before_it_has_a_name(state: StateFolder, witness: Witness) -> None:
    folder = made(state, witness)
    assert witness.missing == [[]] and (folder.path / "jobs" / "snapshot.py").is_file()
    assert witness.synced[state.runs] == [folder.name]


@pytest.mark.parametrize("links", [True, False])
def test_so_is_a_fork_with_the_snapshot_it_was_given(
    state: StateFolder, witness: Witness, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = RunFolder(state.runs / "before-1")
    before.create()
    found = snapshot_writer.write(before, 0, 7, {"weights": [b"w" * 5000]}, 5000, {"loss": 1.0})
    if not links:
        monkeypatch.setattr(Path, "hardlink_to", no_links)

    def furnish(staging: RunFolder, run: str) -> dict[str, Any]:
        witness.synced.clear()
        resuming.hand_over(found, staging, run)
        return {}

    folder = made(state, witness, furnish=furnish)
    assert witness.missing == [[]]
    assert snapshot.verify(folder, found.name).meta["taken_by"] == "before-1"


def no_links(_self: Path, _target: Path) -> None:
    raise PermissionError("no hard links here")
