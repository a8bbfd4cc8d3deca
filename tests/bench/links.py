"""How quickly a node is live, and live again: first and second visit, broken ways, and leaving with stuck connections.

    python -m tests.bench.links [--bar | --full]

Three nodes in network namespaces, each a real sshd with the carried agent. While a node is cut off, things happen on
it; afterwards every event must have come once and in order. Needs root. The peer in the same run is a bare paramiko
log-in with one command.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import paramiko

from agent import wire
from console import carry
from console.answers import Answers
from console.fleet import LinkView
from console.link import Inbox, Link
from console.ssh import Dialler
from console.stream import Stream
from console.target import Target
from tests.hosts.netns import Cable, bridge, run
from tests.hosts.sshd import ME, Sshd, running
from tests.hosts.stand_in import environ, login

COLD_S, WARM_OVER_BARE_S, RECOVERY_S, LEAVING_S = 5.0, 0.5, 10.0, 0.5
STUCK = 50
LEAVE = """
import sys, time
from pathlib import Path
from console.answers import Answers
from console.link import Link
from console import carry
from console.session import Session
from console.ssh import Dialler
from console.target import Target
def connect(name, inbox):
    target = Target(name, name, int(sys.argv[1]), "x", ssh_config=False)
    return Link(target, carry.bundle, inbox, Dialler(target, Answers(), Path("/nonexistent/x"))).start()
session = Session([f"127.0.1.{n}" for n in range(1, int(sys.argv[2]) + 1)], connect)
session.start()
print("up", flush=True)
sys.stdin.readline()
session.close()
"""


class Ear:
    """A link to one node and what it has told."""

    def __init__(self, target: Target, folder: Path, dial: Callable[[str], Stream] | None = None) -> None:
        self.inbox: Inbox = deque()
        self.views: list[LinkView] = []
        self.events: list[wire.Event] = []
        self.gaps = 0
        self.welcome = ""
        """Which machine it says it is"""
        answers = Answers()
        way = dial or Dialler(target, answers, folder / "accepted")
        self.link = Link(target, carry.bundle, self.inbox, way, answers=answers).start()

    @property
    def phase(self) -> str:
        while self.inbox:
            message = self.inbox.popleft()[1]
            if isinstance(message, LinkView):
                self.views.append(message)
            elif isinstance(message, wire.Event):
                self.events.append(message)
            elif isinstance(message, wire.Welcome):
                self.welcome = message.node
            elif isinstance(message, wire.Gap):
                self.gaps += 1
        return self.views[-1].phase if self.views else "connecting"

    def until(self, *phases: str, limit_s: float = 60.0) -> float:
        """Seconds until it is in one of these phases."""
        began = time.monotonic()
        while self.phase not in phases:
            if time.monotonic() - began > limit_s:
                raise SystemExit(f"{self.link.name} is not {phases} after {limit_s} s: {self.views[-3:]}")
            time.sleep(0.005)
        return time.monotonic() - began

    def settle(self, last_seq: int) -> bool:
        """All events up to that one have come, each once, in order."""
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and not (self.phase and self.events and self.events[-1].seq >= last_seq):
            time.sleep(0.02)
        seqs = [event.seq for event in self.events]
        return not self.gaps and seqs == list(range(seqs[0], seqs[-1] + 1)) and seqs[-1] >= last_seq


class Node:
    """One machine, a link to it through the network, and another on the spot by which things are made to happen."""

    def __init__(self, server: Sshd, cable: Cable, folder: Path) -> None:
        self.server, self.cable, self.folder = server, cable, folder
        self.ear = Ear(server.target(name=cable.space), folder)
        self.ear.until("live")
        env = environ(server.home, TUNEDECK_RUNTIME=str(server.folder / "runtime"))
        self.spot = Ear(server.target(name="spot"), folder, lambda line: login(line, env, self.shell()))
        self.spot.until("live")

    def happen(self, times: int = 3) -> int:
        """Make that many events; returns the last one's number."""
        for n in range(times):
            reply = self.spot.link.order(wire.Cordon(n % 2 == 0, "bench"), 20.0).result(30)
            if not reply.ok:
                raise SystemExit(f"{self.cable.space}: {reply.error}")
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and not (self.spot.phase and len(self.spot.events) >= times):
            time.sleep(0.02)
        time.sleep(1.1)
        return self.spot.events[-1].seq if self.spot.phase and self.spot.events else 0

    def shell(self) -> tuple[str, ...]:
        """A shell under that machine's host name."""
        assert self.server.process
        return ("nsenter", "--uts", "--target", str(self.server.process.pid), "/bin/sh")

    def daemons(self) -> list[int]:
        line = "enter.py\0serve"
        pids = []
        for pid in self.server.agents():
            try:
                if line.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    pids.append(pid)
            except OSError:
                continue
        return pids

    def close(self) -> None:
        self.ear.link.close()
        self.spot.link.close()


