"""A machine of its own as far as sshd and agent can see: network, host name and mounts. Needs root.

Its namespaces live as long as one process that does nothing, so they outlast its sshd and go with the test.
"""

from __future__ import annotations

import subprocess
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from agent import wire
from agent.events import read
from console import carry
from console.link import Link
from tests.hosts.netns import Cable
from tests.hosts.sshd import Sshd, running
from tests.hosts.stand_in import environ, login


class Machine:
    def __init__(self, name: str, holder: int, server: Sshd, extra: Mapping[str, str]) -> None:
        self.name, self.server = name, server
        self._holder = holder
        self._names = Path(f"/proc/{holder}/ns/uts").readlink()
        env = environ(server.home, TUNEDECK_RUNTIME=str(server.folder / "runtime"), **extra)
        shell = (*server.prefix, "/bin/sh")
        self.spot = Link(server.target(name=name), carry.bundle, deque(maxlen=1), lambda line: login(line, env, shell))
        """A console on the spot, whatever becomes of the way there"""

    def inside(self, path: Path) -> Path:
        """As this machine sees it"""
        return Path(f"/proc/{self._holder}/root{path}")

    def journal(self) -> list[wire.Event]:
        """What has happened there, by its own books."""
        files = list(self.inside(self.server.home).glob(f".tunedeck/nodes/*+{self.name}/events.jsonl"))
        lines = files[0].read_bytes().splitlines()[1:] if files else []
        return [event for line in lines if (event := read(line)) is not None]

    def processes(self, word: str) -> set[int]:
        """Of this machine alone, with this word in their command line."""
        found = set()
        for entry in Path("/proc").iterdir():
            try:
                if (
                    entry.name.isdecimal()
                    and (entry / "ns/uts").readlink() == self._names
                    and word.encode() in (entry / "cmdline").read_bytes().split(b"\0")
                ):
                    found.add(int(entry.name))
            except OSError:
                continue
        return found


@contextmanager
def machine(
    folder: Path,
    name: str,
    cable: Cable | None = None,
    mounts: tuple[str, ...] = (),
    options: tuple[str, ...] = (),
    extra: Mapping[str, str] | None = None,
    home: Path | None = None,
    address: str = "",
) -> Iterator[Machine]:
    """`mounts`: shell commands run in its mount namespace before sshd. `extra`: further variables of a login."""
    script = " && ".join([f"hostname {name}", *mounts, "echo up", "exec cat"])
    (folder / name / "home").mkdir(parents=True)  # something may be mounted there
    argv = [*(cable.prefix if cable else ()), "unshare", "--uts", "--mount", "sh", "-c", script]
    with ExitStack() as stack:
        holder = stack.enter_context(subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        stack.callback(holder.kill)
        assert holder.stdout and holder.stdout.readline() == b"up\n"
        prefix = ("nsenter", "--target", str(holder.pid), "--net", "--uts", "--mount")
        where = address or (cable.address if cable else "127.0.0.1")
        server = Sshd(folder / name, where, options, extra, prefix)
        server.home = home or server.home
        stack.enter_context(running(server))
        made = Machine(name, holder.pid, server, extra or {})
        stack.callback(made.spot.close)
        yield made
