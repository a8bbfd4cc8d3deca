"""The system's ssh as a byte stream, for what the built-in client cannot do. It never asks: it fails instead."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from console.refusal import Refusal
from console.route import Route
from console.stream import ProcessStream
from console.strings import _
from console.target import Target

ALIVE_S = 3
CONNECT_TIMEOUT_S = 10


def could_help(route: Route, refusal: Refusal) -> str:
    """Why the system's ssh may succeed where the built-in client was refused; empty if it would not."""
    if shutil.which("ssh") is None:
        return ""
    if refusal.kind == "incompatible":
        return _("the built-in client lacks what this host asks for")
    if refusal.kind == "auth" and refusal.question is None:
        if any(_security_key(file) for file in route.identity_files):
            return _("security key")
        if _ticket():
            return _("Kerberos")
    return ""


def start(target: Target, route: Route, command: str, why: str, accepted: Path) -> ProcessStream:
    """Raises Refusal when there is no ssh. What goes wrong later stands in the stream's complaint."""
    program = shutil.which("ssh")
    if program is None:
        text = _("{name} can only be reached through the system's ssh ({why}), which is not installed")
        raise Refusal("incompatible", text.format(name=target.name, why=why))
    return ProcessStream(
        [program, *arguments(target, route, accepted), "--", target.address, command], f"system ssh ({why})"
    )


def arguments(target: Target, route: Route, accepted: Path) -> list[str]:
    """Options before the host. Keys accepted in the console count as known, too."""
    options = {
        "BatchMode": "yes",
        "ConnectTimeout": str(CONNECT_TIMEOUT_S),
        "ServerAliveInterval": str(ALIVE_S),
        "ServerAliveCountMax": "2",
        "StrictHostKeyChecking": "yes",
        "ControlMaster": "no",
        "ForwardAgent": "no",
        "ForwardX11": "no",
        "ClearAllForwardings": "yes",
        "PermitLocalCommand": "no",
        "RemoteCommand": "none",
    }
    options["UserKnownHostsFile"] = " ".join(f'"{file}"' for file in (*route.known_hosts, accepted))
    if route.trust_new:
        options["StrictHostKeyChecking"] = "accept-new"
    words = ["-T"] + [part for key, value in options.items() for part in ("-o", f"{key}={value}")]
    if target.ssh_config_file or not target.ssh_config:
        words += ["-F", str(target.ssh_config_file or os.devnull)]
    words += ["-p", str(target.port)] if target.port else []
    words += ["-l", target.user] if target.user else []
    words += ["-J", target.jump] if target.jump and target.jump != "none" else []
    words += ["-o", "ProxyJump=none"] if target.jump == "none" else []
    for file in target.identity_files:
        words += ["-i", str(file), "-o", "IdentitiesOnly=yes"]
    return words


def _security_key(file: Path) -> bool:
    try:
        return Path(f"{file}.pub").read_text(encoding="utf-8", errors="replace").startswith("sk-")
    except OSError:
        return False


def _ticket() -> bool:
    cache = os.environ.get("KRB5CCNAME", "").removeprefix("FILE:")
    return Path(cache or f"{tempfile.gettempdir()}/krb5cc_{os.getuid()}").exists()
