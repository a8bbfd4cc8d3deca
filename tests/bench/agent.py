"""What an agent costs beside its peers: CPU and memory at one tick a second, eight simulated GPUs, in one run.

    python -m tests.bench.agent [--consoles 1] [--seconds 30] [--peers BIN] [--bar]

Ours: daemon and probe with a console attached that takes every level. Theirs: nvitop and gpustat at their one second,
each in a terminal of 160 x 50, from the folder BIN (beside this Python unless given). All see the same simulated NVML,
which takes no time to answer: what is compared is the programs.
"""

from __future__ import annotations

import argparse
import os
import pty
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.fakes.node import Node, until, variables
from tests.fakes.nvml import Driver, card, simulation

CPU_SHARE, MEMORY_SHARE = 1 / 4, 1.2
"""Of nvitop's"""
PEERS = {"nvitop": ("-m", "full", "--interval", "1"), "gpustat": ("-i", "1", "-a")}
SETTLE_S = 3.0
TICKS = os.sysconf("SC_CLK_TCK")
TERMINAL = {"TERM": "xterm-256color", "COLUMNS": "160", "LINES": "50"}


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


@contextmanager
def peer(command: list[str]) -> Iterator[int]:
    """The program in a terminal of its own whose picture nobody looks at, but which is read."""
    lead, follow = pty.openpty()
    os.environ.update(TERMINAL)
    subprocess.run(["stty", "rows", "50", "cols", "160"], stdin=follow, check=True)
    child = subprocess.Popen(command, stdin=follow, stdout=follow, stderr=follow, start_new_session=True)
    os.close(follow)

    def drain() -> None:
        with suppress(OSError):  # EIO: the program has gone
            while os.read(lead, 1 << 16):
                pass

    reader = threading.Thread(target=drain, daemon=True)
    reader.start()
    try:
        yield child.pid
        if child.poll() is not None:
            raise SystemExit(f"{command[0]} ended by itself with {child.returncode}: nothing was measured")
    finally:
        child.kill()
        child.wait()
        reader.join(5)
        os.close(lead)


def figures(watched: dict[str, list[int]], seconds: float) -> dict[str, tuple[float, float]]:
    """By name: per cent of one core, and MiB of its own."""
    before, began = {pid: cpu_s(pid) for pids in watched.values() for pid in pids}, time.monotonic()
    time.sleep(seconds)
    span = time.monotonic() - began
    return {
        who: (
            100 * sum(cpu_s(pid) - before[pid] for pid in pids) / span,
            sum(unique_bytes(pid) for pid in pids) / 2**20,
        )
        for who, pids in watched.items()
    }


def compare(node: Node, peers: dict[str, list[str]], seconds: float) -> dict[str, tuple[float, float]]:
    """All at the same time, so that whatever else the machine does falls on each."""
    watched = {"tunedeck": [pid for pid in node.processes() if name(pid) in ("serve", "probe")]}
    if not peers:
        return figures(watched, seconds)
    who, command = next(iter(peers.items()))
    with peer(command) as pid:
        rest = {one: peers[one] for one in peers if one != who}
        if rest:
            with peer(next(iter(rest.values()))) as other:
                time.sleep(SETTLE_S)
                return figures(watched | {who: [pid], next(iter(rest)): [other]}, seconds)
        time.sleep(SETTLE_S)
        return figures(watched | {who: [pid]}, seconds)


def found_peers(folder: str | None) -> dict[str, list[str]]:
    place = folder or str(Path(sys.executable).parent)
    paths = {who: shutil.which(who, path=place) for who in PEERS}
    return {who: [path, *PEERS[who]] for who, path in paths.items() if path}


def table(found: dict[str, tuple[float, float]]) -> bool:
    """Prints it; whether both bars are met."""
    for who, (cpu, memory) in found.items():
        print(f"{who:<9} {cpu:6.2f} % of a core  {memory:6.1f} MiB of its own")
    if "nvitop" not in found:
        print("no nvitop: no ratio. `pip install nvitop gpustat` into an environment, and --peers its bin folder.")
        return False
    (cpu, memory), (their_cpu, their_memory) = found["tunedeck"], found["nvitop"]
    met = (cpu <= CPU_SHARE * their_cpu, memory <= MEMORY_SHARE * their_memory)
    print(f"CPU {cpu / their_cpu:.2f} of nvitop's (bar {CPU_SHARE}): {'met' if met[0] else 'MISSED'}")
    print(f"memory {memory / their_memory:.2f} of nvitop's (bar {MEMORY_SHARE}): {'met' if met[1] else 'MISSED'}")
    return all(met)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--consoles", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--runs", type=int, default=0, help="stand-in runs of two ranks, 50 steps a second each")
    parser.add_argument("--peers", help="folder with nvitop and gpustat")
    parser.add_argument("--bar", action="store_true", help="exit 1 when a bar is missed")
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
            found = compare(node, found_peers(options.peers), options.seconds)
        finally:
            node.close()
    return int(not table(found) and options.bar)


if __name__ == "__main__":
    sys.exit(main())
