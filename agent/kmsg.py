"""The kernel's log device, read a record at a time and never waited for."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

KMSG = Path("/dev/kmsg")
RECORD_BYTES = 1 << 14
"""The kernel gives a record whole or not at all, and makes none of more than 8 KiB (CONSOLE_EXT_LOG_MAX)."""
MOST = 4096
"""Records a look: a log of any size costs no tick more than some ten milliseconds."""
MOST_LINES = 4 * MOST
"""With the properties that follow a record"""
LONGEST_BYTES = 1 << 16
HEAD = re.compile(rb"\d{1,9},(\d{1,18}),(\d{1,18}),[^;]{0,200};")
"""Documentation/ABI/testing/dev-kmsg: priority,sequence,microseconds,flags;text"""


@dataclass(frozen=True, slots=True)
class Record:
    """One line of the kernel. `sequence` is 0 where the source numbers none; `at_us` counts from boot."""

    sequence: int
    at_us: int
    text: str
    unix_s: float | None = None
    """None where the source has only the kernel's clock, which drifts from the wall's"""


def parse(line: bytes) -> Record | None:
    """None for what is no record: the properties that follow one, half a line, garbage."""
    head = HEAD.match(line)
    if head is None:
        return None
    return Record(int(head[1]), int(head[2]), line[head.end() :].decode("utf-8", "replace"))


class Kmsg:
    """`why` says in words why the device cannot be read."""

    def __init__(self, path: Path = KMSG) -> None:
        self.path, self.why = path, ""
        self.handle: int | None = None
        self.rest = b""

    def open(self, since_unix: float) -> bool:  # noqa: ARG002 - a journal can be asked so, the device cannot
        """Always from the oldest record there is: the device knows no other place than that and the end."""
        try:
            self.handle = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            self.why = f"{self.path}: {error.strerror}"
        return self.handle is not None

    def read(self) -> tuple[list[Record], bool]:
        """What is new, and whether that was all of it. Closed after an error other than a gap in the log."""
        lines: list[bytes] = []
        for _record in range(MOST):
            chunk = self.chunk()
            if chunk is None:
                continue  # a gap: older records were overwritten; the next read goes on with what there is
            if not chunk:
                return parsed(lines), True
            lines += self.whole(chunk)
            if len(lines) >= MOST_LINES:
                break
        return parsed(lines), False

    def chunk(self) -> bytes | None:
        if self.handle is None:
            return b""
        try:
            return os.read(self.handle, RECORD_BYTES)
        except BlockingIOError:
            return b""
        except BrokenPipeError:
            return None
        except OSError as error:
            self.why = f"{self.path}: {error.strerror}"
            self.close()
            return b""

    def whole(self, chunk: bytes) -> list[bytes]:
        """The complete lines so far. The device never gives half a one; a line without end is not kept."""
        *lines, self.rest = (self.rest + chunk).split(b"\n")
        if len(self.rest) > LONGEST_BYTES:
            self.rest = b""
        return lines

    @property
    def alive(self) -> bool:
        return self.handle is not None

    def close(self) -> None:
        handle, self.handle, self.rest = self.handle, None, b""
        if handle is not None:
            os.close(handle)


def parsed(lines: list[bytes]) -> list[Record]:
    return [record for line in lines if (record := parse(line)) is not None]
