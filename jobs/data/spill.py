"""Which rows belong together by their digests, for any number of rows: what does not fit in memory goes to disk.

Records are spread over partitions by their first byte, so that equal digests meet; one partition is looked at a time.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

MEMORY_BYTES = 16 * 1024 * 1024
PARTITIONS = 256
_RECORD = struct.Struct(">16s8sIQ")


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where a row stands: the number of its file, and its line or row there."""

    file: int
    place: int


Member = tuple[bytes, Place]


class Spill:
    """Add digests, then go through the groups in the order of their keys. Use as a context: it may own a folder."""

    def __init__(self, memory_bytes: int = MEMORY_BYTES) -> None:
        self._memory_bytes, self._held_bytes = memory_bytes, 0
        self._parts = [bytearray() for _number in range(PARTITIONS)]
        self._folder: TemporaryDirectory[str] | None = None

    def __enter__(self) -> Spill:
        return self

    def __exit__(self, *_left: object) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    def add(self, key: bytes, detail: bytes, file: int, place: int) -> None:
        """`key`: 16 bytes by which rows are grouped; `detail`: 8 bytes that come back with the row."""
        self._parts[key[0]] += _RECORD.pack(key, detail, file, place)
        self._held_bytes += _RECORD.size
        if self._held_bytes >= self._memory_bytes:
            self._write()

    def in_order(self) -> Iterator[bytes]:
        """All keys in ascending order, each as often as it was added."""
        for number in range(PARTITIONS):
            yield from sorted(record[0] for record in _RECORD.iter_unpack(self._content(number)))

    def groups(self) -> Iterator[tuple[bytes, list[Member]]]:
        """Keys that more than one row has, with those rows in order."""
        for number in range(PARTITIONS):
            content = self._content(number)
            seen: set[bytes] = set()
            again: dict[bytes, list[Member]] = {}
            for key, _detail, _file, _place in _RECORD.iter_unpack(content):
                if key in seen:
                    again.setdefault(key, [])
                seen.add(key)
            if not again:
                continue
            for key, detail, file, place in _RECORD.iter_unpack(content):
                if key in again:
                    again[key].append((detail, Place(file, place)))
            yield from sorted(again.items())

    def _content(self, number: int) -> bytes:
        written = b""
        if self._folder is not None:
            path = Path(self._folder.name, f"{number:02x}")
            written = path.read_bytes() if path.exists() else b""
        return written + bytes(self._parts[number])

    def _write(self) -> None:
        if self._folder is None:
            self._folder = TemporaryDirectory(prefix="tunedeck-data-")
        for number, part in enumerate(self._parts):
            if part:
                with Path(self._folder.name, f"{number:02x}").open("ab") as file:
                    file.write(part)
                part.clear()
        self._held_bytes = 0
