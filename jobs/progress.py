"""What a run says about itself: one JSON object a line, written by rank 0, read by anyone at any time."""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import Any

from jobs.durable import DISK_FULL, FILE_MODE

_TAIL_BYTES = 65536


def plain(value: Any) -> Any:
    """The value as strict JSON can hold it: NaN and the infinities become ``"nan"``, ``"inf"``, ``"-inf"``."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return value


class Progress:
    """Appends records to one file. Each is a single write, so a reader sees whole lines or the head of the last one."""

    def __init__(self, path: Path) -> None:
        """Opens or continues `path`; the branch goes on as the last record there has it."""
        self._handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        self._lost = 0
        self._end_half_line()
        self.branch = self._last_branch()

    def _end_half_line(self) -> None:
        """A writer that died mid-line must not spoil the first record of the next one."""
        size = os.fstat(self._handle).st_size
        if size and os.pread(self._handle, 1, size - 1) != b"\n":
            os.write(self._handle, b"\n")

    def _last_branch(self) -> int:
        size = os.fstat(self._handle).st_size
        tail = os.pread(self._handle, _TAIL_BYTES, max(0, size - _TAIL_BYTES))
        found = (_parsed(line) for line in reversed(tail.splitlines()))
        return next((int(record["branch"]) for record in found if record and "branch" in record), 0)

    def write(self, kind: str, **fields: Any) -> None:
        """Appends one record. On a full disk it is counted as lost, and that is said as soon as there is room."""
        record = {"kind": kind, "time_unix": round(time.time(), 6), "branch": self.branch, **fields}
        line = json.dumps(plain(record), allow_nan=False, separators=(",", ":")) + "\n"
        try:
            if self._lost:
                self._end_half_line()
            os.write(self._handle, line.encode())
        except OSError as wrong:
            if wrong.errno not in DISK_FULL:
                raise
            self._lost += 1
            return
        if self._lost:
            lost, self._lost = self._lost, 0
            self.write("warning", message=f"{lost} records were lost while the disk was full")

    def close(self) -> None:
        os.close(self._handle)


def records(path: Path, offset: int = 0, limit_bytes: int = 1 << 20) -> tuple[list[dict[str, Any]], int]:
    """Whole records from byte `offset` on, and the offset to continue from. An absent file is an empty one.

    Never returns half a line; lines that are no JSON object are passed over. A file that became shorter than
    `offset` is read again from its start.
    """
    try:
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            start = offset if offset <= size else 0
            stream.seek(start)
            block = stream.read(limit_bytes)
            if b"\n" not in block and len(block) == limit_bytes:  # one line longer than the limit
                block += stream.readline()
    except FileNotFoundError:
        return [], 0
    whole = block[: block.rfind(b"\n") + 1]
    return [record for line in whole.splitlines() if (record := _parsed(line)) is not None], start + len(whole)


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
