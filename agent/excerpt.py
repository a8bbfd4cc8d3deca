"""Pieces of a run's files by byte offset: logs as text, progress as records."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from agent import wire
from agent.refusal import Refusal
from jobs import progress
from jobs.run_folder import RunFolder

LIMIT_BYTES = 1 << 19
"""Escaped sixfold in the worst case, still one line on the wire."""


def log(folder: RunFolder, order: wire.Logs) -> dict[str, Any]:
    """Text from a log; whole characters only, so that pieces can be joined. An absent log is empty."""
    if order.rank is not None and order.rank < 0:
        raise Refusal(f"rank {order.rank} does not exist", "Ranks count from 0.")
    path = folder.launcher_log if order.rank is None else folder.rank_log(order.rank)
    found = None if order.line is None else start_of(path, order.line)
    start = order.offset if found is None else found
    block, offset, size = piece(path, start, order.limit_bytes)
    lead = next((i for i, byte in enumerate(block[:4]) if byte & 0xC0 != 0x80), 0) if start < 0 else 0
    block = block[lead : len(block) - unfinished(block)]
    return {
        **({} if order.line is None else {"line": order.line if found is not None else None}),
        "text": block.decode("utf-8", "replace"),
        "offset": offset + lead,
        "next": offset + lead + len(block),
        "size": size,
        "ranks": ranks(folder),
    }


def piece(path: Path, offset: int, limit_bytes: int) -> tuple[bytes, int, int]:
    """(bytes, where they begin, size of the file). Never follows a link."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return b"", 0, 0
    try:
        size = os.fstat(handle).st_size
        start = max(0, size + offset) if offset < 0 else min(offset, size)
        return os.pread(handle, max(0, min(limit_bytes, LIMIT_BYTES)), start), start, size
    finally:
        os.close(handle)


def start_of(path: Path, line: int) -> int | None:
    """The byte at which a line begins; None where there is no such line. Takes a second for each gigabyte before it."""
    offset, left = 0, line - 1
    while left > 0:
        block, _, _ = piece(path, offset, LIMIT_BYTES)
        if not block:
            return None
        here = block.count(b"\n")
        if here >= left:
            at = -1
            for _turn in range(left):
                at = block.index(b"\n", at + 1)
            return offset + at + 1
        offset, left = offset + len(block), left - here
    return offset if line > 0 else None


def unfinished(block: bytes) -> int:
    """How many bytes at the end are the beginning of a character whose rest is not there yet."""
    for back in range(1, min(4, len(block)) + 1):
        byte = block[-back]
        if byte & 0xC0 != 0x80:
            needed = 1 if byte < 0x80 else 2 if byte >> 5 == 0b110 else 3 if byte >> 4 == 0b1110 else 4
            return back if back < needed else 0
    return 0


def ranks(folder: RunFolder) -> list[int]:
    """Ranks that have a log."""
    names = (path.stem.removeprefix("rank-") for path in folder.logs.glob("rank-*.log"))
    return sorted(int(name) for name in names if name.isdecimal())


def records(folder: RunFolder, order: wire.Progress) -> dict[str, Any]:
    limit = max(4096, min(order.limit_bytes, LIMIT_BYTES))
    found, following = progress.records(folder.progress, max(0, order.offset), limit)
    size = folder.progress.stat().st_size if folder.progress.exists() else 0
    return {"records": found, "next": following, "size": size}
