"""A text file as lines with numbers, or as chunks, in bounded memory and whatever its encoding."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from jobs.data import charset
from jobs.data.row import ROW_LIMIT_CHARS, Fault
from jobs.failure import JobError

BUFFER_BYTES = 1 << 20
_GZIP = b"\x1f\x8b"


class Line(NamedTuple):
    """`text` without its `end`, which only the last line may lack. `fault`: bytes that are not text."""

    number: int
    text: str
    repairs: tuple[str, ...] = ()
    fault: Fault | None = None
    end: str = "\n"


@contextmanager
def opened(path: Path) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """The content, and the file below whose position says how far one is (they differ where it is compressed)."""
    try:
        raw = cast(io.BufferedReader, path.open("rb", buffering=BUFFER_BYTES))
    except OSError as wrong:
        raise JobError(f"{path} cannot be read: {wrong.strerror}", "Correct the path or its permissions.") from wrong
    with raw:
        if raw.peek(2)[:2] != _GZIP:
            yield raw, raw
            return
        try:
            with gzip.GzipFile(fileobj=raw) as inner:
                yield cast(BinaryIO, inner), raw
        except (EOFError, gzip.BadGzipFile, zlib.error) as wrong:
            raise JobError(f"{path} is not a whole gzip file: {wrong}", "Copy it again.") from wrong


def holds_escaped(text: str) -> bool:
    """Whether bytes are in it that could not be decoded. Encoding is many times faster than searching by pattern."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


class Text:
    """One text file. `charset` says how it is written; `position_bytes` how much of it has been read."""

    def __init__(self, path: Path, encoding: str | None = None) -> None:
        self.path = path
        with opened(path) as (stream, _raw):
            self.charset = charset.of(stream, encoding)
        self._raw: BinaryIO | None = None

    @property
    def position_bytes(self) -> int:
        return 0 if self._raw is None or self._raw.closed else self._raw.tell()

    def head(self, chars: int = 65536) -> str:
        with opened(self.path) as (stream, _raw):
            stream.read(self.charset.mark_bytes)
            decoder = codecs.getincrementaldecoder(self.charset.name)("replace")
            return decoder.decode(stream.read(chars))

    def lines(self) -> Iterator[Line]:
        """Every line. A line beyond the limit for rows comes as a fault, and the next one is found."""
        with opened(self.path) as (stream, self._raw):
            stream.read(self.charset.mark_bytes)
            yield from self._wide(stream) if self.charset.wide or self.charset.newline == "\r" else self._narrow(stream)

    def _narrow(self, stream: BinaryIO) -> Iterator[Line]:
        name, number = self.charset.name, 0
        for raw in iter(partial(stream.readline, ROW_LIMIT_CHARS), b""):
            number += 1
            end = "\r\n" if raw.endswith(b"\r\n") else "\n" if raw.endswith(b"\n") else ""
            if not end and len(raw) == ROW_LIMIT_CHARS:
                yield Line(number, "", fault=_endless())
                while raw and not raw.endswith(b"\n"):
                    raw = stream.readline(ROW_LIMIT_CHARS)
                continue
            try:
                yield Line(number, (raw[: -len(end)] if end else raw).decode(name), (), None, end)
            except UnicodeDecodeError as wrong:
                yield _mended(number, raw[: len(raw) - len(end)], name, wrong)._replace(end=end)

    def _wide(self, stream: BinaryIO) -> Iterator[Line]:
        newline, number = self._cut, 0
        with self._wrapped(stream, "replace") as lines:
            for line in iter(partial(lines.readline, ROW_LIMIT_CHARS), ""):
                number += 1
                if not line.endswith(newline) and len(line) == ROW_LIMIT_CHARS:
                    yield Line(number, "", fault=_endless())
                    while line and not line.endswith(newline):
                        line = lines.readline(ROW_LIMIT_CHARS)
                    continue
                bad = Fault("bad-bytes", f"has bytes that are not {self.charset.name}") if "\ufffd" in line else None
                text = line.rstrip("\r\n")
                yield Line(number, text, (), bad, line[len(text) :])

    @property
    def _cut(self) -> str:
        return "\r" if self.charset.newline == "\r" else "\n"

    def _wrapped(self, stream: BinaryIO, errors: str) -> io.TextIOWrapper:
        return io.TextIOWrapper(cast(io.BufferedReader, stream), self.charset.name, errors, newline=self._cut)

    def plain_lines(self) -> Iterator[str]:
        """Lines with their ends, as fast as Python reads them; bytes that are not text become U+DC80 to U+DCFF.

        A line beyond the limit for rows comes in pieces.
        """
        with opened(self.path) as (stream, self._raw):
            stream.read(self.charset.mark_bytes)
            with self._wrapped(stream, "replace" if self.charset.wide else "surrogateescape") as lines:
                yield from iter(partial(lines.readline, ROW_LIMIT_CHARS), "")

    def chunks(self) -> Iterator[str]:
        """The whole text in pieces; bytes that are not text become lone surrogates U+DC80 to U+DCFF."""
        with opened(self.path) as (stream, self._raw):
            stream.read(self.charset.mark_bytes)
            errors = "replace" if self.charset.wide else "surrogateescape"
            decoder = codecs.getincrementaldecoder(self.charset.name)(errors)
            while raw := stream.read(charset.CHUNK_BYTES):
                yield decoder.decode(raw)
            yield decoder.decode(b"", True)


def _endless() -> Fault:
    return Fault("too-long", f"is longer than {ROW_LIMIT_CHARS // 1024**2} Mi characters")


def _mended(number: int, raw: bytes, name: str, wrong: UnicodeDecodeError) -> Line:
    """Halves of surrogate pairs, each written as UTF-8 (as some exporters do), can be told; other bytes cannot."""
    bad = Fault("bad-bytes", f"byte {wrong.start + 1} of the line (0x{raw[wrong.start]:02x}) is not {name.upper()}")
    if name != "utf-8":
        return Line(number, "", fault=bad)
    try:
        text = raw.decode(name, "surrogatepass")
    except UnicodeDecodeError:
        return Line(number, raw.decode(name, "surrogateescape"), fault=bad)
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return Line(number, joined, ("surrogate halves written one by one were joined",))
