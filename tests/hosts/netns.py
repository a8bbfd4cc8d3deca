"""Machines in network namespaces behind one bridge: their cables can be pulled. Needs root."""

from __future__ import annotations

import fcntl
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BRIDGE, NET = "tdbr0", "10.77.31"


def run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


class Cable:
    """The one link of a machine. `n` counts from 1."""

    def __init__(self, n: int) -> None:
        self.space, self.plug, self.address = f"tdns{n}", f"tdv{n}", f"{NET}.{10 + n}"
        self.prefix = ("ip", "netns", "exec", self.space)

    def lay(self) -> None:
        run("ip", "netns", "add", self.space)
        run("ip", "link", "add", self.plug, "type", "veth", "peer", "name", "eth0", "netns", self.space)
        run("ip", "link", "set", self.plug, "master", BRIDGE, "up")
        run("ip", "-n", self.space, "addr", "add", f"{self.address}/24", "dev", "eth0")
        run("ip", "-n", self.space, "link", "set", "eth0", "up")
        run("ip", "-n", self.space, "link", "set", "lo", "up")

    def up(self, plugged: bool) -> None:
        run("ip", "link", "set", self.plug, "up" if plugged else "down")

    def lose(self, share: float) -> None:
        """Of what comes in and of what goes out."""
        run(*self.prefix, "iptables", "-F")
        if share:
            odds = ("-m", "statistic", "--mode", "random", "--probability", str(share))
            for chain in ("INPUT", "OUTPUT"):
                run(*self.prefix, "iptables", "-A", chain, *odds, "-j", "DROP")


@contextmanager
def bridge(count: int) -> Iterator[list[Cable]]:
    """Cables laid to `count` machines; all is taken away at the end, also what an earlier one has left.

    There is one such network on a machine: whoever comes second waits.
    """
    cables = [Cable(n + 1) for n in range(count)]
    with (Path(tempfile.gettempdir()) / "tunedeck-netns.lock").open("w") as mine:
        fcntl.flock(mine, fcntl.LOCK_EX)
        clear(cables)
        try:
            run("ip", "link", "add", BRIDGE, "type", "bridge")
            run("ip", "addr", "add", f"{NET}.1/24", "dev", BRIDGE)
            run("ip", "link", "set", BRIDGE, "up")
            for cable in cables:
                cable.lay()
            yield cables
        finally:
            clear(cables)


def clear(cables: list[Cable]) -> None:
    for cable in cables:
        subprocess.run(["ip", "netns", "del", cable.space], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", cable.plug], check=False, capture_output=True)
    subprocess.run(["ip", "link", "del", BRIDGE], check=False, capture_output=True)
