"""Host name → byte stream to a command: the built-in client where it can, the system's ssh where it must.

Which of the two went is told by the stream's `via`. Host keys are checked before anything is proven or sent.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import random
import select
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import paramiko
from paramiko.ssh_exception import IncompatiblePeer

from console import known_hosts, system_ssh
from console.answers import Answers
from console.channel import ChannelStream, Connection, hang_up
from console.config import Config
from console.credentials import authenticate
from console.known_hosts import KnownHosts, fingerprint
from console.refusal import Question, Refusal
from console.route import Route, resolve
from console.stream import Stream
from console.strings import _
from console.target import Target

CONNECT_TIMEOUT_S = 6.0
HANDSHAKE_TIMEOUT_S = 12.0
BUSY_PAUSES_S = (0.1, 0.2, 0.5, 1.0)
OPEN_TIMEOUT_S = 12.0
KEEPALIVE_S = 15
"""Keeps middleboxes from forgetting an idle connection; a dead peer is noticed by `console.talk`."""
OURS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS)
"""Errors that say nothing about the node"""
HANDSHAKES = 8
"""At once with one sshd: its MaxStartups begins to drop at 10 (measured: 8 no error, 16 one in ten)."""
KEY_EXCHANGES = threading.Semaphore(64)
"""At once with all nodes together: each takes our own CPU, and with a thousand begun at once all would time out."""
logging.getLogger("paramiko").addHandler(logging.NullHandler())  # else it writes errors over the screen
logging.getLogger("paramiko").propagate = False


class Gates:
    """One semaphore for each sshd, and for each command that leads to one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._gates: dict[tuple[str, int] | str, threading.Semaphore] = {}

    def at(self, route: Route) -> threading.Semaphore:
        with self._lock:
            place = route.proxy_command or (route.host, route.port)
            return self._gates.setdefault(place, threading.Semaphore(HANDSHAKES))


GATES = Gates()


class Dialler:
    """Calls one node again and again. A `stream.Dial`."""

    def __init__(self, target: Target, answers: Answers, accepted: Path, ssh: str = "auto") -> None:
        self.target = target
        self._answers, self._accepted = answers, accepted
        self._system = "as configured" if ssh == "system" else ""

    def __call__(self, command: str) -> Stream:
        """Log in and start the command. Raises Refusal."""
        try:
            return self._call(command)
        except (
            OSError,
            RuntimeError,
        ) as error:  # no more files, processes or threads; a full disk under the state folder
            raise Refusal("limits", _("this machine, not the node, gave out: {why}").format(why=error)) from error

    def _call(self, command: str) -> Stream:
        route = resolve(self.target)
        why = self._system or route.system
        if not why:
            try:
                return self._built_in(route, command)
            except Refusal as refusal:
                why = system_ssh.could_help(route, refusal)
                if not why:
                    raise
        self._system = why  # it is not tried twice each time: some hosts ban those who fail too often
        with GATES.at(route.hops[0] if route.hops else route):
            stream = system_ssh.start(self.target, route, command, why, self._accepted)
            stream.await_word(CONNECT_TIMEOUT_S)  # not longer: a node that is dead must not hold a place for ever
        return stream

    @classmethod
    def of(cls, target: Target, config: Config, answers: Answers | None = None) -> Dialler:
        return cls(target, answers or Answers(config.accept_host_keys), config.known_hosts, config.ssh)

    def _built_in(self, route: Route, command: str) -> Stream:
        connections: list[Connection] = []
        try:
            for hop in (*route.hops, route):
                connections.append(self._patiently(hop, connections[-1] if connections else None))
            return ChannelStream(connections, _execute(connections[-1], route, command), "ssh")
        except BaseException:
            hang_up(connections)
            raise

    def _patiently(self, route: Route, through: Connection | None) -> Connection:
        """Again after a moment where an sshd with too many log-ins at once hangs up."""
        for pause_s in BUSY_PAUSES_S:
            began = time.monotonic()
            try:
                return self._connect(route, through)
            except Refusal as refusal:
                if refusal.kind != "max-startups" or time.monotonic() - began > CONNECT_TIMEOUT_S:
                    raise
            time.sleep(pause_s * random.uniform(0.5, 1.0))
        return self._connect(route, through)

    def _connect(self, route: Route, through: Connection | None) -> Connection:
        """Reach the sshd, check its key, log in. Raises Refusal."""
        with GATES.at(route):
            pipe = _through(through, route) if through else _reach(route)
            hosts = KnownHosts((*route.known_hosts, self._accepted))
            connection = Connection(pipe, hosts.kinds(route.key_name, route.key_port))
            try:
                _await_word(connection, route)  # a machine that hangs must not hold a place that others need
                with _told_apart(route):
                    with KEY_EXCHANGES:
                        connection.start_client(timeout=HANDSHAKE_TIMEOUT_S)
                    self._check_key(route, hosts, connection.get_remote_server_key())
                    authenticate(connection, route, self._answers)
            except BaseException:
                hang_up([connection])
                raise
        connection.set_keepalive(KEEPALIVE_S)
        return connection

    def _check_key(self, route: Route, hosts: KnownHosts, key: paramiko.PKey) -> None:
        blob = key.asbytes()
        verdict = hosts.judge(route.key_name, route.key_port, blob)
        mark = fingerprint(blob)
        if verdict.word == "known":
            return
        if verdict.word in ("changed", "revoked"):
            text = {
                "changed": _("{host} shows another key ({mark}) than the one in {where}"),
                "revoked": _("the key of {host} ({mark}) is marked @revoked in {where}"),
            }[verdict.word]
            raise Refusal("host-key-changed", text.format(host=route.host, mark=mark, where=verdict.where))
        if verdict.word == "authority":
            raise Refusal("incompatible", _("{host} is known by a host certificate only").format(host=route.host))
        if not route.trust_new and self._answers.get("host-key", mark) is None:
            text = _("the key of {host} is not known yet: {kind} {mark}")
            message = text.format(host=route.label, kind=key.get_name(), mark=mark)
            raise Refusal("host-key-unknown", message, question=Question("host-key", mark, message, False))
        known_hosts.append(self._accepted, route.key_name, route.key_port, key.get_name(), blob)


