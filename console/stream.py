"""A byte stream to one command on a node, whatever carries it."""

from __future__ import annotations

import os
import select
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

STDERR_KEPT_BYTES = 4096
WRITE_TIMEOUT_S = 20.0
"""Longest time a write may make no progress."""
READ_BYTES = 65536


class Closed(OSError):
    """The stream has ended; nothing more can be written."""


class Stream(Protocol):
    """Bytes to and from a remote command. Used by one thread, except `close`."""

    via: str
    """How it goes there, for the eye: "ssh", "system ssh (…)", "local"."""

    def notify(self, bell: threading.Event) -> None:
        """Ring `bell` whenever `read_some` may have something new, the end included."""

    def read_some(self) -> bytes | None:
        """What has arrived, at most READ_BYTES; None when nothing has; b"" at the end. Never waits."""

    def write(self, data: bytes) -> None:
        """All of it. Raises Closed at the end, TimeoutError after WRITE_TIMEOUT_S without progress."""

    def end_input(self) -> None:
        """Nothing more will be written. Never waits."""

    def complaint(self) -> str:
        """The end of what the command wrote to stderr."""

    def exit_status(self) -> int | None: ...

    def close(self) -> None:
        """Hang up. Never waits."""


Dial = Callable[[str], Stream]
"""Starts a command line on the node. Raises Refusal."""


def read_until(
    stream: Stream, bell: threading.Event, done: Callable[[bytes], bool], limit_bytes: int, timeout_s: float
) -> bytes:
    """Reads until `done`, the end, or the limit; raises TimeoutError. The caller looks at what it got."""
    deadline, data = time.monotonic() + timeout_s, b""
    while not done(data) and len(data) < limit_bytes:
        bell.clear()
        piece = stream.read_some()
        if piece == b"":
            break
        if piece:
            data += piece
        elif not bell.wait(max(0.0, deadline - time.monotonic())) and time.monotonic() >= deadline:
            raise TimeoutError
    return data


class ProcessStream:
    """A child process's stdin and stdout: the system's ssh, or a local shell. Two pump threads, which end with it."""

    def __init__(self, argv: Sequence[str], via: str, env: dict[str, str] | None = None) -> None:
        self.via = via
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            bufsize=0,
            start_new_session=True,  # ctrl-C in the console is not for it
        )
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self._stdin = self._process.stdin.fileno()
        os.set_blocking(self._stdin, False)
        self._lock = threading.Lock()
        self._room = threading.Semaphore(64)
        self._arrived: deque[bytes] = deque()
        self._bell = threading.Event()
        self._stderr = b""
        self._ended = self._hung_up = False
        self._pumps = [
            threading.Thread(target=self._pump_stdout, args=(self._process.stdout.fileno(),), daemon=True),
            threading.Thread(target=self._pump_stderr, args=(self._process.stderr.fileno(),), daemon=True),
        ]
        for pump in reversed(self._pumps):
            pump.start()

    def notify(self, bell: threading.Event) -> None:
        self._bell = bell
        bell.set()

    def _pump_stdout(self, descriptor: int) -> None:
        data = b"-"
        while data and not self._hung_up:
            self._room.acquire()
            data = os.read(descriptor, READ_BYTES)
            self._arrived.append(data)
            self._bell.set()
        self._arrived.append(b"")  # also where it was us who hung up
        self._bell.set()
        self._process.wait()
        self._pumps[1].join(1.0)  # a grandchild may hold stderr open
        with self._lock:
            self._ended = True
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe
                pipe.close()

    def _pump_stderr(self, descriptor: int) -> None:
        while data := os.read(descriptor, READ_BYTES):
            self._stderr = (self._stderr + data)[-STDERR_KEPT_BYTES:]
        assert self._process.stderr
        self._process.stderr.close()

    def await_word(self, limit_s: float) -> None:
        """Until the command has begun to speak, or has ended, but no longer than that."""
        deadline = time.monotonic() + limit_s
        self._bell.clear()
        while not self._arrived and (left_s := deadline - time.monotonic()) > 0:
            self._bell.wait(left_s)
            self._bell.clear()

    def read_some(self) -> bytes | None:
        if not self._arrived:
            return None
        if self._arrived[0] == b"":
            return b""
        self._room.release()
        return self._arrived.popleft()

    def write(self, data: bytes) -> None:
        view, free = memoryview(data), select.poll()
        free.register(self._stdin, select.POLLOUT)
        while view:
            if not free.poll(WRITE_TIMEOUT_S * 1000):
                raise TimeoutError(f"nothing was taken for {WRITE_TIMEOUT_S:.0f} s")
            with self._lock:
                if self._ended:
                    raise Closed("the other end has hung up")
                try:
                    view = view[os.write(self._stdin, view[:READ_BYTES]) :]
                except BlockingIOError:
                    continue
                except BrokenPipeError as error:
                    raise Closed("the other end has hung up") from error

    def end_input(self) -> None:
        with self._lock:
            if not self._ended and self._process.stdin:
                self._process.stdin.close()

    def complaint(self) -> str:
        self._pumps[1].join(0.5)
        return self._stderr.decode("utf-8", "replace").strip()

    def exit_status(self) -> int | None:
        try:
            return self._process.wait(0.5)
        except subprocess.TimeoutExpired:
            return None

    def close(self) -> None:
        self._hung_up = True
        self._process.terminate()
        self._room.release()  # the pump may wait for somebody to read

    def kill(self) -> None:
        """For a child that does not end when told to."""
        self._process.kill()
        self._process.wait()
