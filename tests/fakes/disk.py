"""A disk that loses power: what was done to it, and all it may hold afterwards.

The operations of real code are recorded as the process makes them. A cut after each of them is then played through with
every choice of what the disk had not yet got: names made, moved and removed in a folder that was not synced since, and
the content of files not yet synced. That is the weakest a file system may do by POSIX.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
    """From here on these survive a cut."""

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


LISTENING: list[Recorder] = []


def _hook(event: str, given: tuple[Any, ...]) -> None:
    for one in LISTENING:
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


def cuts(recorder: Recorder, promised: frozenset[str]) -> Iterator[tuple[Tree, frozenset[str]]]:
    """Every state of the disk after a cut, with what was promised by then, `promised` from the first; each once."""
    disk = Disk(recorder, {node: dict(entries) for node, entries in recorder.base.items()})
    disk.contents = dict(recorder.contents)
    seen = set()
    for one in [Promised(promised), *recorder.done]:
        disk.after(one)
        for tree in disk.trees():
            if (tree, disk.promised) not in seen:
                seen.add((tree, disk.promised))
                yield tree, disk.promised
