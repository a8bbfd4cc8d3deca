"""In which encoding a file is written, found from its bytes before the first row is read."""

from __future__ import annotations

import codecs
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO

from jobs.data.extra import library

CHUNK_BYTES = 1 << 20
SAMPLE_BYTES = 256 * 1024
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# what training data is found in besides Unicode; the detector is not let loose on a hundred code pages
_LEGACY = ["gb18030", "big5", "shift_jis", "euc_jp", "euc_kr", "cp1251", "cp1252", "latin_1"]


@dataclass(frozen=True, slots=True)
class Charset:
    """`name` is Python's; `mark_bytes` is the length of the byte order mark; `newline` is the first that is met."""

    name: str
    mark_bytes: int = 0
    newline: str = "\n"

    @property
    def wide(self) -> bool:
        """Whether a newline is more than one byte, so that lines cannot be cut before decoding."""
        return self.name.startswith(("utf-16", "utf-32"))


def of(stream: BinaryIO, named: str | None = None) -> Charset:
    """The encoding of a whole file; reads up to the first byte beyond ASCII. `named`: the user says what it is."""
    head = stream.read(CHUNK_BYTES)
    for mark, name in _MARKS:
        if head.startswith(mark):
            return Charset(name, len(mark), _newline(head.decode(name, "replace")))
    name = named or _wide(head) or _narrow(stream, head)
    return Charset(name, 0, _newline(head.decode(name, "replace")))


def _newline(head: str) -> str:
    first = head.find("\n")
    if first < 0:
        return "\r" if "\r" in head else "\n"
    return "\r\n" if head[first - 1 : first] == "\r" else "\n"


def _wide(head: bytes) -> str | None:
    """UTF-16 without its mark: in text that has any ASCII, every other byte of that is zero."""
    sample = head[:4096]
    even, odd = sample[::2].count(0), sample[1::2].count(0)
    if max(even, odd) < max(4, len(sample) // 16):
        return None
    return "utf-16-le" if odd > even else "utf-16-be"


def _narrow(stream: BinaryIO, head: bytes) -> str:
    chunk = head
    while chunk and chunk.isascii():
        chunk = stream.read(CHUNK_BYTES)
    if not chunk:
        return "utf-8"
    first = next(i for i, byte in enumerate(chunk) if byte > 127) if len(chunk) < 4096 else _first(chunk)
    start = chunk.rfind(b"\n", 0, first) + 1
    sample = chunk[start : start + SAMPLE_BYTES]
    if len(sample) < SAMPLE_BYTES:
        sample += stream.read(SAMPLE_BYTES - len(sample))
    return "utf-8" if _mostly_utf8(sample) else _legacy(sample)


def _first(chunk: bytes) -> int:
    """Index of the first byte beyond ASCII, by halves: a loop over a megabyte would be felt."""
    low, high = 0, len(chunk)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if chunk[low:middle].isascii() else (low, middle)
    return low


def _mostly_utf8(sample: bytes) -> bool:
    """UTF-8 with a few broken bytes is still UTF-8: those rows are reported. Legacy text has hardly a valid one."""
    with suppress(UnicodeDecodeError):
        codecs.getincrementaldecoder("utf-8")("surrogatepass").decode(sample)
        return True
    text = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode(sample)
    escaped = sum(1 for c in text if "\udc80" <= c <= "\udcff")
    return escaped <= sum(1 for c in text if c > "\x7f") - escaped


def _legacy(sample: bytes) -> str:
    detector = library("charset_normalizer", "text that is not UTF-8")
    whole = sample[: sample.rfind(b"\n") + 1] or sample
    best = detector.from_bytes(whole, cp_isolation=_LEGACY).best()
    return str(best.encoding) if best is not None else "latin_1"
