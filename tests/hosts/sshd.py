"""A real sshd on the loopback, run by whoever runs the tests, with a home of its own for those who log in."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from console.target import Target

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin") or "/usr/sbin/sshd"
ME = pwd.getpwuid(os.getuid()).pw_name


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def keygen(file: Path, kind: str = "ed25519", passphrase: str = "") -> Path:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", file.name, "-f", str(file)],
        check=True,
        stdin=subprocess.DEVNULL,
    )
    return file


class Sshd:
    """`options`: further lines of sshd_config. `environ`: what a login finds beside HOME and PATH."""

    def __init__(
        self,
        folder: Path,
        address: str = "127.0.0.1",
        options: tuple[str, ...] = (),
        environ: Mapping[str, str] | None = None,
        prefix: tuple[str, ...] = (),
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.address, self.port, self.prefix = folder, address, free_port(), prefix
        self.home = folder / "home"
        self.home.mkdir(exist_ok=True)
        self.options, self.environ = options, dict(environ or {})
        self.host_key = keygen(folder / "host_key")
        self.client_key = keygen(folder / "client_key")
        self.authorized = folder / "authorized_keys"
        self.authorized.write_bytes((folder / "client_key.pub").read_bytes())
        self.known_hosts = folder / "known_hosts"
        self.know(folder / "host_key.pub")
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def listed(self) -> str:
        return f"[{self.address}]:{self.port}"

    def know(self, public: Path) -> None:
        self.known_hosts.write_text(f"{self.listed} {' '.join(public.read_text().split()[:2])}\n")

    def start(self) -> Sshd:
        set_env = {
            "HOME": str(self.home),
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
            "TUNEDECK_RUNTIME": str(self.folder / "runtime"),
            **self.environ,
        }
        lines = [
            f"ListenAddress {self.address}",
            f"Port {self.port}",
            f"HostKey {self.host_key}",
            f"PidFile {self.folder / 'pid'}",
            f"AuthorizedKeysFile {self.authorized}",
            "StrictModes no",
            "UsePAM no",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "UseDNS no",
            "PermitRootLogin yes",
            "LogLevel VERBOSE",
            *self.options,
            "SetEnv " + " ".join(f'"{key}={value}"' for key, value in set_env.items()),
        ]
        config = self.folder / "sshd_config"
        config.write_text("\n".join(lines) + "\n")
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        log = self.folder / "sshd.log"
        log.unlink(missing_ok=True)  # of an earlier start: its first line is waited for
        self.process = subprocess.Popen(
            [*self.prefix, SSHD, "-D", "-f", str(config), "-E", str(log)], stdin=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 20
        while "Server listening" not in (log.read_text() if log.exists() else ""):
            assert self.process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
        return self

    def stop(self) -> None:
        """The daemon, its sessions and what of tunedeck was started in its home."""
        self.kill(self.sessions() | ({self.process.pid} if self.process else set()) | self.agents())
        if self.process:
            self.process.wait(10)

    def kill(self, pids: set[int]) -> None:
        """Those of them that are still there: they come and go, and the end of one may end another."""
        for pid in sorted(pids):
            try:
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def sessions(self) -> set[int]:
        """Processes of the connections that are open; not what was put into a session of its own: daemon and runs."""
        if self.process is None:
            return set()
        parents = {int(p.name): _parent(p) for p in Path("/proc").iterdir() if p.name.isdecimal()}
        found = {self.process.pid}
        while more := {pid for pid, parent in parents.items() if parent in found} - found:
            found |= more
        return {pid for pid in found - {self.process.pid} if any(word in _line(pid) for word in (b"sshd", b"attach"))}

    def agents(self) -> set[int]:
        """Processes that run out of this home."""
        found = set()
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdecimal() and str(self.folder).encode() in (entry / "cmdline").read_bytes():
                    found.add(int(entry.name))
            except OSError:
                continue
        return found - {os.getpid()}

    def target(self, **changes: object) -> Target:
        wishes: dict[str, object] = {
            "name": "node",
            "host": self.address,
            "port": self.port,
            "user": ME,
            "identity_files": (self.client_key,),
            "known_hosts": (self.known_hosts,),
            "ssh_config": False,
        }
        return Target(**{**wishes, **changes})  # type: ignore[arg-type]


@contextmanager
def running(server: Sshd) -> Iterator[Sshd]:
    try:
        yield server.start()
    finally:
        server.stop()


def _line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0
