"""Whatever the operator has → named byte streams: folders, files, gzip, zstd, tar, standard input, journal exports.

Nothing is ever written under a name from an archive, so a member called ../../x is only a name. Everything is bounded:
expanded bytes, members, nesting, length of a line.
"""

from __future__ import annotations

import gzip
import importlib
import importlib.util
import io
import lzma
import os
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, cast

MOST_EXPANDED = 2 << 30  # bytes unpacked from all archives of one incident
MOST_MEMBERS = 20_000
DEEPEST = 3  # archives in archives
LONGEST = 65_536  # bytes of one line; the rest of the line is skipped
CHUNK = 1 << 20
DAMAGED = (tarfile.TarError, OSError, EOFError, zlib.error, lzma.LZMAError, ValueError)
DUMP_BYTES = 64 << 20  # largest flight recorder or RAS dump read whole
SKIPPED = (".png", ".jpg", ".jpeg", ".gif", ".pdf", ".so", ".pyc", ".pt", ".bin", ".safetensors", ".whl", ".mp4",
           ".py", ".ipynb", "/faults.yaml",
           ".parquet", ".arrow", ".npy", ".npz", ".idx", ".onnx", ".gguf")  # fmt: skip
RUN_FOLDER = {"spec.yaml", "train.py"}
NOT_TOLD = ("jobs", "configs", "snapshots", "output", "exports", "__pycache__")  # of a run folder: code and weights
PACKED = (".gz", ".tgz", ".zst", ".zstd", ".xz", ".tar")


class SourceError(OSError):
    """A path that cannot be read at all: says which and what to do."""


@dataclass(slots=True)
class Budget:
    """What may still be unpacked, and what was left out."""

    expanded: int = field(default_factory=lambda: MOST_EXPANDED)
    members: int = MOST_MEMBERS
    notes: list[str] = field(default_factory=list)

    def take(self, amount: int, name: str) -> bool:
        """Whether `amount` more bytes may be unpacked; the refusal is noted once."""
        if self.expanded <= 0:
            return False
        self.expanded -= amount
        if self.expanded <= 0:
            self.notes.append(f"{name}: archives hold more than {MOST_EXPANDED >> 30} GiB; the rest was not read")
        return True


def files(paths: list[Path], budget: Budget) -> Iterator[tuple[str, Path]]:
    """Regular files below the given paths, with the name to show, relative to the folder. Links are not followed."""
    for path in paths:
        if path.is_dir():
            yield from _walk(path, budget)
        elif path.is_file():
            yield path.name, path
        elif path.exists():
            raise SourceError(f"{path}: neither a file nor a folder; give a folder, a log or an archive")
        else:
            raise SourceError(f"{path}: not found; give a folder, a log or an archive, or - for standard input")


def _walk(folder: Path, budget: Budget) -> Iterator[tuple[str, Path]]:
    for base, folders, names in os.walk(folder, onerror=lambda e: budget.notes.append(f"{e.filename}: {e.strerror}")):
        if set(names) >= RUN_FOLDER:
            folders[:] = [one for one in folders if one not in NOT_TOLD]
        folders.sort()
        for name in sorted(names):
            path = Path(base, name)
            if path.is_symlink() or not path.is_file():
                continue
            budget.members -= 1
            if budget.members < 0:
                budget.notes.append(f"{folder}: more than {MOST_MEMBERS} files; the rest was not read")
                return
            yield path.relative_to(folder).as_posix(), path


def binary(name: str, head: bytes) -> bool:
    """Whether a file is none of the texts and dumps that triage reads."""
    return name.lower().endswith(SKIPPED) or (
        b"\0" in head and head[:1] != b"\x80" and head[:2] not in (b"\xff\xfe", b"\xfe\xff")
    )


def dumplike(head: bytes) -> bool:
    """A pickle, or JSON that is a dump of the flight recorder or of RAS."""
    return head[:1] == b"\x80" or (
        head.lstrip()[:1] == b"{" and (b'"entries"' in head or b'"communicators' in head or b'"missing_ranks' in head)
    )


def packed(name: str) -> bool:
    return name.lower().endswith(PACKED)


