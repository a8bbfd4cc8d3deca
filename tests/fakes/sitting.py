"""A session over nodes that exist only as messages: the real Session and Fleet, links that answer from memory."""

from __future__ import annotations

import base64
import hashlib
import math
import time
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from agent import wire
from console.fleet import LinkView
from console.refusal import Question
from console.session import Conversation, DemoOffer, Inbox, Session

GIB = 1024**3
SPEC = """\
name: faults-lora
model: ~/models/smollm2-135m
data: {path: example:faults}
method: lora
train:
  steps: 300
"""


def gpu(index: int, used: float, busy: float, **changes: Any) -> wire.Gpu:
    card = wire.Gpu(
        uuid=f"GPU-{index:04d}",
        index=index,
        name="SIMULATED H100 80GB",
        memory_total_bytes=80 * GIB,
        memory_used_bytes=int(used * 80 * GIB),
        utilisation_percent=busy,
        temperature_c=40 + busy / 2,
        power_w=100 + busy * 5,
        power_limit_w=700.0,
    )
    return replace(card, **changes)


def run_state(run: str, phase: str = "training", step: int | None = 120, **changes: Any) -> wire.RunState:
    state = wire.RunState(
        run=run,
        name="faults-lora",
        phase=phase,
        step=step,
        total_steps=300,
        loss=1.8342,
        learning_rate=1.2e-4,
        tokens_per_s=1834.0,
        step_time_s=0.84,
        memory_bytes=(int(1.9 * GIB), int(1.8 * GIB)),
        world_size=2,
        model="~/models/smollm2-135m",
        method="lora",
        started_unix=time.time() - 400,
        last_progress_unix=time.time() - 1,
    )
    return replace(state, **changes)


def node_state(name: str, gpus: int = 4, runs: tuple[wire.RunState, ...] = ()) -> wire.NodeState:
    host = wire.Host(
        hostname=f"{name}.example",
        cpu_percent=37.0,
        cpu_count=16,
        load_1=5.31,
        ram_total_bytes=128 * GIB,
        ram_used_bytes=41 * GIB,
        net_rx_bytes_s=1.2e6,
        net_tx_bytes_s=3.4e5,
        uptime_s=864000.0,
        disks=(wire.Disk("/", 500 * GIB, 120 * GIB), wire.Disk("/data", 4000 * GIB, 90 * GIB)),
    )
    cards = [gpu(i, min(0.2 + 0.25 * i, 1.0), 20.0 * i % 100) for i in range(gpus)]
    return wire.NodeState(host, {card.uuid: card for card in cards}, {run.run: run for run in runs}, 0.4)


def progress(steps: int) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = [{"kind": "start", "world_size": 2, "branch": 0}]
    for step in range(1, steps + 1):
        loss = 3 * math.exp(-step / 90) + 0.6 + 0.25 * math.sin(step * 7.3)
        records.append(
            {
                "kind": "step",
                "branch": 0,
                "step": step,
                "total_steps": 300,
                "epoch": step / 150,
                "loss": "nan" if step == 77 else loss,
                "learning_rate": 2e-4 * (1 - step / 300),
                "grad_norm": 1 + math.cos(step / 5) / 2,
                "tokens_per_s": 1800 + 60 * math.sin(step / 3),
                "step_time_s": 0.84,
                "memory_bytes": [2 * GIB, 2 * GIB],
                "memory_kind": "rss",
            }
        )
    return records


def back_and_on(back_to: int, at: int, now: int, branch: int = 1) -> list[dict[str, Any]]:
    """A run that went back from step `at` and has come to `now` again."""
    records = progress(at)
    lineage = [[0, back_to], [branch, -1]]
    records.append(
        {"kind": "rollback", "branch": branch, "from_step": at, "to_step": back_to, "lineage": lineage},
    )
    again = [{**one, "branch": branch, "loss": 0.5} for one in progress(now)[back_to + 1 :]]
    return records + again


def snapshot(step: int, branch: int = 0, **changes: Any) -> dict[str, Any]:
    """An entry of the list of snapshots, as a node sends it."""
    return {
        "name": f"b{branch}-s{step:08d}",
        "branch": branch,
        "step": step,
        "created_unix": time.time() - 600 + step,
        "size_bytes": 29 * 1024**2,
        "loss": 1.9,
        "pinned": False,
        "verified": None,
        "badge": "exact",
        "why": "",
        **changes,
    }


SNAPSHOTS = [
    snapshot(100),
    snapshot(75, badge="inexact", why="torch 2.12.0 → 2.13.0"),
    snapshot(50, pinned=True),
    snapshot(25, loss="nan"),
]
EXPORTED = {"adapter_config.json": b"{}", "adapter_model.safetensors": b"weights" * 300_000}
PLAN = {
    "run": "qwen-dora-20261129-1",
    "snapshot": "b0-s00000100",
    "step": 100,
    "from_step": 120,
    "label": "inexact",
    "differences": ["torch 2.12.0 → 2.13.0"],
    "open": ["cuda"],
    "refused": ["snapshot b0-s00000110 has a damaged manifest"],
    "bytes": 29 * 1024**2,
    "forecast_s": 0.4,
}

LOG = "loading ~/models/smollm2-135m\nWarning: no GPU seen, training on the CPU\n" + "".join(
    f"step {n}/300 loss {3 - n / 100:.3f}\n" for n in range(1, 121)
)


