"""From a node's name to everything needed to log in there, as ssh itself would read ~/.ssh/config."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import paramiko

from console.refusal import Refusal
from console.strings import _
from console.target import Target

RESOLVE_TIMEOUT_S = 15.0
HOPS_LIMIT = 8
SYSTEM_FILES = (Path("/etc/ssh/ssh_known_hosts"),)
DEFAULT_KEYS = ("id_rsa", "id_ecdsa", "id_ed25519")
UNREADABLE = ("include", "match tagged")
"""What the fallback reader passes over in silence (paramiko 5.1)."""


@dataclass(frozen=True, slots=True)
class Route:
    """How to log in on one host."""

    host: str
    port: int
    user: str
    key_name: str
    """What known_hosts calls it"""
    key_port: int
    identity_files: tuple[Path, ...]
    identities_only: bool
    agent: str
    """Socket of the ssh-agent; empty: none"""
    known_hosts: tuple[Path, ...]
    trust_new: bool
    """The user's ssh_config accepts unknown hosts without asking."""
    hops: tuple[Route, ...] = ()
    """Jump hosts, the first one first"""
    system: str = ""
    """Why only the system's ssh can go there; empty: the built-in one can"""

    @property
    def label(self) -> str:
        return f"{self.user}@{self.host}" + (f":{self.port}" if self.port != 22 else "")


def resolve(target: Target, depth: int = 0) -> Route:
    """Asks `ssh -G` where there is one. Raises Refusal (kind "config") for what cannot be read or followed."""
    if depth > HOPS_LIMIT:
        raise Refusal(
            "config", _("{name}: jump hosts in a circle, or more than {n}").format(name=target.name, n=depth - 1)
        )
    said = _ask(target)
    hops = _hops(said.get("proxyjump", ["none"])[0], target, depth)
    host = said.get("hostname", [target.address])[0]
    port = int(said.get("port", ["22"])[0])
    alias = said.get("hostkeyalias", [""])[0]
    files = " ".join(said.get("userknownhostsfile", []) + said.get("globalknownhostsfile", []))
    identities = target.identity_files or tuple(_path(word, host) for word in said.get("identityfile", []))
    return Route(
        host=host,
        port=port,
        user=said.get("user", [_me()])[0],
        key_name=alias or host,
        key_port=22 if alias else port,
        identity_files=identities,
        identities_only=bool(target.identity_files) or said.get("identitiesonly") == ["yes"],
        agent=_agent(said.get("identityagent", [""])[0]) if target.ssh_config else "",
        known_hosts=target.known_hosts or tuple(_path(word, host) for word in files.split() if word != "none"),
        trust_new=said.get("stricthostkeychecking", ["ask"])[0] in ("no", "off", "false", "accept-new"),
        hops=hops,
        system=_beyond(said) or next((hop.system for hop in hops if hop.system), ""),
    )


def _ask(target: Target) -> dict[str, list[str]]:
    """Option (lower case) to its values, one per line that sets it."""
    if not target.ssh_config:
        return {**_overrides(target), "userknownhostsfile": []}
    program = shutil.which("ssh")
    if program is None:
        return {**_read_here(target), **_overrides(target)}
    wishes = ["-p", str(target.port)] if target.port else []
    wishes += ["-l", target.user] if target.user else []
    wishes += ["-J", target.jump] if target.jump and target.jump != "none" else []
    wishes += ["-o", "ProxyJump=none"] if target.jump == "none" else []
    wishes += ["-F", str(target.ssh_config_file)] if target.ssh_config_file else []
    try:
        done = subprocess.run(
            [program, "-G", *wishes, "--", target.address],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=RESOLVE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Refusal(
            "config", _("`ssh -G {host}` did not answer: {why}").format(host=target.address, why=error)
        ) from error
    if done.returncode:
        text = _("ssh refuses its configuration: {why}")
        raise Refusal("config", text.format(why=done.stderr.strip()[-300:] or done.returncode))
    said: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        key, _space, value = line.partition(" ")
        said.setdefault(key, []).append(value)
    return said


def _overrides(target: Target) -> dict[str, list[str]]:
    found = {"port": [str(target.port)]} if target.port else {}
    found |= {"user": [target.user]} if target.user else {}
    return found | ({"proxyjump": [target.jump]} if target.jump else {})


def _read_here(target: Target) -> dict[str, list[str]]:
    """Without OpenSSH: paramiko's reader, unless the file holds what that one does not understand."""
    folder = Path.home() / ".ssh"
    file = target.ssh_config_file or folder / "config"
    said: dict[str, list[str]] = {
        "userknownhostsfile": [str(folder / "known_hosts")],
        "globalknownhostsfile": [str(file) for file in SYSTEM_FILES],
        "identityfile": [str(folder / name) for name in DEFAULT_KEYS if (folder / name).exists()],
    }
    try:
        text = file.read_text(encoding="utf-8")
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip().lower().startswith(UNREADABLE):
                message = _("{file}:{n} needs the OpenSSH client to be read").format(file=file, n=number)
                raise Refusal("config", message)
        found = paramiko.SSHConfig.from_text(text).lookup(target.address)
    except FileNotFoundError:
        return said
    except (OSError, UnicodeDecodeError, paramiko.SSHException) as error:
        raise Refusal("config", f"{file}: {error}") from error
    return said | {key: value if isinstance(value, list) else [value] for key, value in found.items()}


def _hops(jump: str, target: Target, depth: int) -> tuple[Route, ...]:
    """The first hop goes as its own configuration says, each other one through the hop before it, as in ssh -J."""
    hops: tuple[Route, ...] = ()
    for word in jump.split(","):
        if not word or word.lower() == "none" or word == target.address:  # `Host *` names the jump host for itself, too
            continue
        try:
            said = Target.parse(word.strip().removeprefix("ssh://"))
            hop = replace(
                said,
                jump="none" if hops else None,
                ssh_config=target.ssh_config,
                ssh_config_file=target.ssh_config_file,
            )
        except ValueError as error:
            raise Refusal("config", _("jump host of {name}: {why}").format(name=target.name, why=error)) from error
        route = resolve(hop, depth + 1)
        hops += (*route.hops, route)
    return hops


def _beyond(said: dict[str, list[str]]) -> str:
    """What in the configuration the built-in client cannot do."""
    if said.get("proxycommand", ["none"])[0].lower() != "none":
        return "ProxyCommand"
    if said.get("pkcs11provider", ["none"])[0].lower() != "none":
        return "PKCS11Provider"
    return ""


def _agent(word: str) -> str:
    if word.lower() == "none":
        return ""
    if word in ("", "SSH_AUTH_SOCK") or word.startswith("$"):
        return os.environ.get(word.lstrip("$").strip("{}") or "SSH_AUTH_SOCK", "")
    return str(_path(word, ""))


def _path(word: str, host: str) -> Path:
    """With the tokens that `ssh -G` leaves in file names."""
    word = word.strip('"')
    for token, value in (("%d", str(Path.home())), ("%h", host), ("%u", _me()), ("%%", "%")):
        word = word.replace(token, value)
    return Path(os.path.expanduser(word))  # noqa: PTH111 - Path.expanduser raises where there is no such user


def _me() -> str:
    return os.environ.get("USER") or os.environ.get("LOGNAME") or "root"