def bare(server: Sshd) -> float:
    """Seconds for a bare log-in and one command."""
    began = time.perf_counter()
    client = paramiko.SSHClient()
    client.load_host_keys(str(server.known_hosts))
    client.connect(server.address, server.port, ME, key_filename=str(server.client_key), allow_agent=False)
    client.exec_command("echo x")[1].read()
    took = time.perf_counter() - began
    client.close()
    return took


def visits(server: Sshd, folder: Path, repeats: int) -> tuple[float, float, float]:
    """Medians in seconds: bare log-in, first visit to a bare node, second visit to one whose agent is up."""
    bares: list[float] = []
    colds: list[float] = []
    warms: list[float] = []
    for _ in range(repeats):
        server.stop()
        shutil.rmtree(server.home / ".tunedeck", ignore_errors=True)
        server.start()
        bares.append(bare(server))
        for times in (colds, warms):
            ear = Ear(server.target(), folder)
            times.append(ear.until("live"))
            ear.link.close()
    return statistics.median(bares), statistics.median(colds), statistics.median(warms)


def leave() -> float:
    """Seconds from the wish to leave to the end of the process, with connections that nobody answers."""
    with socket.create_server(("", 0), backlog=STUCK * 2) as silent:
        argv = [sys.executable, "-c", LEAVE, str(silent.getsockname()[1]), str(STUCK)]
        child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert child.stdin and child.stdout
        child.stdout.readline()
        time.sleep(1.5)
        began = time.perf_counter()
        child.communicate(b"\n", timeout=60)
        return time.perf_counter() - began


def cut(node: Node, down_s: float) -> float:
    node.cable.up(False)
    node.ear.until("down")
    node.happen()
    time.sleep(down_s)
    node.cable.up(True)
    return node.ear.until("live")


def lossy(node: Node, _down_s: float) -> float:
    """A fifth of all packets lost in both directions, then a new call while it lasts."""
    node.cable.lose(0.2)
    for pid in node.server.sessions():
        kill(pid)
    node.ear.until("down", "connecting")
    time.sleep(5)
    node.cable.lose(0.0)
    return node.ear.until("live")


def gone_sshd(node: Node, down_s: float) -> float:
    sessions = node.server.sessions()
    assert node.server.process
    for pid in (node.server.process.pid, *sessions):
        kill(pid)
    node.server.process.wait()
    node.ear.until("down")
    time.sleep(down_s)
    node.server.start()
    return node.ear.until("live")


def full_disk(node: Node, down_s: float) -> float:
    """The agent cannot write, and the console has to come in anew meanwhile."""
    filler = node.server.home / "filler"
    with filler.open("wb") as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 65536)
    for pid in node.server.sessions():
        kill(pid)
    node.ear.until("down", "connecting")
    time.sleep(min(down_s, 5))
    filler.unlink()
    return node.ear.until("live")


def killed_agent(node: Node, _down_s: float) -> float:
    for pid in node.daemons():
        kill(pid)
    node.ear.until("down", "connecting")
    return node.ear.until("live")


