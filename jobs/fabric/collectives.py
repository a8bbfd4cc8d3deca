"""Collectives as they are measured everywhere: names, sizes, bandwidths by nccl-tests' definitions, one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from jobs.section import Section

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = "all_reduce", "all_gather", "reduce_scatter"
BROADCAST, ALL_TO_ALL = "broadcast", "all_to_all"
COLLECTIVES = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, ALL_TO_ALL)
ELEMENT_BYTES = 4
"""float32, as nccl-tests has it by default."""
SMALLEST_BYTES = 8
LARGEST_BYTES = 8 << 30
FACTOR = 4
"""From one size to the next."""


def bus_factor(collective: str, ranks: int) -> float:
    """What algorithm bandwidth is multiplied by to compare with the speed of links, whatever the number of ranks.

    nccl-tests, doc/PERFORMANCE.md: 2(n-1)/n for all-reduce, (n-1)/n for all-gather, reduce-scatter and all-to-all, 1
    for broadcast.
    """
    if collective == BROADCAST:
        return 1.0
    share = (ranks - 1) / ranks
    return 2 * share if collective == ALL_REDUCE else share


@dataclass(frozen=True, slots=True)
class Bench:
    """What a spec of kind `bench` asks for. `largest_mib` is an upper limit; memory may set a lower one."""

    collectives: tuple[str, ...] = (ALL_REDUCE,)
    largest_mib: int = LARGEST_BYTES >> 20
    repeats: int = 20
    seconds: float = 2.0
    """Of measuring per size; the largest sizes take as many repeats as fit, three at least"""

    @classmethod
    def read(cls, part: Section) -> Bench:
        """Raises SpecError."""
        default = cls()
        named = part.listed("collectives") or default.collectives
        for name in named:
            if name not in COLLECTIVES:
                raise part.wrong("collectives", f"has {name!r}", f"Choose from: {', '.join(COLLECTIVES)}.")
        return cls(
            collectives=tuple(dict.fromkeys(named)),
            largest_mib=part.whole("largest_mib", default.largest_mib, 1, LARGEST_BYTES >> 20),
            repeats=part.whole("repeats", default.repeats, 3, 10_000),
            seconds=part.real("seconds", default.seconds, 0.01, 600),
        )


@dataclass(frozen=True, slots=True)
class Row:
    """One size of one collective. Times in µs, median over the repeats; bandwidths in GB/s, 10⁹ bytes a second.

    `size_bytes` is that of the larger of the buffers of one rank, as nccl-tests counts it. `spread_us`: half the
    distance between the quartiles. `wrong`: elements that did not have the value they must have.
    """

    collective: str
    size_bytes: int
    ranks: int
    time_us: float
    spread_us: float
    wrong: int
    repeats: int

    @property
    def algbw_gb_s(self) -> float:
        return self.size_bytes / self.time_us / 1e3

    @property
    def busbw_gb_s(self) -> float:
        return self.algbw_gb_s * bus_factor(self.collective, self.ranks)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "algbw_gb_s": self.algbw_gb_s, "busbw_gb_s": self.busbw_gb_s}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Row:
        """Raises KeyError, TypeError or ValueError for what is no row."""
        return cls(
            str(record["collective"]),
            int(record["size_bytes"]),
            int(record["ranks"]),
            float(record["time_us"]),
            float(record["spread_us"]),
            int(record["wrong"]),
            int(record["repeats"]),
        )


def sizes(collective: str, ranks: int, largest_bytes: int) -> list[int]:
    """From 8 bytes on, each FACTOR times the one before, whole elements for each rank; the largest at the end."""
    step = ELEMENT_BYTES if collective in (ALL_REDUCE, BROADCAST) else ELEMENT_BYTES * ranks
    wanted = []
    size = SMALLEST_BYTES
    while size < largest_bytes:
        wanted.append(size)
        size *= FACTOR
    whole = [size // step * step for size in (*wanted, largest_bytes)]
    return [size for size in dict.fromkeys(whole) if size > 0]


HEADER = ("COLLECTIVE", "SIZE", "TIME", "SPREAD", "ALGBW", "BUSBW", "BUSBW", "WRONG")
UNITS = ("", "B", "µs", "± µs", "GB/s", "GB/s", "Gb/s", "")


def cells(rows: Sequence[Row]) -> list[list[str]]:
    """The table's cells, one list a row, below HEADER and UNITS."""
    return [
        [
            row.collective,
            str(row.size_bytes),
            figure(row.time_us),
            figure(row.spread_us),
            figure(row.algbw_gb_s),
            figure(row.busbw_gb_s),
            figure(8 * row.busbw_gb_s),
            str(row.wrong),
        ]
        for row in rows
    ]


def figure(value: float) -> str:
    """Three digits that matter, four places below one; never in powers of ten."""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 4
    return f"{value:.{digits}f}"
