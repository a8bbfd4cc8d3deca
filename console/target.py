"""A node as the user named it: what was said about it, before ssh_config has been asked."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_NAME = re.compile(r"[A-Za-z0-9_.:%\[\]-]+")
_USER = re.compile(r"[A-Za-z0-9_.@\\+-]+")
_NODE_PATH = re.compile(r"[A-Za-z0-9_./~+@:=,-]+")


@dataclass(frozen=True, slots=True)
class Target:
    """One node. `None` and empty mean: as ssh_config says."""

    name: str
    """What the console calls it."""
    host: str = ""
    """What ssh is asked for: an alias of ssh_config, a DNS name or an address; empty: `name`"""
    port: int | None = None
    user: str | None = None
    identity_files: tuple[Path, ...] = ()
    known_hosts: tuple[Path, ...] = ()
    """Looked at instead of ssh_config's files."""
    jump: str | None = None
    """``[user@]host[:port],...``, as ssh -J takes it; "none" for no jump host"""
    home: str | None = None
    """tunedeck's folder on the node; default ~/.tunedeck"""
    python: str | None = None
    """Interpreter on the node that is tried before the search."""
    ssh_config: bool = True
    """False: nothing is read from ~/.ssh, all that matters is said here."""
    ssh_config_file: Path | None = None
    """Read instead of ~/.ssh/config and /etc/ssh/ssh_config, as ssh -F does."""

    def __post_init__(self) -> None:
        _check(_NAME, self.name, "node name")
        _check(_NAME, self.address, "host name")
        if self.user is not None:
            _check(_USER, self.user, "user name")
        for word in filter(None, (self.home, self.python)):
            _check(_NODE_PATH, word, "path on the node")
        for hop in (self.jump or "").split(","):
            if hop.strip().startswith("-") or "@-" in hop:
                raise ValueError(f"jump host {hop!r} begins with '-'")
        if self.port is not None and not 0 < self.port < 65536:
            raise ValueError(f"port {self.port} is not between 1 and 65535")

    @property
    def address(self) -> str:
        return self.host or self.name

    @classmethod
    def parse(cls, text: str) -> Target:
        """``[user@]host[:port]``, also ``[v6::address]:port``; the whole text becomes the name. Raises ValueError."""
        user, at, rest = text.rpartition("@")
        host, port = rest, ""
        if rest.startswith("["):
            host, _, port = rest[1:].partition("]")
            port = port.removeprefix(":")
        elif rest.count(":") == 1:
            host, _, port = rest.partition(":")
        if port and not port.isdecimal():
            raise ValueError(f"{text!r}: {port!r} is no port number")
        name = host if not port else f"{host}:{port}"
        return cls(name, host, int(port) if port else None, user if at else None)


def _check(allowed: re.Pattern[str], word: str, what: str) -> None:
    """Raises ValueError for anything an ssh command line or a shell could take for more than a name."""
    if word.startswith("-"):
        raise ValueError(f"{what} {word!r} begins with '-'")
    if not allowed.fullmatch(word):
        raise ValueError(f"{what} {word!r} holds characters that no {what} has")
