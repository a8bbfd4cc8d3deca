"""Every message between agent and console, on one page. Neither side sends anything else.

    console → agent     Hello, Ack, Order(any of Body)
    agent   → console   Welcome, Level, Event, Gap, Reply

A conversation: the console says Hello; the agent answers Welcome, replays the events after the one the console knew,
and sends a keyframe. From then on levels flow as differences against what this connection was sent, at most
`UNACKED_LEVELS` ahead of the console's Ack, which is also its heartbeat. Events are numbered, were on the node's disk
before they were sent, and are replayed after a reconnect; a hole in the numbers is announced as a Gap. An Order carries
an id made by the console; the node journals it: the same id sent again returns the first Reply and does nothing twice.
`None` means not available, never zero. Units stand in the field names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from agent.codec import Malformed, clean, convert, encode, pack, parse, unpack
from agent.deflated import Deflater, Inflater
from agent.difference import amend, apply_difference, difference, renewed
from agent.node_state import (
    Alert,
    Check,
    Disk,
    Gpu,
    GpuProcess,
    Host,
    Interface,
    MigInstance,
    NodeState,
    Port,
    RunState,
    SnapshotState,
)
from jobs import VERSION

PROTOCOL = 1
UNACKED_LEVELS = 2
KEYFRAME_EVERY_S = 60.0
NEWEST = "newest"
"""In place of a snapshot's name: the newest that verifies on the way the run has come."""
HEARTBEAT_S = 2.0
"""A level goes out at least this often even when nothing changed, so silence means trouble."""


# Agent → console


@dataclass(frozen=True, slots=True)
class Welcome:
    protocol: int
    version: str
    node: str
    """machine-id+hostname: what the state folder on the node is called"""
    boot_id: str
    stream: str
    """Names the numbering of events; a new one starts from 1 again."""
    last_seq: int
    read_only: bool = False
    interval_s: float = 1.0
    home: str = ""
    python: str = ""


