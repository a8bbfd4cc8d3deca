"""Rows that are almost the same: MinHash signatures in bands, by datasketch, in bounded memory.

Two rows whose word triples overlap in a share s agree in at least one of 16 bands of 4 values with probability
1 - (1 - s^4)^16: 0.9998 at 0.8. Each such pair is then judged by all 64 values, which estimate s within 0.06.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Iterator
from tempfile import TemporaryFile
from typing import Any

from jobs.data.example import Example
from jobs.data.extra import library
from jobs.data.spill import Place, Spill

SHARE = 0.85
VALUES, BAND = 64, 4
SIGNATURE_BYTES = VALUES * 4
SHINGLE = 3
_WORD = re.compile(r"[぀-ヿ㐀-鿿가-힯]|\w+")


class Near:
    """`share`: overlap of word triples (Jaccard) from which two rows count as almost the same."""

    def __init__(self, share: float = SHARE) -> None:
        self.share = share
        sketch = library("datasketch", "the search for near-duplicates")
        self._hash: Any = sketch.MinHash(num_perm=VALUES, seed=1, hashfunc=zlib.crc32)
        self._bands = Spill()
        self._signatures = TemporaryFile(prefix="tunedeck-near-")  # noqa: SIM115
        self._count = 0

    def __enter__(self) -> Near:
        return self

    def __exit__(self, *_left: object) -> None:
        self._bands.__exit__()
        self._signatures.close()

    def add(self, example: Example, file: int, place: int) -> None:
        """Raises JobError when datasketch is not installed."""
        words = _WORD.findall(unicodedata.normalize("NFKC", example.flow()).lower())
        if len(words) < 2 * SHINGLE:
            return  # two short texts overlap by chance
        triples = {" ".join(words[i : i + SHINGLE]).encode() for i in range(len(words) - SHINGLE + 1)}
        self._hash.clear()
        self._hash.update_batch(list(triples))
        values = self._hash.hashvalues.astype(">u4").tobytes()
        self._signatures.write(values)
        row = self._count.to_bytes(8, "big")
        for band in range(0, VALUES, BAND):
            part = values[band * 4 : (band + BAND) * 4]
            key = bytes((part[3] ^ part[7] ^ band,)) + part[:15]
            self._bands.add(key, row, file, place)
        self._count += 1

    def pairs(self) -> Iterator[tuple[Place, Place, float]]:
        """(later row, the earlier one it resembles, estimated share), each later row once or a few times."""
        last: dict[Place, Place] = {}
        for _key, members in self._bands.groups():
            first_row, first = members[0]
            for row, place in members[1:]:
                if last.get(place) == first:
                    continue
                alike = self._alike(first_row, row)
                if alike >= self.share:
                    if len(last) > 1_000_000:
                        last.clear()
                    last[place] = first
                    yield place, first, alike

    def _alike(self, one: bytes, other: bytes) -> float:
        a, b = self._signature(one), self._signature(other)
        return sum(a[i : i + 4] == b[i : i + 4] for i in range(0, SIGNATURE_BYTES, 4)) / VALUES

    def _signature(self, row: bytes) -> bytes:
        self._signatures.seek(int.from_bytes(row, "big") * SIGNATURE_BYTES)
        return self._signatures.read(SIGNATURE_BYTES)