def unpack(name: str, stream: IO[bytes], budget: Budget, depth: int = 0) -> Iterator[tuple[str, IO[bytes]]]:
    """The members of an archive or the content of a compressed file, each as a stream to be read before the next."""
    lower = name.lower()
    if depth > DEEPEST:
        budget.notes.append(f"{name}: archives nested deeper than {DEEPEST}; not read")
        return
    try:
        if lower.endswith((".tar", ".tgz")):
            yield from _members(name, stream, budget, depth)
        elif lower.endswith(PACKED):
            inner = name.rpartition(".")[0]
            with _decompressed(lower, stream) as plain:
                if inner.lower().endswith(".tar"):
                    yield from _members(inner, plain, budget, depth)
                else:
                    yield inner, cast("IO[bytes]", Tolerant(name, plain, budget))
        else:
            yield name, stream
    except DAMAGED as error:
        budget.notes.append(f"{name}: damaged or not what its name says ({error}); read as far as possible")


def _members(name: str, stream: IO[bytes], budget: Budget, depth: int) -> Iterator[tuple[str, IO[bytes]]]:
    with tarfile.open(fileobj=stream, mode="r|*") as archive:
        for member in archive:
            budget.members -= 1
            if budget.members < 0 or budget.expanded <= 0:
                budget.notes.append(f"{name}: too many members; the rest was not read")
                return
            inside = archive.extractfile(member) if member.isreg() else None
            if inside is not None:
                shown = f"{name}/{member.name.lstrip('/')}".replace("/../", "/").replace("\n", " ")
                whole = cast("IO[bytes]", Tolerant(shown, inside, budget)) if not packed(shown) else inside
                yield from unpack(shown, whole, budget, depth + 1)


@contextmanager
def _decompressed(lower: str, stream: IO[bytes]) -> Iterator[IO[bytes]]:
    if lower.endswith((".gz", ".tgz")):
        with gzip.GzipFile(fileobj=stream) as unzipped:
            yield cast("IO[bytes]", unzipped)
    elif lower.endswith(".xz"):
        with lzma.LZMAFile(stream) as unpressed:
            yield unpressed
    else:
        with _zstd(stream) as plain:
            yield plain


@contextmanager
def _zstd(stream: IO[bytes]) -> Iterator[IO[bytes]]:
    """zstd by the zstandard package where installed, else by its own program: Python before 3.14 has no reader."""
    if importlib.util.find_spec("zstandard") is not None:
        library = importlib.import_module("zstandard")
        with library.ZstdDecompressor().stream_reader(stream, read_across_frames=True) as reader:
            yield io.BufferedReader(reader)
        return
    program = shutil.which("zstd")
    if program is None:
        raise ValueError("zstd is not installed here; unpack the file first, or install zstd")
    with subprocess.Popen([program, "-dcq", "-M512MB"], stdin=_descriptor(stream), stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL) as process:  # fmt: skip
        assert process.stdout is not None
        try:
            yield process.stdout
        finally:
            process.stdout.close()
            process.kill()


def _descriptor(stream: IO[bytes]) -> IO[bytes]:
    """A stream with a file descriptor that holds the same bytes: itself, or an unnamed copy on disk."""
    try:
        stream.fileno()
        return stream
    except (OSError, AttributeError, io.UnsupportedOperation):
        copy: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed with the last reference, as it has no name
        remaining = MOST_EXPANDED
        while remaining > 0 and (chunk := stream.read(1 << 20)):
            copy.write(chunk)
            remaining -= len(chunk)
        copy.seek(0)
        return copy


def numbered(stream: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Numbered lines of a stream, long ones cut."""
    number, fresh = 0, True
    while raw := stream.readline(LONGEST):
        if fresh:
            number += 1
            yield number, raw.rstrip(b"\n")
        fresh = raw.endswith(b"\n")


def fill(stream: IO[bytes], size: int) -> bytes:
    """Up to `size` bytes, also from a pipe that gives them piece by piece."""
    parts, left = [], size
    while left > 0 and (part := stream.read(min(left, CHUNK))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


@contextmanager
def spooled(name: str, start: bytes, rest: IO[bytes], budget: Budget) -> Iterator[Path]:
    """A temporary file with the bytes already read and the rest of the stream, within the budget."""
    with tempfile.NamedTemporaryFile("wb", prefix="tunedeck-triage-") as file:
        file.write(start)
        while (part := rest.read(CHUNK)) and budget.take(len(part), name):
            file.write(part)
        file.flush()
        yield Path(file.name)


class Tolerant:
    """A stream that ends where its archive is damaged, with a note, instead of raising."""

    def __init__(self, name: str, stream: IO[bytes], budget: Budget) -> None:
        self._name, self._stream, self._budget = name, stream, budget

    def read(self, size: int = -1) -> bytes:
        try:
            return self._stream.read(size)
        except DAMAGED as error:
            self._budget.notes.append(f"{self._name}: damaged ({error}); read as far as possible")
            return b""
