"""What the console knows: the fleet, its nodes and their runs. Plain state: no screen, no I/O, no thread.

One loop (`Session.pump`) is the sole writer; screens and commands only read.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from agent import wire
from console.refusal import Question

EVENTS_KEPT = 500
LOG_LINES_KEPT = 5000
SILENT_AFTER_S = 2 * wire.HEARTBEAT_S + 1.0
"""Two missed heartbeats: from here on figures are called stale."""


@dataclass(frozen=True, slots=True)
class LinkView:
    """How the conversation with a node stands."""

    phase: str
    """connecting | carrying | live | stale | down"""
    since_monotonic: float
    why: str = ""
    hint: str = ""
    kind: str = ""
    """The refusal's kind when down: unreachable, auth, host-key-unknown…"""
    rtt_s: float | None = None
    jitter_s: float | None = None
    via: str = ""
    """How it goes to the node: "ssh", "system ssh (why)"; empty: not known yet"""
    question: Question | None = None
    """What it waits for the user to answer"""


@dataclass(slots=True)
class History:
    """A run's progress as read so far: what the charts show. Grows by `add`, in the order of the file."""

    offset: int = 0
    complete: bool = False
    """Everything the node has was read."""
    steps: list[dict[str, Any]] = field(default_factory=list)
    marks: list[dict[str, Any]] = field(default_factory=list)
    """All records that are not steps: phases, start, snapshots, rollbacks, orders, errors, end."""

    def add(self, records: list[dict[str, Any]]) -> None:
        for record in records:
            (self.steps if record.get("kind") == "step" else self.marks).append(record)

    @property
    def branch(self) -> int:
        return int(self.steps[-1].get("branch") or 0) if self.steps else 0

    def series(self, name: str, branch: int | None = None) -> tuple[list[int], list[float]]:
        """Steps and finite values of one figure; of one branch, or of all in file order."""
        points = [
            (int(s["step"]), float(value))
            for s in self.steps
            if (branch is None or s.get("branch", 0) == branch)
            and isinstance(s.get("step"), int)
            and isinstance(value := s.get(name), (int, float))
        ]
        return [step for step, _ in points], [value for _, value in points]

    def mark(self, kind: str) -> dict[str, Any] | None:
        """The newest record of a kind."""
        return next((m for m in reversed(self.marks) if m.get("kind") == kind), None)


@dataclass(slots=True)
class LogTail:
    """The last lines of one log, followed by byte offset so that nothing is missed or doubled across reconnects."""

    rank: int | None
    offset: int | None = None
    size: int = 0
    complete: bool = False
    ranks: tuple[int, ...] = ()
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=LOG_LINES_KEPT))
    rest: str = ""
    """The unfinished last line."""

    def add(self, text: str) -> None:
        *lines, self.rest = (self.rest + text).split("\n")
        self.lines.extend(lines)


@dataclass(slots=True)
class Node:
    name: str
    link: LinkView
    state: wire.NodeState = field(default_factory=wire.NodeState)
    """As last heard; see `level_age_s` before believing it."""
    tree: dict[str, Any] = field(default_factory=dict)
    level: int = 0
    level_at: float | None = None
    """Console-monotonic time of the last level."""
    clock_offset_s: float | None = None
    """Node's clock minus ours, when last heard."""
    welcome: wire.Welcome | None = None
    events: deque[wire.Event] = field(default_factory=lambda: deque(maxlen=EVENTS_KEPT))
    last_seq: int = 0
    broken: bool = False
    """A difference could not be applied; waiting for the next keyframe."""

    def level_age_s(self, now: float) -> float | None:
        return None if self.level_at is None else max(0.0, now - self.level_at)

    def live(self, now: float) -> bool:
        age = self.level_age_s(now)
        return self.link.phase == "live" and age is not None and age < SILENT_AFTER_S

    @property
    def read_only(self) -> bool:
        return self.welcome is not None and self.welcome.read_only

    def runs(self) -> list[wire.RunState]:
        """Newest first."""
        return sorted(self.state.runs.values(), key=lambda r: r.started_unix or 0.0, reverse=True)

    def hear(self, level: wire.Level, now: float, unix: float) -> None:
        """Take in a level. A difference against something we do not have waits for the next keyframe."""
        if not level.keyframe and (self.broken or level.n != self.level + 1):
            self.broken = True
            return
        if level.keyframe:
            self.tree = level.changed
            self.state = wire.from_tree(self.tree)
        else:
            wire.amend(self.tree, level.changed, level.gone)
            self.state = wire.renewed(self.state, self.tree, level.changed, level.gone)
        self.level, self.level_at, self.broken = level.n, now, False
        self.clock_offset_s = level.unix_s - unix

    def note(self, event: wire.Event) -> None:
        """Take in an event once; replayed ones that are already here are dropped."""
        known = self.events[-1].stream == event.stream if self.events else False
        if known and event.seq <= self.last_seq:
            return
        self.events.append(event)
        self.last_seq = event.seq


@dataclass(frozen=True, slots=True)
class Run:
    """A run together with where it is."""

    node: str
    state: wire.RunState

    @property
    def live(self) -> bool:
        return self.state.phase not in ("ended", "unknown")

    @property
    def eta_s(self) -> float | None:
        """Remaining steps at the present pace; None when either is unknown or it is over."""
        s = self.state
        if not self.live or s.step is None or not s.total_steps or not s.step_time_s:
            return None
        return max(0, s.total_steps - s.step) * s.step_time_s


@dataclass(slots=True)
class Fleet:
    nodes: dict[str, Node] = field(default_factory=dict)
    histories: dict[tuple[str, str], History] = field(default_factory=dict)
    """By (node, run) while somebody follows it."""
    tails: dict[tuple[str, str, int | None], LogTail] = field(default_factory=dict)
    """By (node, run, rank) while somebody reads it."""

    def apply(self, name: str, message: wire.FromAgent, now: float, unix: float) -> None:
        """Take in a message of a node. Raises wire.Malformed when its content is not what it claims to be."""
        node = self.nodes[name]
        if isinstance(message, wire.Level):
            node.hear(message, now, unix)
        elif isinstance(message, wire.Welcome):
            node.welcome, node.level, node.broken = message, 0, False
        elif isinstance(message, wire.Event):
            node.note(message)
        elif isinstance(message, wire.Gap):
            lost = f"{message.last - message.first + 1} events are no longer on the node"
            node.note(wire.Event(message.stream, message.last, unix, "gap", lost, "warn"))

    def runs(self) -> list[Run]:
        """All runs of all nodes: live ones first, then newest first."""
        found = [Run(node.name, state) for node in self.nodes.values() for state in node.state.runs.values()]
        return sorted(found, key=lambda r: (not r.live, -(r.state.started_unix or 0.0), r.state.run))

    def find(self, run: str) -> list[Run]:
        """Runs whose id or name is `run`, or whose id begins with it; an exact id wins alone."""
        exact = [r for r in self.runs() if r.state.run == run]
        return exact or [r for r in self.runs() if r.state.name == run or r.state.run.startswith(run)]

    @property
    def simulated(self) -> bool:
        return any(gpu.simulated for node in self.nodes.values() for gpu in node.state.gpus.values())
