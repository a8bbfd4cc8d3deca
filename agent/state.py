"""Where an agent keeps what must outlive it: one private folder a machine, also where homes are shared."""

from __future__ import annotations

import os
import pwd
import re
import socket
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.refusal import Refusal, of_os_error

PRIVATE = 0o700
MACHINE_IDS = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))


def user_home(environ: Mapping[str, str]) -> Path:
    """The user's home folder; the account's one when HOME is unset."""
    return Path(environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir)


def node_name() -> str:
    """machine-id+hostname. Cloned images share a machine-id and rented boxes share a hostname; both together differ."""
    machine = next((text for path in MACHINE_IDS if (text := read_word(path))), "no-machine-id")
    return re.sub(r"[^A-Za-z0-9.+-]", "-", f"{machine}+{socket.gethostname() or 'no-hostname'}")[:160]


def read_word(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class StateFolder:
    """`~/.tunedeck` (or $TUNEDECK_HOME) and this machine's own folder in it."""

    home: Path
    node: str

    @classmethod
    def locate(cls, environ: Mapping[str, str] = os.environ) -> StateFolder:
        """Raises Refusal for a relative $TUNEDECK_HOME: it would mean another folder in every working directory."""
        given = environ.get("TUNEDECK_HOME")
        home = Path(given) if given else user_home(environ) / ".tunedeck"
        if not home.is_absolute():
            raise Refusal(f"TUNEDECK_HOME is {given!r}, a relative path", "Give an absolute path.")
        return cls(home, node_name())

    @property
    def path(self) -> Path:
        return self.home / "nodes" / self.node

    @property
    def runs(self) -> Path:
        return self.path / "runs"

    @property
    def orders(self) -> Path:
        return self.path / "orders.jsonl"

    @property
    def events(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def audit(self) -> Path:
        return self.path / "audit.jsonl"

    @property
    def history(self) -> Path:
        return self.path / "history"

    @property
    def lessons(self) -> Path:
        return self.path / "memory.json"

    @property
    def log(self) -> Path:
        return self.path / "serve.log"

    def create(self) -> None:
        """Makes the folders, private to the user. Raises Refusal: read-only or full home, or somebody else's folder."""
        for folder in (self.home, self.home / "nodes", self.path, self.runs):
            make_private(folder)


def make_private(folder: Path) -> None:
    """`folder` as an existing 0700 folder of this user; it may be a link, for homes that are small. Raises Refusal."""
    try:
        folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        status = folder.stat()
        if status.st_uid != os.getuid():
            raise Refusal(
                f"{folder} belongs to uid {status.st_uid}, not to you (uid {os.getuid()})",
                "Set TUNEDECK_HOME on the node to a folder of your own.",
            )
        if stat.S_IMODE(status.st_mode) != PRIVATE:
            folder.chmod(PRIVATE)
    except FileExistsError as error:
        raise Refusal(f"{folder} is in the way: it is no folder", "Move it away.") from error
    except OSError as error:
        raise of_os_error(error, "cannot prepare the state folder", folder) from error