@dataclass
class MemoryLink:
    """The conversation with one node, answered at once and in order."""

    name: str
    inbox: Inbox
    state: wire.NodeState
    answers: dict[type[Any], wire.Reply] = field(default_factory=dict)
    """Fixed replies by kind of order"""
    silent: bool = False
    """Orders are never answered"""
    level: int = 0
    asked: list[wire.Body] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=lambda: progress(120))
    snapshots: list[dict[str, Any]] = field(default_factory=lambda: [dict(one) for one in SNAPSHOTS])
    refused: list[dict[str, str]] = field(default_factory=list)
    exported: dict[str, bytes] = field(default_factory=lambda: dict(EXPORTED))
    closed: bool = False
    said: list[tuple[Question, str]] = field(default_factory=list)

    def live(self, phase: str = "live", **view: Any) -> None:
        self.inbox.append((self.name, LinkView(phase, time.monotonic(), rtt_s=0.0123, jitter_s=0.0011, **view)))

    def welcome(self, read_only: bool = False) -> None:
        self.inbox.append(
            (self.name, wire.Welcome(wire.PROTOCOL, "0", f"id+{self.name}", "boot", "s1", 0, read_only=read_only))
        )

    def tell(self, state: wire.NodeState | None = None) -> None:
        """A keyframe."""
        self.state = state or self.state
        self.level += 1
        tree = wire.to_tree(self.state)
        self.inbox.append((self.name, wire.Level(self.level, True, time.monotonic(), time.time(), tree)))

    def event(self, seq: int, kind: str, text: str, severity: str = "info", run: str | None = None) -> None:
        self.inbox.append((self.name, wire.Event("s1", seq, time.time() - 60 + seq, kind, text, severity, run)))

    def order(self, body: wire.Body, deadline_s: float, order_id: str | None = None) -> Future[wire.Reply]:  # noqa: ARG002
        self.asked.append(body)
        future: Future[wire.Reply] = Future()
        if not self.silent:
            future.set_result(self.answers.get(type(body)) or self.reply(body))
        return future

    def reply(self, body: wire.Body) -> wire.Reply:
        if isinstance(body, wire.Progress):
            size = len(self.records)
            return wire.Reply("o", True, {"records": self.records[body.offset :], "next": size, "size": size})
        if isinstance(body, wire.Logs):
            text = LOG if body.offset < 0 else ""
            return wire.Reply("o", True, {"text": text, "next": len(LOG), "size": len(LOG), "ranks": [0, 1]})
        if isinstance(body, wire.Launch):
            run = run_state("faults-lora-new", "starting", None, loss=None)
            self.tell(replace(self.state, runs={**self.state.runs, run.run: run}))
            return wire.Reply("o", True, {"run": run.run})
        if isinstance(body, wire.Kill):
            done = replace(self.state.runs[body.run], phase="ended", reason="killed", ended_unix=time.time())
            self.tell(replace(self.state, runs={**self.state.runs, body.run: done}))
            return wire.Reply("o", True, {"reason": "killed", "gone": [10, 11, 12], "alive": [], "seconds": 2.1})
        return self.reply_of_job(body)

    def reply_of_job(self, body: wire.Body) -> wire.Reply:
        if isinstance(body, wire.ListSnapshots):
            listed = [{**one, "verified": True} for one in self.snapshots] if body.verify else self.snapshots
            return wire.Reply("o", True, {"snapshots": listed, "refused": self.refused})
        if isinstance(body, wire.Pin):
            for one in self.snapshots:
                one["pinned"] = body.pinned if one["name"] == body.snapshot else one["pinned"]
            return wire.Reply("o", True)
        if isinstance(body, wire.Steer):
            return wire.Reply("o", True, {"outcome": "done", "message": f"{body.verb} is done", "step": 120})
        if isinstance(body, wire.Resume):
            return wire.Reply("o", True, dict(PLAN))
        if isinstance(body, wire.Export):
            files = [
                {"path": path, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
                for path, content in self.exported.items()
            ]
            made = {"folder": "e1", "source": "output", "bytes": 1, "difference": 0.0, "files": files}
            return wire.Reply("o", True, made)
        if isinstance(body, wire.ReadExport):
            content = self.exported[body.path]
            block = content[body.offset : body.offset + body.limit_bytes]
            answer = {"base64": base64.b64encode(block).decode(), "next": body.offset + len(block)}
            return wire.Reply("o", True, {**answer, "size": len(content)})
        return wire.Reply("o", False, error="not here", hint="ask another way")

    def answer(self, question: Question, text: str) -> None:
        self.said.append((question, text))

    def close(self) -> None:
        self.closed = True


@dataclass
class Sitting:
    session: Session
    links: dict[str, MemoryLink] = field(default_factory=dict)


def sitting(*names: str, runs: bool = True, demo: bool = False, gpus: int = 4) -> Sitting:
    """Nodes of these names, live and told of; the first has a live and an ended run."""
    links: dict[str, MemoryLink] = {}

    def connect(name: str, inbox: Inbox) -> Conversation:
        first = name == names[0]
        ended = run_state(
            "qwen-dora-20261129-1", "ended", 300, name="千问-微调", reason="failed", detail="CUDA out of memory"
        )
        state = node_state(name, gpus, (run_state("faults-lora-20261130-1"), ended) if runs and first else ())
        link = links[name] = MemoryLink(name, inbox, state)
        link.live()
        link.welcome()
        link.tell()
        link.event(1, "agent.started", "agent started")
        if runs and first:
            link.event(2, "run.started", "faults-lora started", run="faults-lora-20261130-1")
            link.event(3, "run.warning", "step time doubled at step 88", "warn", run="faults-lora-20261130-1")
            link.event(4, "run.error", "CUDA out of memory on rank 1", "critical", run="qwen-dora-20261129-1")
        return link

    offer = DemoOffer(names[0], SPEC, "LoRA fine-tune of smollm2-135m (pretrained)") if demo else None
    session = Session(names, connect, offer)
    return Sitting(session, links)
