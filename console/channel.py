"""paramiko's connection and channel, made to cost little when idle and never to wait when read."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import paramiko

from console.small import start_small
from console.stream import READ_BYTES, STDERR_KEPT_BYTES, WRITE_TIMEOUT_S, Closed

POLL_S = 2.0
"""paramiko wakes up that often for each connection; its own 0.1 s is most of the cost of a thousand idle links."""
STEP_TIMEOUT_S = 10.0
"""For each of: the server's first line, the key exchange, one attempt to log in."""


class Connection(paramiko.Transport):
    """One SSH connection. `kinds`: host key types to prefer."""

    _active_check_timeout = POLL_S

    def __init__(self, pipe: socket.socket | paramiko.Channel, kinds: Sequence[str]) -> None:
        super().__init__(pipe)
        self.pipe = pipe
        self.banner_timeout = self.handshake_timeout = self.auth_timeout = STEP_TIMEOUT_S
        options = self.get_security_options()
        wanted = {name for kind in kinds for name in _signatures(kind)}
        ordered = sorted(options.key_types, key=lambda name: name not in wanted)  # stable: otherwise as it was
        options.key_types = tuple(ordered)
        # one pass for cipher and MAC: a third less for each small packet, of which many nodes send many
        options.ciphers = tuple(sorted(options.ciphers, key=lambda name: "gcm" not in name))

    def start(self) -> None:
        start_small(super().start)

    def run(self) -> None:
        """paramiko's own ends by closing the pipe: a channel of a connection that is gone already then raises."""
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            super().run()


def hang_up(connections: Sequence[Connection]) -> None:
    """Close connections that lie one in the other, the outermost first. Never waits."""
    for connection in connections:
        if isinstance(connection.pipe, socket.socket):
            with contextlib.suppress(OSError):
                connection.pipe.shutdown(socket.SHUT_RDWR)  # wakes the reading thread, which would linger for POLL_S
        connection.close()
        connection.pipe.close()  # which it leaves open if it was never started


def _signatures(kind: str) -> tuple[str, ...]:
    return ("rsa-sha2-512", "rsa-sha2-256", "ssh-rsa") if kind == "ssh-rsa" else (kind,)


class Ringer(threading.Event):
    """What paramiko's buffers set when something has come. Clearing is theirs alone and means nothing here."""

    def __init__(self, bell: threading.Event) -> None:
        super().__init__()
        self._bell = bell

    def set(self) -> None:
        self._bell.set()


@contextlib.contextmanager
def hung_up_is_closed() -> Iterator[None]:
    """paramiko's errors for a connection that is gone as Closed; a TimeoutError stays one."""
    try:
        yield
    except TimeoutError:
        raise
    except (OSError, EOFError, paramiko.SSHException) as error:
        raise Closed("the other end has hung up") from error


class ChannelStream:
    """A `stream.Stream` over one channel and the connections that carry it, the outermost first."""

    def __init__(self, connections: Sequence[Connection], channel: paramiko.Channel, via: str) -> None:
        self.via = via
        self._connections, self._channel = connections, channel
        self._stderr = b""
        channel.settimeout(WRITE_TIMEOUT_S)

    def notify(self, bell: threading.Event) -> None:
        for buffer in (self._channel.in_buffer, self._channel.in_stderr_buffer):
            buffer.set_event(Ringer(bell))
        bell.set()

    def read_some(self) -> bytes | None:
        channel = self._channel
        try:
            with hung_up_is_closed():  # reading tells the other end that there is room, so it may fail like writing
                self._drain_stderr()
                if channel.recv_ready():
                    data: bytes = channel.recv(READ_BYTES)
                    return data
        except Closed:
            return b""
        ended = channel.eof_received or channel.closed or not self._connections[-1].is_active()
        return b"" if ended and not channel.recv_ready() else None

    def _drain_stderr(self) -> None:
        while self._channel.recv_stderr_ready():
            self._stderr = (self._stderr + self._channel.recv_stderr(READ_BYTES))[-STDERR_KEPT_BYTES:]

    def write(self, data: bytes) -> None:
        with hung_up_is_closed():
            self._channel.sendall(data)

    def end_input(self) -> None:
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            self._channel.shutdown_write()

    def complaint(self) -> str:
        with contextlib.suppress(Closed), hung_up_is_closed():
            self._drain_stderr()
        return self._stderr.decode("utf-8", "replace").strip()

    def exit_status(self) -> int | None:
        status: Any = self._channel.exit_status if self._channel.status_event.wait(0.5) else -1
        return None if status == -1 else int(status)

    def close(self) -> None:
        hang_up(self._connections)
