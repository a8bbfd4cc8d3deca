"""What a node's figures were: fetched once from its history, and continued with what it tells from then on."""

from __future__ import annotations

import math
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from agent import wire
from console.fleet import Node
from console.screens.desk import Desk
from console.strings import _

WINDOWS_S = (3600.0, 6 * 3600.0, 86400.0, 14 * 86400.0)
POINTS = 120
"""Twice the cells of a small chart: braille has two dots in a cell"""
ASK_S = 30.0
STALE_S = 3.0
"""From here on the GPUs' figures are older than their seconds (agent.probe)."""
GPU_FIELDS = ("utilisation_percent", "memory_used_bytes")
HOST_FIELDS = ("cpu_percent", "ram_used_bytes")
PEAKS = ("memory_used_bytes", "ram_used_bytes")
Column = list[float]


def names(state: wire.NodeState) -> tuple[str, ...]:
    """The series that are shown of a node."""
    gpus = [f"{uuid}/{name}" for uuid, gpu in state.gpus.items() if not gpu.lost for name in GPU_FIELDS]
    return (*gpus, *(f"host/{name}" for name in HOST_FIELDS))


def figures(state: wire.NodeState) -> dict[str, float | None]:
    """Those series now; none of GPUs whose driver does not answer."""
    found: dict[str, float | None] = {f"host/{name}": getattr(state.host, name) for name in HOST_FIELDS}
    if (state.gpu_age_s or 0.0) < STALE_S:
        for uuid, gpu in state.gpus.items():
            found |= {f"{uuid}/{name}": getattr(gpu, name) for name in GPU_FIELDS}
    return found


@dataclass(slots=True)
class Past:
    window_s: float = WINDOWS_S[0]
    step_s: float = WINDOWS_S[0] / POINTS
    number: int | None = None
    """Of the newest point: its time in steps"""
    columns: dict[str, Column] = field(default_factory=dict)
    """POINTS values each, the newest last; nan: not known"""
    counts: dict[str, int] = field(default_factory=dict)
    """How many figures are in the newest point"""
    note: str = ""
    """Why the node keeps nothing at present"""
    trouble: str = ""
    """Why there is no history"""
    heard: bool = False
    future: Future[wire.Reply] | None = None
    welcome: wire.Welcome | None = None
    asked: tuple[object, ...] | None = None

    def turn(self, desk: Desk, node: Node, unix: float) -> None:
        """Take in the answer if it has come, and what the node tells now; ask anew after each connection.

        `unix` is the node's clock.
        """
        if self.future is not None and self.future.done():
            reply, self.future = self.future.result(), None
            self.take(reply)
        if not node.live(desk.clock()):
            return
        self.go_on(node.state, unix)
        series = names(node.state)
        reason = (self.window_s, series)
        if desk.session is not None and (reason != self.asked or node.welcome is not self.welcome):
            self.asked, self.welcome = reason, node.welcome
            body = wire.ReadHistory(self.window_s, series, POINTS)
            self.future = desk.session.ask(node.name, body, ASK_S)

    def wider(self) -> None:
        """The next window; what was fetched for the last one is dropped."""
        self.window_s = WINDOWS_S[(WINDOWS_S.index(self.window_s) + 1) % len(WINDOWS_S)]
        self.step_s, self.number, self.heard, self.future = self.window_s / POINTS, None, False, None
        self.columns, self.counts = {}, {}

    def go_on(self, state: wire.NodeState, unix: float) -> None:
        """Put the figures of now into the newest point, or begin one."""
        self.advance(int(unix // self.step_s))
        for name, value in figures(state).items():
            column = self.columns.setdefault(name, [math.nan] * POINTS)
            if value is None or not math.isfinite(value):
                continue
            before, count = column[-1], max(1, self.counts.get(name, 0))
            if math.isnan(before):
                column[-1], count = value, 0
            elif name.endswith(PEAKS):
                column[-1] = max(before, value)
            else:
                column[-1] = before + (value - before) / (count + 1)
            self.counts[name] = count + 1

    def advance(self, number: int) -> None:
        """Points up to that one; a clock that went back stays in the newest."""
        ahead = 0 if self.number is None else min(max(number - self.number, 0), POINTS)
        if self.number is None or ahead:
            self.number, self.counts = number, {}
        for column in self.columns.values():
            column[:] = [*column[ahead:], *[math.nan] * ahead]

    def take(self, reply: wire.Reply) -> None:
        if not reply.ok:
            self.trouble = reply.error
            return
        try:
            step, first = float(reply.result["step_s"]), float(reply.result["unix"])
            told = {str(name): [number(value) for value in column] for name, column in reply.result["series"].items()}
            self.note = str(reply.result.get("note") or "")
        except (KeyError, TypeError, ValueError, AttributeError):
            self.trouble = _("the node sent something that is no history")
            return
        if not (math.isfinite(step) and math.isfinite(first) and step >= 1):
            self.trouble = _("the node sent something that is no history")
            return
        self.heard, self.trouble = True, ""
        self.step_s, self.number, self.counts = step, None, {}
        longest = max(map(len, told.values()), default=1)
        self.columns = {name: ([math.nan] * POINTS + column)[-POINTS:] for name, column in told.items()}
        self.number = int(first // step) + longest - 1


def number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan
