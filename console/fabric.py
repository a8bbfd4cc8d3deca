"""What was measured of nodes and pairs before: today against this machine's own past, kept on the console's side."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent import wire
from jobs import durable
from jobs.fabric.collectives import ALL_REDUCE, Row
from jobs.fabric.evidence import MAD_TO_SIGMA
from jobs.fabric.expected import GOOD, Expected, Grade, grade, inside_node, judged, table

KEPT = 50
ENOUGH = 3
"""Measurements before there is a past to compare with."""
SIGMAS = 3.0
LEAST_SIGMA = 0.01


@dataclass(frozen=True, slots=True)
class Past:
    """Today as a percentage of the median before. `grade` is good while it is within what is usual there."""

    grade: str
    percent: float
    times: int
    since_unix: float


@dataclass(slots=True)
class Baselines:
    """Figures by what was measured: a node or pair, how, with how many ranks and bytes. The newest last."""

    path: Path
    figures: dict[str, list[list[float]]] = field(default_factory=dict)

    @classmethod
    def read(cls, state_dir: Path) -> Baselines:
        """A file that cannot be read remembers nothing."""
        path = state_dir / "fabric.json"
        try:
            raw: dict[str, Any] = durable.read_json(path) or {}
            return cls(path, {str(k): [[float(at), float(v)] for at, v in known] for k, known in raw.items()})
        except (OSError, ValueError, TypeError):
            return cls(path)

    def compare(self, key: str, value: float) -> Past | None:
        """None while too little is known, and where what is known is nothing."""
        known = self.figures.get(key, [])
        middle = statistics.median(v for _at, v in known) if len(known) >= ENOUGH else 0.0
        if middle <= 0:
            return None
        deviation = statistics.median(abs(v - middle) for _at, v in known) / middle
        usual = value >= middle * (1 - SIGMAS * max(MAD_TO_SIGMA * deviation, LEAST_SIGMA))
        percent = 100 * value / middle
        return Past(GOOD if usual else grade(percent), percent, len(known), known[0][0])

    def add(self, key: str, value: float, unix_s: float | None = None) -> None:
        at = time.time() if unix_s is None else unix_s
        self.figures[key] = [*self.figures.get(key, []), [at, value]][-KEPT:]

    def save(self) -> None:
        """Raises OSError."""
        self.path.parent.mkdir(mode=durable.FOLDER_MODE, parents=True, exist_ok=True)
        durable.write_json(self.path, dict(self.figures))


def node_key(node: str, backend: str, row: Row) -> str:
    return f"{node}|{backend}|{row.ranks}|{row.collective}|{row.size_bytes}"


def pair_key(a: str, b: str, rail: str, transport: str) -> str:
    first, second = sorted((a, b))
    return f"{first}|{second}|{rail}|{transport}"


def deciding(rows: list[Row], collective: str) -> Row | None:
    """The row that stands for a collective: the best of those large enough to show bandwidth, else the largest."""
    found = [row for row in rows if row.collective == collective]
    large = [row for row in found if row.size_bytes >= table()["judge_from_bytes"]]
    if large:
        return max(large, key=lambda row: row.busbw_gb_s)
    return max(found, key=lambda row: row.size_bytes, default=None)


def expected(state: wire.NodeState, ranks: int) -> Expected | None:
    """What the links of this node's GPUs should give in an all-reduce. None where nothing is known of them."""
    real = [gpu for gpu in state.gpus.values() if not gpu.simulated and not gpu.lost]
    if not real or len({gpu.name for gpu in real}) > 1:
        return None
    first = real[0]
    counts = [gpu.nvlinks for gpu in real]
    links = None if None in counts else min(n for n in counts if n is not None)
    generation, width = first.pcie_gen_max, first.pcie_width_max
    return inside_node(first.name, ranks, links, (generation, width) if generation and width else None)


def against_links(rows: list[Row], state: wire.NodeState) -> Grade | None:
    """The node's all-reduce against its links. None for one rank, small sizes only, or links that are not known."""
    row = deciding(rows, ALL_REDUCE)
    if row is None or row.ranks < 2 or row.size_bytes < table()["judge_from_bytes"]:
        return None
    wanted = expected(state, row.ranks)
    return None if wanted is None else judged(row.busbw_gb_s, wanted)


def against_past(rows: list[Row], node: str, backend: str, before: Baselines) -> dict[str, Past]:
    """By collective: today against what this node gave before; today's is remembered in `before`, not yet saved."""
    found = {}
    for collective in dict.fromkeys(row.collective for row in rows):
        row = deciding(rows, collective)
        if row is None or row.wrong:  # wrong values are no measurement
            continue
        key = node_key(node, backend, row)
        past = before.compare(key, row.busbw_gb_s)
        if past is not None:
            found[collective] = past
        before.add(key, row.busbw_gb_s)
    return found
