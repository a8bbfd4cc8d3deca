"""From a node's name to everything needed to log in there, as ssh itself would read ~/.ssh/config."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

from console import ssh_config
from console.refusal import Refusal
from console.strings import _
from console.target import Target

RESOLVE_TIMEOUT_S = 15.0
HOPS_LIMIT = 8
SYSTEM_FILES = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
DEFAULT_KEYS = ("id_rsa", "id_ecdsa", "id_ed25519")


BEYOND = {
    "pkcs11provider": "PKCS11Provider",
    "certificatefile": "CertificateFile",
    "bindaddress": "BindAddress",
    "bindinterface": "BindInterface",
    "addressfamily": "AddressFamily",
    "knownhostscommand": "KnownHostsCommand",
    "revokedhostkeys": "RevokedHostKeys",
    "hostbasedauthentication": "HostbasedAuthentication",
    "proxyusefdpass": "ProxyUseFdpass",
}
"""What the built-in client would pass over, by the name that `ssh -G` gives it."""


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
    proxy_command: str = ""
    """As written, before its tokens are filled in: the same for all nodes behind one gateway"""

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
    user = said.get("user", [_me()])[0]
    tokens = _tokens(target, host, port, user, alias)
    files = " ".join(said.get("userknownhostsfile", []) + said.get("globalknownhostsfile", []))
    identities = target.identity_files or tuple(_path(word, tokens) for word in said.get("identityfile", []))
    return Route(
        host=host,
        port=port,
        user=user,
        key_name=alias or host,
        key_port=22 if alias else port,
        identity_files=identities,
        identities_only=bool(target.identity_files) or said.get("identitiesonly") == ["yes"],
        agent=_agent(said.get("identityagent", [""])[0], tokens) if target.ssh_config else "",
        known_hosts=target.known_hosts or tuple(_path(word, tokens) for word in files.split() if word != "none"),
        trust_new=said.get("stricthostkeychecking", ["ask"])[0] in ("no", "off", "false", "accept-new"),
        hops=hops,
        system=_beyond(said) or next((hop.system for hop in hops if hop.system), ""),
        proxy_command=_proxy_command(said),
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
    """Without OpenSSH: the files as far as they can be read exactly. Raises Refusal."""
    folder = Path.home() / ".ssh"
    reader = ssh_config.Reader(target.address, _me())
    if target.user:
        reader.said["user"] = [target.user]  # the command line goes first, and `Match user` looks at it
    if target.jump:
        reader.said["proxyjump"] = [target.jump]
    reader.read(target.ssh_config_file or folder / "config", user_file=True)
    if target.ssh_config_file is None:
        reader.read(Path("/etc/ssh/ssh_config"), user_file=False)
    said = reader.said
    host = ssh_config.expanded_host(said.get("hostname", [target.address])[0], target.address).lower()
    usual = {
        "userknownhostsfile": [f"{folder}/known_hosts {folder}/known_hosts2"],
        "globalknownhostsfile": [" ".join(SYSTEM_FILES)],
        "identityfile": [str(folder / name) for name in DEFAULT_KEYS if (folder / name).exists()],
    }
    return {**usual, **said, "hostname": [host]}


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
    if _proxy_command(said):
        return "ProxyCommand"
    for key, name in BEYOND.items():
        if said.get(key, ["none"])[0].lower() not in ("none", "any", "no", "false", ""):
            return name
    paths = said.get("identityfile", []) + said.get("userknownhostsfile", []) + said.get("identityagent", [])
    return next(("%" + sign for path in paths for sign in "CjT" if "%" + sign in path), "")


def _proxy_command(said: dict[str, list[str]]) -> str:
    command = said.get("proxycommand", ["none"])[0]
    return "" if command.lower() == "none" else command


def _agent(word: str, tokens: dict[str, str]) -> str:
    if word.lower() == "none":
        return ""
    if word in ("", "SSH_AUTH_SOCK") or word.startswith("$"):
        return os.environ.get(word.lstrip("$").strip("{}") or "SSH_AUTH_SOCK", "")
    return str(_path(word, tokens))


def _path(word: str, tokens: dict[str, str]) -> Path:
    """With the tokens and variables that `ssh -G` leaves in file names."""
    word = re.sub(r"%(.)", lambda found: tokens.get(found[1], found[0]), word.strip('"'))
    word = re.sub(r"\$\{(\w+)\}", lambda found: os.environ.get(found[1], found[0]), word)
    return Path(os.path.expanduser(word))  # noqa: PTH111 - Path.expanduser raises where there is no such user


def _tokens(target: Target, host: str, port: int, user: str, alias: str) -> dict[str, str]:
    """Section TOKENS of ssh_config(5), but for %C, which differs from version to version."""
    name = socket.gethostname()
    return {
        "%": "%",
        "d": str(Path.home()),
        "h": host,
        "i": str(os.getuid()),
        "k": alias or target.address,
        "L": name.split(".")[0],
        "l": name,
        "n": target.address,
        "p": str(port),
        "r": user,
        "u": _me(),
    }


def _me() -> str:
    return os.environ.get("USER") or os.environ.get("LOGNAME") or "root"
