"""Search of gigabytes: only lines that hold one of the known literals, and the ends of each file, are read in Python.

`grep -F` does the search where it is there (it is some thirty times faster than the interpreter); otherwise chunks of
bytes are searched literal by literal.
"""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

HEAD_LINES = 20  # first lines of a large file that are read whatever they say: launch command, versions
TAIL_BYTES = 6_144  # last bytes likewise: a file's end is where a dead process speaks
MOST_LINES = 20_000  # matching lines kept of one file


def ends(path: Path) -> Iterator[tuple[int, bytes]]:
    """Numbered first and last lines of a file."""
    size = path.stat().st_size
    if not size:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        number, start = 0, 0
        while number < HEAD_LINES and start < size:
            end = view.find(b"\n", start, start + 65_536)
            end = end if end >= 0 else min(size, start + 65_536)
            number += 1
            yield number, view[start:end]
            start = end + 1
        tail = max(start, size - TAIL_BYTES)
        if tail >= size:
            return
        number += _newlines(view, start, tail)
        begin = view.find(b"\n", tail) + 1 if tail > start else tail
        if tail > start and begin:
            number += 1
        for extra, line in enumerate(view[begin:size].split(b"\n")):
            yield number + 1 + extra, line


def _newlines(view: mmap.mmap, start: int, end: int) -> int:
    step = 1 << 24
    return sum(view[at : min(end, at + step)].count(b"\n") for at in range(start, end, step))


def matching(paths: Sequence[Path], literals: Sequence[str]) -> Iterator[tuple[Path, int, bytes]]:
    """Numbered lines of `paths` that hold a literal, file by file in the order given."""
    program = shutil.which("grep")
    if program is None:
        yield from _without_grep(paths, literals)
        return
    with tempfile.NamedTemporaryFile("wb", prefix="tunedeck-literals-") as wanted:
        wanted.write("\n".join(literals).encode() + b"\n")
        wanted.flush()
        command = [program, "-naHF", "--null", f"-m{MOST_LINES}", "-f", wanted.name, "--"]
        for some in _batches(paths):
            yield from _grep([*command, *map(os.fspath, some)])


def _batches(paths: Sequence[Path], size: int = 512) -> Iterator[Sequence[Path]]:
    for start in range(0, len(paths), size):
        yield paths[start : start + size]


def _grep(command: list[str]) -> Iterator[tuple[Path, int, bytes]]:
    environment = {**os.environ, "LC_ALL": "C"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment) as process:
        assert process.stdout is not None
        name, path = b"", Path()
        for raw in process.stdout:
            found, _, rest = raw.partition(b"\0")
            number, _, line = rest.partition(b":")
            if found != name:
                name, path = found, Path(os.fsdecode(found))
            if number.isdigit():
                yield path, int(number), line.rstrip(b"\n")


def _without_grep(paths: Iterable[Path], literals: Sequence[str]) -> Iterator[tuple[Path, int, bytes]]:
    wanted = [literal.encode() for literal in literals]
    for path in paths:
        with path.open("rb") as file:
            for number, line in sift(enumerate(file, 1), wanted):
                yield path, number, line


def sift(lines: Iterable[tuple[int, bytes]], wanted: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
    """The lines that hold one of the wanted bytes, at most `MOST_LINES`."""
    kept = 0
    for number, line in lines:
        if any(w in line for w in wanted):
            kept += 1
            if kept > MOST_LINES:
                return
            yield number, line.rstrip(b"\n")
