"""What alert rules look at: the subjects of a node and their figures, those in its records and those derived from them.

None means not measured; a rule on it neither fires nor clears.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from agent import ram
from agent.trend import Forecast, Trend
from agent.wire import Disk, Gpu, Host, NodeState, RunState

GPU_FRESH_S = 15.0
"""Older figures are no measurement; that they are old has a rule of its own."""
SLOWS_DOWN_C = 90.0
"""Where a card does not tell its slowdown threshold: data-centre cards have 85 to 95 °C."""
LOSSES = 20
"""As the job's own `on_spike` counts: against the median of the last 20 steps."""
WORKING_PERCENT = 5.0
LOADED_PERCENT = 50.0
"""From here on a card has its PCIe link at full speed."""
TRAINING = ("training",)
XIDS = ("xid", "xids", "xids_hardware")


@dataclass(frozen=True, slots=True)
class Subject:
    kind: str
    key: str
    """UUID, run id, mount; empty for the machine itself"""
    record: Any
    names: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    """Live runs that it concerns"""


@dataclass(slots=True)
class Losses:
    """The losses of one run's present branch; a step counts once."""

    at: tuple[int, int | None] = (0, None)
    kept: deque[float] = field(default_factory=lambda: deque(maxlen=LOSSES))
    spike: float | None = None

    def add(self, run: RunState) -> None:
        if (run.branch, run.step) == self.at or run.loss is None:
            return
        if run.branch != self.at[0]:
            self.kept.clear()
        self.at, self.spike = (run.branch, run.step), None
        if math.isfinite(run.loss):
            if len(self.kept) == LOSSES:
                self.spike = round(run.loss / max(median(self.kept), 1e-9), 2)
            self.kept.append(run.loss)


def ram_left(host: Host, cgroups: Path = Path("/sys/fs/cgroup")) -> float | None:
    """Per cent, of the machine's memory or of this container's limit, whichever is nearer its end."""
    total, used = host.ram_total_bytes, host.ram_used_bytes
    found = [100 * (total - used) / total] if total and used is not None else []
    for folder, names in ((cgroups, ram.UNIFIED), (cgroups / "memory", ram.LEGACY)):
        left = ram.left(folder, *names)
        if left is None or not total:
            continue
        limit = int((folder / names[0]).read_text())
        if 0 < limit <= total:
            found.append(100 * left / limit)
    return min(found, default=None)


def nvlinks_up(gpu: Gpu) -> int | None:
    return None if gpu.nvlinks is None or gpu.nvlinks_down is None else gpu.nvlinks - gpu.nvlinks_down


def pcie_share(gpu: Gpu) -> float | None:
    """Of the bandwidth that card and slot can do; None at rest. A generation doubles the rate of a lane (PCI-SIG)."""
    now, most = (gpu.pcie_gen, gpu.pcie_width), (gpu.pcie_gen_max, gpu.pcie_width_max)
    if None in now or None in most or (gpu.utilisation_percent or 0.0) < LOADED_PERCENT:
        return None
    lanes = (gpu.pcie_width or 0) / (gpu.pcie_width_max or 1)
    return round(100 * lanes * 2.0 ** ((gpu.pcie_gen or 0) - (gpu.pcie_gen_max or 0)), 1)


