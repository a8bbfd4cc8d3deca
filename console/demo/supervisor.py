"""The demo's machines: `python -m console.demo.supervisor FOLDER` serves its nodes until it is told to stop.

It is a process of its own, so a console that is killed takes neither nodes nor runs with it, and the next
`tunedeck demo` finds them again. Without any run or visitor for half an hour it ends by itself.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from console.demo.gpus import SimulatedGpus
from console.demo.place import NODES, Place, live_ranks, unfinished
from console.demo.server import DemoServer
from jobs.durable import write_json
from jobs.identity import ProcessIdentity

TICK_S = 1.0
IDLE_END_S = 1800.0
STOP_S = 15.0


def main(argv: list[str]) -> int:
    place = Place(Path(argv[0]))
    with held(place.lock) as first:
        if first:
            serve(place)
    return 0


@contextmanager
def held(lock: Path) -> Iterator[bool]:
    """The lock for as long as the block runs; False when another supervisor holds it."""
    with lock.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def serve(place: Place) -> None:
    stop = threading.Event()

    def asked(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, asked)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    simulation = SimulatedGpus(place)
    server = DemoServer(place.server, {node: environment(place, node, simulation) for node in NODES})
    server.start()
    try:
        announce(place, server)
        watch(place, server, simulation, stop)
    finally:
        place.targets.unlink(missing_ok=True)
        for node in NODES:
            stop_agent(place, node, server.environment(node))
        server.stop()


def environment(place: Place, node: str, simulation: SimulatedGpus) -> dict[str, str]:
    """What a login on that node finds: its own home, and this environment's Python first on PATH."""
    home = place.home(node)
    for folder in (home, place.runtime(node)):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return {
        "HOME": str(home),
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "TUNEDECK_RUNTIME": str(place.runtime(node)),
        **simulation.environment(node),
    }


def announce(place: Place, server: DemoServer) -> None:
    """Tell consoles where the nodes are. The file exists only while they can be reached."""
    me = ProcessIdentity.of(os.getpid())
    targets = [
        {
            "name": target.name,
            "host": target.address,
            "port": target.port,
            "user": target.user,
            "identity_files": [str(path) for path in target.identity_files],
            "known_hosts": [str(path) for path in target.known_hosts],
        }
        for target in server.targets()
    ]
    write_json(place.targets, {"supervisor": me.to_json() if me else None, "targets": targets})


def watch(place: Place, server: DemoServer, simulation: SimulatedGpus, stop: threading.Event) -> None:
    """Let the simulated GPUs move until told to stop, or until nobody has needed the demo for long."""
    needed = time.monotonic()
    while not stop.wait(TICK_S):
        simulation.tick(live_ranks(place))
        if unfinished(place) or server.visitors():
            needed = time.monotonic()
        if time.monotonic() - needed > IDLE_END_S:
            return


def stop_agent(place: Place, node: str, environ: dict[str, str]) -> None:
    """End the node's daemon through its own command; it has no other owner."""
    for enter in place.home(node).glob(".tunedeck/bundles/*/enter.py"):
        subprocess.run([sys.executable, str(enter), "stop"], env=environ, timeout=STOP_S, check=False)
        return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
