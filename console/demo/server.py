"""An SSH server in this process: several nodes behind one port of the loopback, told apart by user name.

It knows public keys only, and exactly one, made afresh. What is executed runs as this user, in a session of its own,
with the environment of the node; so it is a way in for nobody who could not run the same without it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

import paramiko

from console import known_hosts
from console.target import Target

ADDRESS = "127.0.0.1"
BLOCK_BYTES = 32768
GRACE_S = 2.0
POLL_S = 1.0


class ServerConnection(paramiko.Transport):
    _active_check_timeout = POLL_S


class DemoServer:
    """`nodes`: name → environment a login finds there. `folder` (0700) holds the keys, which each start makes anew."""

    def __init__(self, folder: Path, nodes: Mapping[str, Mapping[str, str]]) -> None:
        self._folder, self._nodes = folder, {name: dict(environ) for name, environ in nodes.items()}
        self._lock = threading.Lock()
        self._sessions: list[Session] = []
        self._stopping = False
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._host_key = paramiko.ECDSAKey.generate()
        self._client_key = paramiko.ECDSAKey.generate()

    def start(self) -> None:
        """Raises OSError."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._listener.bind((ADDRESS, 0))
        self._listener.listen(64)
        for old in (self._key_file, self._known_hosts):
            old.unlink(missing_ok=True)
        self._client_key.write_private_key_file(str(self._key_file))  # paramiko makes it 0600
        known_hosts.append(self._known_hosts, ADDRESS, self.port, self._host_key.get_name(), self._host_key.asbytes())
        threading.Thread(target=self._accept, name="demo ssh", daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def _key_file(self) -> Path:
        return self._folder / "client_key"

    @property
    def _known_hosts(self) -> Path:
        return self._folder / "known_hosts"

    def environment(self, node: str) -> dict[str, str]:
        return dict(self._nodes[node])

    def targets(self) -> list[Target]:
        """How a console reaches the nodes; nothing of ~/.ssh is needed."""
        return [
            Target(
                name=name,
                host=ADDRESS,
                port=self.port,
                user=name,
                identity_files=(self._key_file,),
                known_hosts=(self._known_hosts,),
                ssh_config=False,
            )
            for name in self._nodes
        ]

    def visitors(self) -> int:
        """Logged-in connections."""
        with self._lock:
            return sum(session.transport.is_authenticated() for session in self._sessions)

    def cut(self) -> None:
        """Break all connections, as a failing network does; new ones are taken."""
        with self._lock:
            sessions, self._sessions = self._sessions, []
        for session in sessions:
            session.end()

    def stop(self) -> None:
        """No connection, no thread that works, no process that a login started stays. What such a process has put
        into a session of its own stays: daemons and runs."""
        self._stopping = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while not self._stopping:
            try:
                pipe, _address = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self._sessions = [session for session in self._sessions if session.transport.is_active()]
                if self._stopping:
                    pipe.close()
                    return
                session = Session(pipe, self._host_key, self._client_key, self._nodes)
                self._sessions.append(session)
            with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
                session.transport.start_server(event=threading.Event(), server=session)


class Session(paramiko.ServerInterface):
    """One connection, and the processes it has started."""

    def __init__(
        self,
        pipe: socket.socket,
        host_key: paramiko.PKey,
        client_key: paramiko.PKey,
        nodes: Mapping[str, Mapping[str, str]],
    ) -> None:
        self.transport = ServerConnection(pipe)
        self.transport.add_server_key(host_key)
        self._pipe, self._client_key, self._nodes = pipe, client_key, nodes
        self._environ: Mapping[str, str] = {}
        self._children: list[Child] = []
        self._lock = threading.Lock()

    def end(self) -> None:
        with contextlib.suppress(OSError):
            self._pipe.shutdown(socket.SHUT_RDWR)
        self.transport.close()
        with self._lock:
            children, self._children = self._children, []
        for child in children:
            child.end()

    # What paramiko asks

    def get_allowed_auths(self, username: str) -> str:  # noqa: ARG002
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        if username not in self._nodes or key.asbytes() != self._client_key.asbytes():
            return paramiko.common.AUTH_FAILED
        self._environ = self._nodes[username]
        return paramiko.common.AUTH_SUCCESSFUL

    def check_channel_request(self, kind: str, chanid: int) -> int:  # noqa: ARG002
        accepted = kind == "session"
        return paramiko.common.OPEN_SUCCEEDED if accepted else paramiko.common.OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        try:
            child = Child(channel, command, self._environ)
        except OSError:
            return False
        with self._lock:
            self._children = [one for one in self._children if one.process.poll() is None]
            self._children.append(child)
        child.start()
        return True


class Child:
    """One executed command: channel ↔ pipes, exit status back. Ends with the channel."""

    def __init__(self, channel: paramiko.Channel, command: bytes, environ: Mapping[str, str]) -> None:
        self._channel = channel
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=environ["HOME"],
            env=dict(environ),
            bufsize=0,
            start_new_session=True,
        )

    def start(self) -> None:
        for work in (self._feed, self._collect):
            threading.Thread(target=work, daemon=True).start()

    def end(self) -> None:
        """As sshd does when the connection is gone: hang up its session; harder if it does not go."""
        for number in (signal.SIGHUP, signal.SIGKILL):
            if self.process.poll() is not None:
                return
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(GRACE_S)
                return

    def _feed(self) -> None:
        """Channel to stdin; the end of one is the end of the other."""
        assert self.process.stdin
        with contextlib.suppress(OSError, EOFError), self.process.stdin as pipe:
            while data := self._channel.recv(BLOCK_BYTES):
                view = memoryview(data)
                while view:
                    view = view[pipe.write(view) or 0 :]

    def _collect(self) -> None:
        assert self.process.stdout and self.process.stderr
        errors = threading.Thread(target=_pump, args=(self.process.stderr, self._channel.sendall_stderr), daemon=True)
        errors.start()
        _pump(self.process.stdout, self._channel.sendall)
        errors.join()
        status = self.process.wait()
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            self._channel.send_exit_status(status if status >= 0 else 128 - status)
            self._channel.close()


def _pump(pipe: IO[bytes], send: Callable[[bytes], None]) -> None:
    with contextlib.suppress(OSError, EOFError, paramiko.SSHException), pipe:
        while data := pipe.read(BLOCK_BYTES):
            send(data)