class Measures:
    """Fed with each tick's state; remembers only what trends need. `room`: bytes the host has left."""

    def __init__(self) -> None:
        self.trends: dict[tuple[str, str, int], Trend] = {}
        self.most_nvlinks: dict[str, int] = {}
        self.losses: dict[str, Losses] = {}
        self.state = NodeState()
        self.at_s = 0.0
        self.ram_percent: float | None = None
        self.seen: dict[str, int | None] = {}
        self.forecasts: dict[tuple[str, str], Forecast] = {}

    def take(self, state: NodeState, at_s: float) -> None:
        """`at_s`: monotonic seconds."""
        self.state, self.at_s, self.ram_percent = state, at_s, ram_left(state.host)
        live = {name: run for name, run in state.runs.items() if run.phase in TRAINING}
        self.trends = {k: v for k, v in self.trends.items() if k[0] == "gpu" or k[1] in live}
        self.losses = {name: self.losses.get(name, Losses()) for name in live}
        self.forecasts = {}
        for name, run in live.items():
            self.losses[name].add(run)
            if run.step is not None and self.seen.get(name) != run.step:
                self.watch_run(name, run)
        self.seen = {name: run.step for name, run in live.items()}
        for uuid, gpu in state.gpus.items():
            self.watch_gpu(uuid, gpu)
            self.most_nvlinks[uuid] = max(self.most_nvlinks.get(uuid, 0), nvlinks_up(gpu) or 0)

    def watch_run(self, name: str, run: RunState) -> None:
        """Ranks on the host share its memory, so their sum counts; on GPUs each has its own."""
        peaks = run.memory_bytes if run.gpu_uuids else (sum(run.memory_bytes),) if run.memory_bytes else ()
        for rank, value in enumerate(peaks):
            self.trends.setdefault(("run", name, rank), Trend()).add(self.at_s, float(value))

    def watch_gpu(self, uuid: str, gpu: Gpu) -> None:
        """Only while it works: a model that is being loaded grows as steadily as any leak."""
        busy = gpu.utilisation_percent is None or gpu.utilisation_percent >= WORKING_PERCENT
        if gpu.memory_used_bytes is not None and busy and self.fresh:
            self.trends.setdefault(("gpu", uuid, 0), Trend()).add(self.at_s, float(gpu.memory_used_bytes))

    @property
    def fresh(self) -> bool:
        return self.state.gpu_age_s is not None and self.state.gpu_age_s < GPU_FRESH_S

    def subjects(self) -> Iterator[Subject]:
        state = self.state
        live = {name: run for name, run in state.runs.items() if run.phase != "ended"}
        everyone = tuple(live)
        host = state.host.hostname
        yield Subject("node", "", state, (host,))
        yield Subject("host", "", state.host, (host,), everyone)
        for disk in state.host.disks:
            yield Subject("disk", disk.mount, disk, (disk.mount,), everyone)
        for uuid, gpu in state.gpus.items():
            on = tuple(name for name, run in live.items() if uuid in run.gpu_uuids)
            yield Subject("gpu", uuid, gpu, (uuid, str(gpu.index), gpu.name), on)
        for name, run in live.items():
            yield Subject("run", name, run, (name, run.name), (name,))
        for key, port in state.ports.items():
            yield Subject("port", key, port, (key,), everyone)

    def value(self, subject: Subject, name: str) -> Any:
        """A number, words, or None for what is not measured."""
        record = subject.record
        if isinstance(record, Gpu):
            return self.gpu(record, name, subject.runs)
        if isinstance(record, RunState):
            return self.run(record, name)
        if isinstance(record, Host) and name == "ram_available_percent":
            return self.ram_percent
        if isinstance(record, Disk) and name == "free_percent":
            return 100 * record.free_bytes / record.total_bytes if record.total_bytes else None
        return getattr(record, name, None)

    def gpu(self, gpu: Gpu, name: str, runs: tuple[str, ...]) -> Any:
        if name == "lost":
            return 1 if gpu.lost else 0
        if name in XIDS:  # the kernel tells them of cards that answer nobody any more
            return getattr(gpu, name)
        if gpu.lost or not self.fresh:
            return None
        if name == "memory_used_percent":
            free, total = gpu.memory_free_bytes, gpu.memory_total_bytes
            return None if free is None or not total else 100 * (total - free) / total
        if name == "temperature_margin_c":
            slows = gpu.temperature_slowdown_c or SLOWS_DOWN_C
            return None if gpu.temperature_c is None else slows - gpu.temperature_c
        if name == "utilisation_in_run_percent":
            return gpu.utilisation_percent if any(self.state.runs[r].phase in TRAINING for r in runs) else None
        if name == "utilisation_unused_percent":
            return gpu.utilisation_percent if not runs and not gpu.processes else None
        if name == "nvlinks_lost":
            return self.nvlinks_lost(gpu)
        if name == "pcie_share_percent":
            return pcie_share(gpu)
        if name == "oom_in_s":
            return self.gpu_oom(gpu, runs)
        return getattr(gpu, name, None)

    def nvlinks_lost(self, gpu: Gpu) -> int | None:
        """Links may be down by design (no bridge, no switch): judged by its like on this node, and by its own past."""
        up = nvlinks_up(gpu)
        like = [nvlinks_up(other) or 0 for other in self.state.gpus.values() if other.name == gpu.name]
        return None if up is None else max(self.most_nvlinks.get(gpu.uuid, 0), *like) - up

    def gpu_oom(self, gpu: Gpu, runs: tuple[str, ...]) -> float | None:
        """Of a card whose runs tell their own memory nothing: theirs is the better forecast."""
        trend = self.trends.get(("gpu", gpu.uuid, 0))
        if trend is None or not gpu.memory_total_bytes or any(self.state.runs[r].memory_bytes for r in runs):
            return None
        return self.kept(
            ("gpu", gpu.uuid), trend.forecast(float(gpu.memory_total_bytes - (gpu.memory_reserved_bytes or 0)))
        )

    def run(self, run: RunState, name: str) -> Any:
        losses = self.losses.get(run.run)
        if name == "loss_bad":
            return None if run.loss is None or losses is None else 0 if math.isfinite(run.loss) else 1
        if name == "loss_spike":
            return losses.spike if losses is not None else None
        if name == "oom_in_s":
            return self.run_oom(run)
        return getattr(run, name, None)

    def run_oom(self, run: RunState) -> float | None:
        """Of the rank that comes first. A rank's limit is what it has now and what its card, or the host, has left."""
        found: list[Forecast] = []
        for (kind, name, rank), trend in self.trends.items():
            if (kind, name) == ("run", run.run):
                left = self.left_for(run, rank)
                said = trend.forecast(trend.windows[0].top + left) if left is not None else None
                found += [said] if said is not None else []
        return self.kept(("run", run.run), min(found, key=lambda one: one.seconds, default=None))

    def left_for(self, run: RunState, rank: int) -> int | None:
        if not run.gpu_uuids:
            return ram.available_bytes()
        gpu = self.state.gpus.get(run.gpu_uuids[rank]) if rank < len(run.gpu_uuids) else None
        return gpu.memory_free_bytes if gpu is not None else None

    def kept(self, who: tuple[str, str], found: Forecast | None) -> float | None:
        if found is not None:
            self.forecasts[who] = found
        growing = any(
            window.number is not None and len(window.closed) > 0
            for (kind, key, _rank), trend in self.trends.items()
            if (kind, key) == who
            for window in trend.windows
        )
        return found.seconds if found is not None else math.inf if growing else None