def stopped_agent(node: Node, _down_s: float) -> float:
    """The agent hangs, then goes on."""
    pids = node.daemons()
    for pid in pids:
        kill(pid, signal.SIGSTOP)
    node.ear.until("stale", "down")
    node.ear.until("down")
    for pid in pids:
        kill(pid, signal.SIGCONT)
    return node.ear.until("live")


def kill(pid: int, what: signal.Signals = signal.SIGKILL) -> None:
    try:
        os.kill(pid, what)
    except ProcessLookupError:
        return


FAULTS: dict[str, tuple[int, Callable[[Node, float], float]]] = {
    "link down": (0, cut),
    "20 % loss": (1, lossy),
    "sshd killed": (2, gone_sshd),
    "agent killed": (0, killed_agent),
    "agent hangs": (0, stopped_agent),
    "disk full": (0, full_disk),
}
"""Which of the three nodes it happens to"""


def machine(folder: Path, cable: Cable) -> Sshd:
    """Each with a host name of its own, by which machines that share a home are told apart."""
    naming = ("unshare", "--uts", "sh", "-c", f'hostname {cable.space}; exec "$@"', "sh")
    return Sshd(folder / cable.space, cable.address, prefix=(*cable.prefix, *naming))


def faults(folder: Path, down_s: float) -> dict[str, tuple[float, bool]]:
    """For each fault: recovery in seconds, and whether every event came once and in order and nobody else noticed.

    The first node's disk is small; the other two share one home.
    """
    found: dict[str, tuple[float, bool]] = {}
    with ExitStack() as stack:
        cables = stack.enter_context(bridge(3))
        servers = [machine(folder, cable) for cable in cables]
        servers[2].home = servers[1].home
        run("mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(servers[0].home))
        stack.callback(run, "umount", "-l", str(servers[0].home))
        nodes = []
        for server, cable in zip(servers, cables, strict=True):
            stack.enter_context(running(server))
            nodes.append(Node(server, cable, folder / cable.space))
            stack.callback(nodes[-1].close)
        for name, (which, fault) in FAULTS.items():
            hit, others = nodes[which], [node for node in nodes if node is not nodes[which]]
            took = fault(hit, down_s)
            steady = all(node.ear.phase == "live" for node in others)
            hit.spot.until("live")
            whole = hit.ear.settle(hit.happen())
            found[name] = took, whole and steady
            words = ("whole" if whole else "MISSING OR DOUBLED", "live" if steady else "DISTURBED")
            print(f"{name:14} live again after {took:5.2f} s   events {words[0]}, others {words[1]}", flush=True)
        apart = {node.ear.welcome for node in nodes}
        if len(apart) != 3:
            raise SystemExit(f"two machines that share a home are taken for one: {apart}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bar", action="store_true", help="figures beside targets; exit 1 when one falls short")
    parser.add_argument("--full", action="store_true", help="more repeats, links down for ten minutes")
    args = parser.parse_args()
    with TemporaryDirectory() as folder:
        with running(Sshd(Path(folder) / "one")) as server:
            plain_s, cold_s, warm_s = visits(server, Path(folder), 9 if args.full else 3)
        print(f"bare log-in {plain_s:.2f} s; first visit {cold_s:.2f} s; second {warm_s:.2f} s", flush=True)
        leaving_s = leave()
        print(f"leaving with {STUCK} stuck connections: {leaving_s:.2f} s", flush=True)
        found = faults(Path(folder), 600.0 if args.full else 20.0)
    rows = [
        ("first visit", cold_s, COLD_S),
        ("second visit over bare", warm_s - plain_s, WARM_OVER_BARE_S),
        ("leaving", leaving_s, LEAVING_S),
        *((f"after {name}", took if whole else float("inf"), RECOVERY_S) for name, (took, whole) in found.items()),
    ]
    if not args.bar:
        return 0
    for name, value, target in rows:
        print(f"{name:24} {value:6.2f} s   target ≤ {target:.1f} s   {'met' if value <= target else 'FALLS SHORT'}")
    return 1 if any(value > target for _name, value, target in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
