"""What a check has to say about one row."""

from __future__ import annotations

from dataclasses import dataclass

REJECTED, REPAIRED, NOTICED = "rejected", "repaired", "noticed"


@dataclass(frozen=True, slots=True)
class Finding:
    """`level`: rejected (cannot be trained on), repaired (put right on reading) or noticed (usable, but look at it).

    `place` is a line, or a row in files without lines, as `unit` says; 0 is the file as a whole.
    """

    level: str
    kind: str
    reason: str
    file: str
    place: int
    unit: str = "line"

    def __str__(self) -> str:
        where = f"{self.file}:{self.place}" if self.unit == "line" else f"{self.file}, row {self.place}"
        return f"{where if self.place else self.file}: {self.reason}"
