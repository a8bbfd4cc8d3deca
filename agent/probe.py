"""The child that reads the GPUs, and the daemon's side of it: it asks, waits so long and no longer, and goes on."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import BinaryIO

from agent import codec
from agent.forked import Forked
from agent.gpu import Nvml, Sample
from agent.reexec import command, environment
from agent.xids import Xid

DEADLINE_S = 5.0
"""Far above the 0.4 s a cold nvidia-smi takes; a driver slower than this is not answering."""
RETRY_S = 30.0
FRESH_S = 3.0
END_S = 1.0


def follow(asked: BinaryIO, told: BinaryIO) -> int:
    """The child: one sample for each line asked, until nobody asks any more."""
    nvml = Nvml()
    while asked.readline():
        told.write(codec.encode(nvml.sample()))
        told.flush()
    return 0


class Probe:
    """The latest sample, read by a child process.

    A child that misses the deadline is killed and left; while one that was left still exists (it waits in the kernel
    and cannot be killed) no other is started: a second one would only wait beside it.
    """

    def __init__(
        self,
        deadline_s: float = DEADLINE_S,
        retry_s: float = RETRY_S,
        child: Sequence[str] = (),
        first: Forked | None = None,
    ) -> None:
        self.deadline_s, self.retry_s, self.first = deadline_s, retry_s, first
        self.command = list(child) or command("probe", "--follow")
        self.sample = Sample()
        self.heard: deque[Xid] = deque()
        self.read_at: float | None = None
        self.stuck = ""
        self.child: asyncio.subprocess.Process | Forked | None = None
        self.left: asyncio.subprocess.Process | Forked | None = None
        self.not_before = 0.0
        self.asking = asyncio.Lock()

    @property
    def age_s(self) -> float | None:
        """Seconds since the figures were read; 0 while they come in time, so that an idle node has nothing to send."""
        if self.read_at is None or not self.sample.gpus:
            return None
        age = time.monotonic() - self.read_at
        return 0.0 if age < FRESH_S else float(int(age))

    @property
    def note(self) -> str:
        return self.stuck or self.sample.note

    async def refresh(self) -> None:
        """Asks once; whoever else asks meanwhile waits for his turn. Takes `deadline_s` at the most."""
        async with self.asking:
            await self.ask_once()

    async def ask_once(self) -> None:
        now = time.monotonic()
        if now < self.not_before or self.waiting_for_left():
            return
        try:
            line = await asyncio.wait_for(self.ask(), self.deadline_s)
            self.take(codec.unpack(Sample, codec.parse(line)))
        except asyncio.TimeoutError:
            await self.abandon()
        except (OSError, codec.Malformed, EOFError, ValueError) as error:
            self.stuck = f"the GPU probe failed: {error}"
            await self.close()
            self.not_before = now + self.retry_s

    async def ask(self) -> bytes:
        if self.child is None or self.child.returncode is not None:
            self.child = await self.begin()
        assert self.child.stdin is not None and self.child.stdout is not None
        self.child.stdin.write(b"\n")
        await self.child.stdin.drain()
        line = await self.child.stdout.readline()
        if not line.endswith(b"\n"):
            raise EOFError("the probe ended without an answer")
        return line

    async def begin(self) -> asyncio.subprocess.Process | Forked:
        """The one forked in good time, else one that starts anew: a daemon with threads must not fork."""
        first, self.first = self.first, None
        if first is not None:
            await first.connect()
            return first
        return await asyncio.create_subprocess_exec(
            *self.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=codec.LINE_LIMIT_BYTES,
            env=environment(),
            cwd="/",
            start_new_session=True,
        )

    def take(self, sample: Sample) -> None:
        self.sample, self.stuck, self.read_at = sample, "", time.monotonic()
        self.heard += sample.xids
        if not sample.gpus:
            self.not_before = self.read_at + self.retry_s
            if self.child is not None and self.child.stdin is not None:
                self.child.stdin.close()  # 10 MB for nothing: it ends, and a new one looks again later

    def taken_xids(self) -> list[Xid]:
        """Those heard of since this was last asked. On any one thread."""
        return [self.heard.popleft() for _one in range(len(self.heard))]

    def waiting_for_left(self) -> bool:
        if self.left is None or self.left.returncode is not None:
            self.left = None
            return False
        waited = time.monotonic() - (self.read_at or 0.0)
        since = f" for {int(waited)} s" if self.read_at is not None else ""
        self.stuck = f"NVML does not answer{since}: a call is stuck in the driver (pid {self.left.pid})"
        return True

    async def abandon(self) -> None:
        self.left, self.child = self.child, None
        self.stuck = f"NVML did not answer within {self.deadline_s:.0f} s"
        self.not_before = time.monotonic() + self.deadline_s
        if self.left is not None and self.left.returncode is None:
            self.left.kill()
            await asyncio.wait([asyncio.ensure_future(self.left.wait())], timeout=END_S)

    async def close(self) -> None:
        child, self.child = self.child, None
        if child is not None and child.returncode is None:
            child.kill()
            await asyncio.wait([asyncio.ensure_future(child.wait())], timeout=END_S)


def once() -> Sample:
    """One sample in this process, for a look by hand."""
    return Nvml().sample()


def fork() -> Forked:
    """To be called by the daemon before it has threads, an event loop or a lock. Raises OSError."""
    return Forked(follow, b"serve", b"probe")


def main_follow() -> int:
    return follow(sys.stdin.buffer, sys.stdout.buffer)