@dataclass(frozen=True, slots=True)
class Level:
    """The state of the node: whole (keyframe) or what changed since level `n - 1` of this connection."""

    n: int
    keyframe: bool
    monotonic_s: float
    unix_s: float
    changed: dict[str, Any]
    gone: list[list[str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Event:
    stream: str
    seq: int
    unix_s: float
    kind: str
    """run.started | run.ended | run.warning | run.error | run.order | agent.started | gpu.lost | …"""
    text: str
    severity: str = "info"
    """info | warn | critical"""
    run: str | None = None
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gap:
    """Events `first`..`last` of the stream are not on the node any more."""

    stream: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Reply:
    order: str
    ok: bool
    result: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    hint: str = ""


# Console → agent


@dataclass(frozen=True, slots=True)
class Hello:
    protocol: int
    version: str
    operator: str
    """who@where, for the node's audit trail"""
    stream: str = ""
    after_seq: int = 0
    read_only: bool = False
    pace_s: float = 0.0
    """Levels are wanted no closer together than this: a console of a thousand nodes draws no faster"""
    deflate: bool = False
    """What comes after the Welcome may be deflated (agent/deflated.py)"""


@dataclass(frozen=True, slots=True)
class Ack:
    n: int


@dataclass(frozen=True, slots=True)
class Launch:
    """Start a run from a spec. Result: {"run": id, "forecast": words}. Checked wholly before anything starts.

    A refusal that `force` overrides has the result {"kind": "does-not-fit" | "busy-gpus" | "stale-gpus" | "full-disk"}.
    """

    spec_text: str
    spec_name: str = "spec.yaml"
    force: bool = False
    """Start although GPUs are busy or the plan says it does not fit."""


@dataclass(frozen=True, slots=True)
class Kill:
    """Stop a run: soft first, hard after `grace_s`. Result: {"reason", "gone": [pids], "alive": [pids], "seconds"}."""

    run: str
    grace_s: float = 20.0
    hard: bool = False


@dataclass(frozen=True, slots=True)
class Steer:
    """Hand an order to the running job and wait for its answer. Result: the job's answer."""

    run: str
    verb: str
    """stop | pause | snapshot | rollback"""
    args: dict[str, Any] = field(default_factory=dict)
    """rollback: step, lr, skip_data; snapshot: pin"""


@dataclass(frozen=True, slots=True)
class Logs:
    """A piece of a log. Result: {"text", "offset", "next", "size", "ranks": [with logs]}; offsets are bytes.

    Asked by `line`, the result has "line" too: the number of its first line, or None where the log is shorter.
    """

    run: str
    rank: int | None = 0
    """None: the launcher's own output"""
    offset: int = -16384
    """Negative: that many bytes before the end"""
    limit_bytes: int = 262144
    line: int | None = None
    """In place of `offset`: from the beginning of this line on, the first being 1"""


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress records from a byte offset. Result: {"records": [...], "next": offset, "size": bytes}."""

    run: str
    offset: int = 0
    limit_bytes: int = 262144


@dataclass(frozen=True, slots=True)
class ReadSpec:
    """The spec a run was started from, byte for byte. Result: {"spec_text"}."""

    run: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """What this node knows about one run, for triage: only what matters, secrets redacted. Stalled ranks are asked.

    Result: {"archive": base64 of a .tar.gz of one folder, "files": how many, "left_out": [in words]}.
    """

    run: str
    limit_bytes: int = 2097152
    """Of the archive, before base64"""
    alias: str = ""
    """What the console calls this node: a verdict names it so"""


@dataclass(frozen=True, slots=True)
class ListRuns:
    """All runs the node has on disk. Result: {"runs": [RunState...]}, newest first."""

    limit: int = 200


@dataclass(frozen=True, slots=True)
class ListSnapshots:
    """A run's snapshots, newest first. Result: {"snapshots": [SnapshotState], "refused": [{"name", "reason"}]}."""

    run: str
    verify: bool = False
    """Hash every byte now, instead of trusting the manifest alone; takes as long as reading does."""


@dataclass(frozen=True, slots=True)
class Pin:
    """Keep a snapshot until it is unpinned. Result: {}."""

    run: str
    snapshot: str
    pinned: bool = True


@dataclass(frozen=True, slots=True)
class Resume:
    """Continue an ended run in its own folder, from a snapshot. Checked wholly before anything starts.

    Result: {"run", "snapshot", "step", "label": exact | inexact | weights-only, "differences": [in words],
    "forecast_s": time to read its bytes or None, "memory": what it will need, in words}. With `check` nothing starts.
    A changed spec is refused unless `fork`, which makes a new run from the snapshot. What `force` overrides is refused
    as by Launch.
    """

    run: str
    snapshot: str = NEWEST
    check: bool = False
    fork: bool = False
    spec_text: str | None = None
    """A changed spec, for a fork"""
    force: bool = False
    """Start although GPUs are busy, the disk is nearly full or the plan says it does not fit."""
    without_gpus: tuple[str, ...] = ()
    """UUIDs of cards that must not be chosen, not even by force"""


@dataclass(frozen=True, slots=True)
class Export:
    """Make an adapter folder that was loaded again in a fresh process and compared. May take a minute.

    Result: {"folder": name under exports/, "source", "bytes", "difference": largest of the logits,
    "files": [{"path", "bytes", "sha256"}]}; fetch them with ReadExport.
    """

    run: str
    snapshot: str | None = None
    """None: the final result"""


@dataclass(frozen=True, slots=True)
class ReadExport:
    """A piece of an exported file. Result: {"base64", "next", "size"}; `path` is one that Export listed."""

    run: str
    folder: str
    path: str
    offset: int = 0
    limit_bytes: int = 1048576


@dataclass(frozen=True, slots=True)
class Cordon:
    """Take no new runs, or take them again; runs that are live go on. Result: {"cordon": as Host.cordon}."""

    cordoned: bool = True
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ReadAudit:
    """The newest orders that changed something, newest first.

    Result: {"entries": [{"unix", "operator", "verb", "run", "step", "outcome", "order"}]}
    """

    limit: int = 200


@dataclass(frozen=True, slots=True)
class ReadHistory:
    """Figures over time up to now, no more points than asked for.

    Result: {"step_s": seconds between points, "unix": time of the first, "series": {"subject/field": [value or None]},
    "note": why none are kept at present, or empty}. Subjects are a GPU's UUID or "host"; fields are those of Gpu and
    Host. A point is the mean over its step, of memory and temperature the largest. What the node never had is left out.
    """

    since_s: float = 3600.0
    """How far back; 14 days are kept"""
    series: tuple[str, ...] = ()
    """Empty: all"""
    points: int = 300


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Somebody looks after it: it goes on firing, but calls nobody any more. Result: {}."""

    alert: str


@dataclass(frozen=True, slots=True)
class Mute:
    """Keep quiet about it for so long, also when it clears and fires again; 0 ends that. Result: {"until_unix"}."""

    alert: str
    seconds: float = 3600.0


@dataclass(frozen=True, slots=True)
class SetRules:
    """Replace the node's own alert rules (alerts.yaml); empty text: only the shipped ones. Checked wholly before.

    Result: {"rules": how many are in force}.
    """

    text: str


@dataclass(frozen=True, slots=True)
class ListAlerts:
    """What fired, newest first. Result: {"history": [events], "not_measured": [rule names], "muted": {alert: unix}}."""

    limit: int = 200


@dataclass(frozen=True, slots=True)
class RunChecks:
    """Look whether the node is sound; takes as long as its slowest check, half a minute at the most.

    Result: {"checks": [Check], "seconds"}. Writes at most 256 MB to the disk and takes them away again.
    """

    families: tuple[str, ...] = ()
    """Empty: all of them. A family that is named is measured even while a run is live."""
    quick: bool = True
    """False: also look for the Python that would train, which takes longer"""
    python: str = ""
    """The interpreter whose torch is compared with the driver"""
    console_unix: float | None = None
    """The console's clock when it asks"""


Body = (
    RunChecks
    | Cordon
    | Acknowledge
    | Mute
    | SetRules
    | ListAlerts
    | ReadAudit
    | ReadHistory
    | Launch
    | Kill
    | Steer
    | Resume
    | Pin
    | Export
    | Evidence
    | Logs
    | Progress
    | ListRuns
    | ListSnapshots
    | ReadExport
    | ReadSpec
)
DESTRUCTIVE = (Launch, Kill, Steer, Resume, Pin, Export, Cordon, Acknowledge, Mute, SetRules)
"""Refused by the agent itself on a read-only connection."""


@dataclass(frozen=True, slots=True)
class Order:
    id: str
    deadline_s: float
    body: Body


FromConsole = Hello | Ack | Order
FromAgent = Welcome | Level | Event | Gap | Reply


def read_from_console(line: bytes) -> FromConsole:
    """One line as a message. Raises Malformed."""
    message: FromConsole = convert(FromConsole, parse(line), "message")
    return message


def read_from_agent(line: bytes) -> FromAgent:
    """One line as a message. Raises Malformed."""
    message: FromAgent = convert(FromAgent, parse(line), "message")
    return message


def to_tree(state: NodeState) -> dict[str, Any]:
    """The state as nested dicts keyed by name, UUID and run id: what Level differences are made of."""
    tree: dict[str, Any] = pack(state, tagged=False)
    return tree


def from_tree(tree: dict[str, Any]) -> NodeState:
    """Raises Malformed."""
    return unpack(NodeState, tree)


__all__ = [
    "DESTRUCTIVE",
    "HEARTBEAT_S",
    "KEYFRAME_EVERY_S",
    "NEWEST",
    "PROTOCOL",
    "UNACKED_LEVELS",
    "VERSION",
    "Ack",
    "Acknowledge",
    "Alert",
    "Body",
    "Check",
    "Cordon",
    "Deflater",
    "Disk",
    "Event",
    "Evidence",
    "Export",
    "FromAgent",
    "FromConsole",
    "Gap",
    "Gpu",
    "GpuProcess",
    "Hello",
    "Host",
    "Inflater",
    "Interface",
    "Kill",
    "Launch",
    "Level",
    "ListAlerts",
    "ListRuns",
    "ListSnapshots",
    "Logs",
    "Malformed",
    "MigInstance",
    "Mute",
    "NodeState",
    "Order",
    "Pin",
    "Port",
    "Progress",
    "ReadAudit",
    "ReadExport",
    "ReadHistory",
    "ReadSpec",
    "Reply",
    "Resume",
    "RunChecks",
    "RunState",
    "SetRules",
    "SnapshotState",
    "Steer",
    "Welcome",
    "amend",
    "apply_difference",
    "clean",
    "difference",
    "encode",
    "from_tree",
    "pack",
    "read_from_agent",
    "read_from_console",
    "renewed",
    "to_tree",
]
