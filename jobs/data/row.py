"""One row as it was read, before anybody asks what it means."""

from __future__ import annotations

from typing import Any, NamedTuple

ROW_LIMIT_CHARS = 16 * 1024 * 1024
"""A row beyond this is no training example but a missing quote or a file without line ends; it bounds the memory."""


class Fault(Exception):
    """Why a row cannot be used: `kind` is one word for counting, `reason` is for people."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind, self.reason = kind, reason


# a tuple, because millions are made and a frozen dataclass takes twice as long
class Row(NamedTuple):
    """`place`: the line where the row begins, counted from 1; in files without lines, the number of the row.

    `repairs`: what was put right on reading. `fault`: why there is no value.
    """

    place: int
    value: Any = None
    repairs: tuple[str, ...] = ()
    fault: Fault | None = None
