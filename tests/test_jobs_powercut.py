"""Snapshots after a power cut: what was not synced may be lost, in part and in any order; what is left is believable.

The operations of real publications and prunings are recorded as the process makes them. A cut after each of them is
then played through with every choice of what the disk had not yet got: names made, moved and removed in a folder that
was not synced since, and the content of files not yet synced. That is the weakest a file system may do by POSIX.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from jobs import retention, snapshot, snapshot_writer
from jobs.run_folder import RunFolder
from jobs.settings import Snapshots
from jobs.snapshot import SnapshotError

KEEP = Snapshots(keep_days=0, keep_last=1, keep_best=0)
Tree = frozenset[tuple[str, bytes | None]]
"""Path below the folder and content; None for a folder."""


@dataclass(frozen=True, slots=True)
class Renamed:
    """A change to the names in one folder (all by number), which happens as a whole or not at all."""

    folder: int
    names: tuple[tuple[str, int | None], ...]


@dataclass(frozen=True, slots=True)
class Synced:
    """A file with its content, or a folder (None)."""

    node: int
    content: bytes | None


@dataclass(frozen=True, slots=True)
class Promised:
    """From here on these snapshots survive a cut."""

    names: frozenset[str]


Operation = Renamed | Synced | Promised


@dataclass
class Recorder:
    """What the process does below `root`, told by Python's audit events and, for fsync which has none, by `fsync`."""

    root: Path
    deaf: str = ""
    """Kind of node whose syncs count for nothing: "file" or "folder"."""
    nodes: dict[str, int] = field(default_factory=dict)
    base: dict[int, dict[str, int]] = field(default_factory=dict)
    contents: dict[int, bytes] = field(default_factory=dict)
    written: dict[int, bytes] = field(default_factory=dict)
    """What new files were to hold."""
    done: list[Operation] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)
    on: bool = False

    def __post_init__(self) -> None:
        """What is there by now is on the disk."""
        self.number(self.root, True)
        for path in sorted(self.root.rglob("*")):
            self.base[self.nodes[str(path.parent)]][path.name] = self.number(path, path.is_dir())
            if path.is_file():
                self.contents[self.nodes[str(path)]] = path.read_bytes()

    def number(self, path: Path, folder: bool) -> int:
        node = self.nodes[str(path)] = next(self.numbers)
        if folder:
            self.base[node] = {}
        return node

    def hear(self, event: str, given: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event == "open" and isinstance(given[0], (str, os.PathLike)) and given[2] & os.O_CREAT:
            self.made(at(given[0]), False)
        elif event == "os.mkdir":
            self.made(at(given[0], given[2]), True)
        elif event in ("os.remove", "os.rmdir"):
            self.removed(at(*given))
        elif event == "os.rename":
            self.moved(at(given[0], given[2]), at(given[1], given[3]))

    def made(self, path: Path, folder: bool) -> None:
        if str(path.parent) in self.nodes and str(path) not in self.nodes:
            node = self.number(path, folder)
            self.done.append(Renamed(self.nodes[str(path.parent)], ((path.name, node),)))

    def removed(self, path: Path) -> None:
        if self.nodes.pop(str(path), None) is not None:
            self.done.append(Renamed(self.nodes[str(path.parent)], ((path.name, None),)))

    def moved(self, path: Path, to: Path) -> None:
        if str(path) not in self.nodes:
            return
        assert path.parent == to.parent, "a move between folders is not modelled"
        inner = {name: node for name, node in self.nodes.items() if name == str(path) or name.startswith(f"{path}/")}
        for name, node in inner.items():
            del self.nodes[name]
            self.nodes[str(to) + name[len(str(path)) :]] = node
        names = ((path.name, None), (to.name, inner[str(path)]))
        self.done.append(Renamed(self.nodes[str(to.parent)], names))

    def fsync(self, handle: int) -> None:
        path = Path(f"/proc/self/fd/{handle}").readlink()
        node, content = self.nodes.get(str(path)), None if path.is_dir() else path.read_bytes()
        if node is None:
            return
        if content is not None:
            self.written[node] = content
        if self.deaf != ("folder" if content is None else "file"):
            self.done.append(Synced(node, content))

    def promise(self, *names: str) -> None:
        self.done.append(Promised(frozenset(names)))


_LISTENING: list[Recorder] = []


def _hook(event: str, given: tuple[Any, ...]) -> None:
    for one in _LISTENING:
        one.hear(event, given)


sys.addaudithook(_hook)  # there is no taking it back; it does nothing while nobody listens


def at(path: Any, handle: int = -1) -> Path:
    """Where an operation relative to an open folder takes place."""
    return (Path(f"/proc/self/fd/{handle}").readlink() if handle >= 0 else Path()) / os.fsdecode(path)


@dataclass
class Disk:
    """What the disk has for certain after the first operations, and what it may or may not have."""

    recorder: Recorder
    names: dict[int, dict[str, int]]
    pending: list[Renamed] = field(default_factory=list)
    contents: dict[int, bytes] = field(default_factory=dict)
    promised: frozenset[str] = frozenset()

    def after(self, one: Operation) -> None:
        if isinstance(one, Promised):
            self.promised = one.names
        elif isinstance(one, Renamed):
            self.pending.append(one)
        elif one.content is not None:
            self.contents[one.node] = one.content
        else:
            settled = [change for change in self.pending if change.folder == one.node]
            self.pending = [change for change in self.pending if change.folder != one.node]
            put(self.names, settled)

    def trees(self) -> Iterator[Tree]:
        """All that may be there when the power comes back."""
        for kept in itertools.product((False, True), repeat=len(self.pending)):
            names = {folder: dict(entries) for folder, entries in self.names.items()}
            put(names, [change for change, there in zip(self.pending, kept, strict=True) if there])
            files = dict(walk(self.recorder, names))
            unsure = [node for node in files.values() if node not in names and node not in self.contents]
            for choice in itertools.product(*(partial(self.recorder.written.get(node, b"")) for node in unsure)):
                contents = {**self.contents, **dict(zip(unsure, choice, strict=True))}
                yield frozenset((path, None if node in names else contents[node]) for path, node in files.items())


def put(names: dict[int, dict[str, int]], changes: list[Renamed]) -> None:
    for change in changes:
        for name, node in change.names:
            names[change.folder].pop(name, None)
            if node is not None:
                names[change.folder][name] = node


def walk(recorder: Recorder, names: dict[int, dict[str, int]]) -> Iterator[tuple[str, int]]:
    waiting = [("", recorder.nodes[str(recorder.root)])]
    while waiting:
        stem, folder = waiting.pop()
        for name, node in names[folder].items():
            yield stem + name, node
            if node in names:
                waiting.append((f"{stem}{name}/", node))


def partial(content: bytes) -> list[bytes]:
    """Un-synced content: nothing, the head of it, its length without its bytes, all of it."""
    return [b"", content[: len(content) // 2], bytes(len(content)), content]


def cuts(recorder: Recorder) -> Iterator[tuple[Tree, frozenset[str]]]:
    """Every state of the disk after a cut, with what was promised by then; each once."""
    disk = Disk(recorder, {node: dict(entries) for node, entries in recorder.base.items()})
    disk.contents = dict(recorder.contents)
    seen = set()
    for one in [Promised(frozenset({"b0-s00000010"})), *recorder.done]:
        disk.after(one)
        for tree in disk.trees():
            if (tree, disk.promised) not in seen:
                seen.add((tree, disk.promised))
                yield tree, disk.promised


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
    for tree, promised in cuts(recorder):
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
    _LISTENING.append(recorder)
    recorder.on = True
    try:
        act(recorder)
    finally:
        recorder.on = False
        _LISTENING.remove(recorder)
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
    before = "b0-s00000010"
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
        recorder.promise("b0-s00000010", write(folder, 20))

    _, wrong = faults(recorded(folder, monkeypatch, act, deaf), tmp_path / "cuts")
    assert any(words in one for one in wrong)
