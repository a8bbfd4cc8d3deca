"""The demo's simulated GPUs: their figures follow what the node's ranks really use, and their name says SIMULATED."""

from __future__ import annotations

from collections.abc import Sequence

import psutil

from console.demo import nvml
from console.demo.place import NODES, Place

PER_NODE = 2
NAME = "SIMULATED H100 80GB"
IDLE_C, IDLE_W, BUSY_C, BUSY_W = 34.0, 70.0, 38.0, 520.0
"""At rest, and what a full load adds; chosen to look like a card, not measured on one. So are the rest."""
IDLE_MHZ, BUSY_MHZ = 345, 1980
RESERVED_BYTES = 600 << 20


class SimulatedGpus:
    """One NVML library for all nodes, one state file each. Without a C compiler there are none; nodes say so."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.built = nvml.build(place.path / "nvml")
        self.processes: dict[int, psutil.Process] = {}
        self.tick({})

    def environment(self, node: str) -> dict[str, str]:
        if self.built.folder is None:
            return {}
        return nvml.Simulation.at(self.built.folder, self.place.gpus(node)).environment

    def tick(self, ranks: dict[str, list[int]]) -> None:
        """Write the state of every node's cards; `ranks` are the live pids by node, one card each."""
        if self.built.folder is None:
            return
        for number, node in enumerate(NODES):
            cards = [self.card(number, slot, ranks.get(node, [])[slot : slot + 1]) for slot in range(PER_NODE)]
            nvml.Driver(tuple(cards)).write(self.place.gpus(node))

    def card(self, node: int, slot: int, pids: Sequence[int]) -> nvml.Card:
        usage = {pid: self.usage(pid) for pid in pids}
        busy = min(1.0, sum(share for _size, share in usage.values()))
        return nvml.Card(
            uuid=f"GPU-5151a7ed-0000-4000-8000-{node:04d}{slot:08d}",
            name=NAME,
            pci_bus_id=f"00000000:{0x17 + 16 * slot:02X}:00.0",
            memory_used_bytes=sum(size for size, _share in usage.values()),
            utilisation_percent=round(100 * busy),
            temperature_c=round(IDLE_C + BUSY_C * busy),
            power_mw=round(1000 * (IDLE_W + BUSY_W * busy)),
            sm_clock_mhz=BUSY_MHZ if busy > 0.05 else IDLE_MHZ,
            reserved_bytes=RESERVED_BYTES,
            sm_active_percent=round(80 * busy),
            slowdown_c=89,
            memory_c=round(IDLE_C + BUSY_C * busy) + 6,
            rows=(0, 0, 0, 0),
            pcie=(5, 5, 16, 16, 0),
            nvlink=(18, 0, 0),
            persistence=1,
            processes=tuple((pid, size) for pid, (size, _share) in usage.items()),
        )

    def usage(self, pid: int) -> tuple[int, float]:
        """Resident bytes, and the share of one core used since the last look, at most 1."""
        try:
            process = self.processes.setdefault(pid, psutil.Process(pid))
            with process.oneshot():
                return process.memory_info().rss, min(1.0, process.cpu_percent(None) / 100)
        except psutil.NoSuchProcess:
            self.processes.pop(pid, None)
            return 0, 0.0
