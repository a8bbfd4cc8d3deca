"""What checks look at: one node at one moment. Files are read below `root`, so a copied tree can be checked too."""

from __future__ import annotations

import fcntl
import os
import re
import socket
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent.node_state import Gpu, Host
from jobs.identity import ProcessIdentity

SIOCGIFADDR = 0x8915
"""netdevice(7): an interface's first IPv4 address"""


CAGE = re.compile(r"docker|containerd|kubepods|libpod|lxc|slurm")
"""In the names of cgroups that may hide devices"""


@dataclass(frozen=True, slots=True)
class Rank:
    """A recorded process of a run that has ended."""

    run: str
    identity: ProcessIdentity


@dataclass(frozen=True, slots=True)
class Scene:
    folder: Path
    """The node's state folder: where the disk is measured and cards are remembered"""
    host: Host = field(default_factory=Host)
    gpus: Mapping[str, Gpu] = field(default_factory=dict)
    gpu_age_s: float | None = None
    gpu_note: str = ""
    live_runs: tuple[str, ...] = ()
    ended_ranks: Callable[[], Iterable[Rank]] = tuple
    """Reads the disk, like all below that is called: only within the deadline of a check"""
    heard_unix: float = 0.0
    """This node's clock when the order came"""
    console_unix: float | None = None
    """The console's clock when it gave the order"""
    python: str = ""
    """The interpreter whose torch is compared with the driver"""
    asked: frozenset[str] = frozenset()
    """Families that were asked for by name"""
    quick: bool = True
    root: Path = Path("/")
    addresses: Callable[[], Mapping[str, str]] = field(default_factory=lambda: addresses)
    """First IPv4 address by interface"""
    resolve: Callable[[str], tuple[str, ...]] = field(default_factory=lambda: resolved)
    variables: Mapping[str, str] = field(default_factory=lambda: os.environ)
    """Runs inherit them"""

    @property
    def cards(self) -> list[Gpu]:
        """Those that answer, by index."""
        return [gpu for gpu in self.all_cards if not gpu.lost]

    @property
    def all_cards(self) -> list[Gpu]:
        return sorted(self.gpus.values(), key=lambda gpu: gpu.index)

    def path(self, name: str) -> Path:
        return self.root / name

    def text(self, name: str) -> str | None:
        """A file's text without the blanks around it; None where it is not there or not to be read."""
        try:
            return self.path(name).read_text(errors="replace").strip()
        except OSError:
            return None

    def names(self, folder: str) -> list[str]:
        """What a folder holds, in order; nothing where there is none."""
        try:
            return sorted(entry.name for entry in self.path(folder).iterdir())
        except OSError:
            return []

    @property
    def contained(self) -> bool:
        """In a container or a batch job, where /sys shows the devices of others too."""
        marks = (".dockerenv", "run/.containerenv")
        return any(self.path(one).exists() for one in marks) or bool(CAGE.search(self.text("proc/self/cgroup") or ""))


def addresses() -> dict[str, str]:
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _index, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(asking, SIOCGIFADDR, request)
            except OSError:  # it has none
                continue
            found[name] = socket.inet_ntoa(answer[20:24])
    return found


def resolved(name: str) -> tuple[str, ...]:
    """The addresses of a host name, as programs on this node are told them; none when it has none."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return ()
    return tuple(dict.fromkeys(str(one[4][0]) for one in found))
