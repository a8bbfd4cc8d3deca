"""What an agent costs: CPU and memory of daemon and probe at one tick a second, eight simulated GPUs, some consoles.

python tests/bench/agent.py [--consoles 1] [--seconds 30] [--bar]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent)]

from tests.fakes.node import Node, until, variables  # noqa: E402
from tests.fakes.nvml import Driver, card, simulation  # noqa: E402

CPU_BAR_PERCENT = 1.5
MEMORY_BAR_BYTES = 64 << 20
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def unique_bytes(pid: int) -> int:
    """USS: what would be free if this process ended."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Private_"))


def name(pid: int) -> str:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    return next((word for word in words if word in ("serve", "probe", "attach", "keep", "rank", "launch")), "?")


def measure(node: Node, seconds: float) -> dict[str, dict[str, float]]:
    watched = {pid: name(pid) for pid in node.processes()}
    before, began = {pid: cpu_s(pid) for pid in watched}, time.monotonic()
    time.sleep(seconds)
    span = time.monotonic() - began
    return {
        f"{what} {pid}": {
            "cpu_percent": round(100 * (cpu_s(pid) - before[pid]) / span, 2),
            "unique_mib": round(unique_bytes(pid) / 2**20, 1),
        }
        for pid, what in watched.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--consoles", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--runs", type=int, default=0, help="stand-in runs of two ranks, 50 steps a second each")
    parser.add_argument("--bar", action="store_true", help="fail above the bars")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        nvml = simulation(folder / "nvml", Driver(tuple(card(n, utilisation_percent=90) for n in range(8))))
        os.environ.update(nvml.environment | variables(folder))
        node = Node(folder)
        try:
            consoles = [node.console() for _ in range(options.consoles)]
            for _ in range(options.runs):
                node.start("obedient")
            for console in consoles:
                until(lambda console=console: len(console.tree.get("gpus", {})) == 8)  # type: ignore[misc]
            found = measure(node, options.seconds)
        finally:
            node.close()
    print(json.dumps(found, indent=1))
    agent = [figures for who, figures in found.items() if who.startswith(("serve", "probe"))]
    cpu, memory = sum(one["cpu_percent"] for one in agent), sum(one["unique_mib"] for one in agent)
    print(f"agent: {cpu:.2f} % of one core (bar {CPU_BAR_PERCENT}), {memory:.1f} MiB (bar {MEMORY_BAR_BYTES >> 20})")
    return int(options.bar and (cpu > CPU_BAR_PERCENT or memory * 2**20 > MEMORY_BAR_BYTES))


if __name__ == "__main__":
    sys.exit(main())
