"""A child made by fork before there are threads: what the daemon has loaded is shared with it, not loaded again."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from agent import codec

POLL_S = 0.05
ARG_START, ARG_END = 47, 48
"""Of /proc/PID/stat, proc(5), counted from 0"""

Work = Callable[[BinaryIO, BinaryIO], int]


class Forked:
    """As far as the probe needs it, what asyncio's Process is: pid, stdin, stdout, returncode, kill, wait."""

    def __init__(self, work: Work, was: bytes, name: bytes) -> None:
        """`work` reads what it is asked and writes what it tells; `was` in the command line becomes `name`.

        Raises OSError. To be called before any thread or event loop exists, and before locks are held.
        """
        self.near, far = socket.socketpair()
        gc.collect()
        gc.freeze()  # a later collection would write into every shared page
        self.pid = os.fork()
        if self.pid == 0:
            self.near.close()
            os._exit(begin(work, far, was, name))
        far.close()
        self.ended: int | None = None
        self.stdin: asyncio.StreamWriter | None = None
        self.stdout: asyncio.StreamReader | None = None

    async def connect(self) -> None:
        self.stdout, self.stdin = await asyncio.open_connection(sock=self.near, limit=codec.LINE_LIMIT_BYTES)

    @property
    def returncode(self) -> int | None:
        if self.ended is None:
            try:
                gone, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                gone, status = self.pid, 0
            self.ended = os.waitstatus_to_exitcode(status) if gone else None
        return self.ended

    def kill(self) -> None:
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)

    async def wait(self) -> int:
        while (code := self.returncode) is None:
            await asyncio.sleep(POLL_S)
        return code


def begin(work: Work, far: socket.socket, was: bytes, name: bytes) -> int:
    """In the child: nothing of the daemon's but its memory."""
    os.setsid()
    os.chdir("/")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for handle in range(3):
        os.dup2(nowhere, handle)  # whoever started the daemon reads its stderr to the end
    rename(was, name)
    with far, far.makefile("rb") as asked, far.makefile("wb") as told:
        return work(asked, told)


def rename(was: bytes, name: bytes) -> None:
    """What `ps` shows, so that nobody takes the child for a second daemon. Names are of one length."""
    if len(was) != len(name):
        raise ValueError(f"{name!r} does not fit into the place of {was!r}")
    fields = Path("/proc/self/stat").read_text().split()
    start, end = int(fields[ARG_START]), int(fields[ARG_END])
    at = ctypes.string_at(start, end - start).rfind(was) if 0 < start < end else -1
    if at >= 0:
        ctypes.memmove(start + at, name, len(name))
