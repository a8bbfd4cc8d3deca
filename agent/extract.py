"""A long log as short as triage needs it: its ends and the lines with a known literal, on their own line numbers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from agent.triage import sieve

WHOLE_BYTES = 256 << 10
HEAD_LINES = 200
TAIL_LINES = 1500
AROUND = 3
MOST_MATCHED = 4000
LONGEST = 4096
MOST_LINES = 4_000_000
"""Lines left out stay as empty ones, so that a quoted number leads to its place in the whole log; they pack to nothing.
A log of more lines than this is told by its end only."""


def extract(path: Path, literals: Sequence[str]) -> bytes:
    """The bytes of a short file; of a long one its lines at their numbers, most of them empty. Raises OSError."""
    if path.stat().st_size <= WHOLE_BYTES:
        return path.read_bytes()
    count = lines_in(path)
    if count > MOST_LINES:
        return tail(path, WHOLE_BYTES)
    wanted = set(range(1, HEAD_LINES + 1)) | set(range(count - TAIL_LINES, count + 1))
    matched = [number for _, number, _ in sieve.matching([path], literals)]
    for number in matched[: MOST_MATCHED // 2] + matched[-MOST_MATCHED // 2 :]:
        wanted.update(range(number - AROUND, number + AROUND + 1))
    with path.open("rb") as stream:
        return b"\n".join(
            line.rstrip(b"\n")[:LONGEST] if number in wanted else b"" for number, line in enumerate(stream, 1)
        )


def tail(path: Path, most_bytes: int) -> bytes:
    """Its last bytes. Raises OSError."""
    with path.open("rb") as stream:
        stream.seek(max(0, stream.seek(0, os.SEEK_END) - most_bytes))
        return stream.read()


def lines_in(path: Path) -> int:
    with path.open("rb") as stream:
        return sum(block.count(b"\n") for block in iter(lambda: stream.read(1 << 20), b""))
