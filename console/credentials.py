"""Proving who we are to one sshd: agent, keys and certificates, then a password if the user gave one."""

from __future__ import annotations

import base64
import functools
import itertools
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import paramiko
from paramiko.agent import AgentSSH

from console.answers import Answers
from console.passwords import by_password, hung_up, not_accepted, password_wanted, still_there
from console.refusal import Question, Refusal
from console.route import Route
from console.strings import _

KEY_TYPES = (paramiko.Ed25519Key, paramiko.ECDSAKey, paramiko.RSAKey)
TRIES_LIMIT = 5
"""OpenSSH's MaxAuthTries is 6, and a password must still have its turn."""
AGENT_TIMEOUT_S = 5.0
PASSWORDS = ("password", "keyboard-interactive")


class Agent(AgentSSH):
    """The keys of the ssh-agent that the route names; none if it does not answer. Closed by `with`."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(AGENT_TIMEOUT_S)
        if path:
            try:
                self._socket.connect(path)
                self._connect(self._socket)  # type: ignore[attr-defined]
            except (OSError, paramiko.SSHException):
                self.dead = path

    dead = ""
    """The socket that did not answer."""

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_error: object) -> None:
        self._close()  # type: ignore[attr-defined]
        self._socket.close()


@dataclass(slots=True)
class Attempt:
    """What came of the keys, for the message if none was taken."""

    offered: list[str] = field(default_factory=list)
    locked: list[Path] = field(default_factory=list)
    """Key files that want a passphrase"""
    unusable: list[str] = field(default_factory=list)
    allowed: list[str] = field(default_factory=list)
    """Methods the server takes, as far as it said"""


def authenticate(transport: paramiko.Transport, route: Route, answers: Answers) -> None:
    """Raises Refusal, with a Question where an answer of the user could help."""
    attempt = Attempt()
    if _by_key(transport, route, answers, attempt):
        return
    attempt.allowed = attempt.allowed or _allowed(transport, route)
    if by_password(transport, route, answers, attempt.allowed):
        return
    raise _refused(route, attempt, answers)


def _by_key(transport: paramiko.Transport, route: Route, answers: Answers, attempt: Attempt) -> bool:
    """True when we are in; False when no key was taken, or one was and the server wants a password as well."""
    with Agent(route.agent) as agent:
        for name, key in itertools.islice(_keys(route, agent, answers, attempt), TRIES_LIMIT):
            attempt.offered.append(name)
            try:
                attempt.allowed = transport.auth_publickey(route.user, key)
                return not attempt.allowed
            except paramiko.BadAuthenticationType as error:
                attempt.allowed = list(error.allowed_types)
                return False
            except (paramiko.SSHException, EOFError, OSError) as error:
                still_there(transport, route, error)
    return False


def _refused(route: Route, attempt: Attempt, answers: Answers) -> Refusal:
    tried = ", ".join(attempt.offered + attempt.unusable) or _("no key was found")
    message = _("{where} does not let us in; tried: {tried}").format(where=route.label, tried=tried)
    if attempt.locked:
        file = str(attempt.locked[0])
        text = _("Passphrase for {file}").format(file=file)
        question = Question("passphrase", file, not_accepted(text, answers.was_wrong("passphrase", file)))
        hint = _("{file} has a passphrase: enter it here, or run ssh-add.").format(file=file)
        return Refusal("auth", message, hint, question)
    if any(word in attempt.allowed for word in PASSWORDS):
        hint = _("It takes a password: enter it, or set up a key.")
        return Refusal("auth", message, hint, password_wanted(route.label, answers))
    return Refusal("auth", message)


def _allowed(transport: paramiko.Transport, route: Route) -> list[str]:
    """Which methods the server takes."""
    try:
        transport.auth_none(route.user)
    except paramiko.BadAuthenticationType as error:
        return list(error.allowed_types)
    except (paramiko.SSHException, EOFError, OSError) as error:
        raise hung_up(route, transport, error) from error
    return []


def _keys(route: Route, agent: Agent, answers: Answers, attempt: Attempt) -> Iterator[tuple[str, paramiko.PKey]]:
    """As ssh orders them: configured keys the agent holds, its other keys, then key files."""
    public = {blob: file for file in route.identity_files if (blob := _public(file))}
    held = list(agent.get_keys())
    first = [key for key in held if key.asbytes() in public]
    rest = [] if route.identities_only else [key for key in held if key.asbytes() not in public]
    for key in first + rest:
        yield _("{name} from the agent").format(name=key.comment or key.get_name()), key
    served = {public[key.asbytes()] for key in first}
    for file in route.identity_files:
        if file in served or not file.is_file():
            continue
        loaded = load(file, answers)
        if isinstance(loaded, paramiko.PKey):
            yield file.name, loaded
        elif loaded:
            attempt.unusable.append(f"{file.name} ({loaded})")
        else:
            attempt.locked.append(file)


def load(file: Path, answers: Answers) -> paramiko.PKey | str:
    """The key with its certificate beside it; "" if a passphrase is wanted; else why it cannot be used."""
    passphrase = answers.get("passphrase", str(file))
    why = ""
    for kind in KEY_TYPES:
        try:
            return _opened(kind, file, passphrase, tuple(_version(one) for one in (file, _certificate(file))))
        except paramiko.PasswordRequiredException:
            return ""
        except (paramiko.SSHException, OSError, ValueError) as error:
            why = str(error)
    if passphrase is None:
        return why
    answers.forget("passphrase", str(file))
    return ""


@functools.lru_cache(32)
def _opened(
    kind: type[paramiko.PKey], file: Path, passphrase: str | None, _versions: tuple[object, ...]
) -> paramiko.PKey:
    """Once for all nodes: a passphrase is made slow to try on purpose."""
    key = kind.from_private_key_file(str(file), passphrase)
    if _certificate(file).is_file():
        key.load_certificate(str(_certificate(file)))
    return key


def _certificate(file: Path) -> Path:
    return file.with_name(f"{file.name}-cert.pub")


def _version(file: Path) -> tuple[int, ...] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _public(file: Path) -> bytes | None:
    """The public half as it goes over the wire, if it lies beside the key."""
    try:
        return base64.b64decode(file.with_name(f"{file.name}.pub").read_text(encoding="utf-8").split()[1])
    except (OSError, ValueError, IndexError):
        return None