def _reach(route: Route) -> socket.socket:
    """A TCP connection. Raises Refusal."""
    where = f"{route.host}:{route.port}"
    try:
        pipe = socket.create_connection((route.host, route.port), CONNECT_TIMEOUT_S)
    except socket.gaierror as error:
        raise Refusal(
            "dns", _("there is no host {host} ({why})").format(host=route.host, why=error.strerror)
        ) from error
    except ConnectionRefusedError as error:
        raise Refusal("refused", _("{where} refuses connections").format(where=where)) from error
    except TimeoutError as error:
        text = _("{where} does not answer within {s:.0f} s")
        raise Refusal("timeout", text.format(where=where, s=CONNECT_TIMEOUT_S)) from error
    except (OSError, UnicodeError) as error:
        if isinstance(error, OSError) and error.errno in OURS:
            raise
        raise Refusal("unreachable", f"{where}: {getattr(error, 'strerror', None) or error}") from error
    pipe.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # a write into a dead connection ends, too
        pipe.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 10_000)
    return pipe


def _await_word(connection: Connection, route: Route) -> None:
    """Until the sshd has begun to speak, or hung up. Raises Refusal."""
    if isinstance(connection.pipe, socket.socket):
        ready, limit_s = select.poll(), connection.banner_timeout
        ready.register(connection.pipe, select.POLLIN)
        if not ready.poll(limit_s * 1000):
            text = _("{where} takes connections, but its sshd says nothing for {s:.0f} s")
            raise Refusal("max-startups", text.format(where=f"{route.host}:{route.port}", s=limit_s))


def _through(jump: Connection, route: Route) -> paramiko.Channel:
    """The next hop, by a channel of the one before. Raises Refusal."""
    where = f"{route.host}:{route.port}"
    try:
        return jump.open_channel("direct-tcpip", (route.host, route.port), ("127.0.0.1", 0), timeout=OPEN_TIMEOUT_S)
    except paramiko.ChannelException as error:
        text = _("the jump host cannot reach {where}: {why}")
        kind = "denied" if error.code == 1 else "unreachable"
        raise Refusal(kind, text.format(where=where, why=error.text)) from error
    except (paramiko.SSHException, EOFError, OSError) as error:
        raise Refusal("timeout", _("the jump host did not reach {where}").format(where=where)) from error


def _execute(connection: Connection, route: Route, command: str) -> paramiko.Channel:
    try:
        channel = connection.open_session(timeout=OPEN_TIMEOUT_S)
        channel.settimeout(OPEN_TIMEOUT_S)
        channel.exec_command(command.encode("ascii"))
        return channel
    except (paramiko.SSHException, EOFError, OSError) as error:
        text = _("{where} let us in but runs nothing: {why}")
        raise Refusal("restricted-shell", text.format(where=route.label, why=error or _("it hung up"))) from error


@contextlib.contextmanager
def _told_apart(route: Route) -> Iterator[None]:
    """paramiko's errors as refusals."""
    try:
        yield
    except IncompatiblePeer as error:
        raise Refusal("incompatible", f"{route.label}: {error}") from error
    except (paramiko.SSHException, EOFError, OSError) as error:
        said = str(error) or _("it hung up")
        if "banner" in said.lower() or isinstance(error, (EOFError, ConnectionResetError)):
            text = _("the sshd of {where} hung up before the log-in began ({why})")
            raise Refusal("max-startups", text.format(where=route.label, why=said)) from error
        raise Refusal("lost", f"{route.label}: {said}") from error


def dial(target: Target, config: Config) -> Dialler:
    """For one target alone; links that share the user's answers come from `link.connector`."""
    return Dialler.of(target, config)
