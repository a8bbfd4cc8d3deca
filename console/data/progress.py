"""How far a long reading is: one line on the terminal that is written over, and gone at the end."""

from __future__ import annotations

import sys
import time

from console.format import UNKNOWN, count, duration, rate, share, used_of

EVERY_S = 0.2
QUIET_S = 1.0
"""A reading that is over by then needs no progress."""


class Progress:
    """On standard error, and only where that is a terminal."""

    def __init__(self) -> None:
        self.total_bytes = 0
        self._start_s = time.monotonic()
        self._last_s = 0.0
        self._shown = False
        self._on = sys.stderr.isatty()

    def show(self, done_bytes: int, rows: int) -> None:
        now = time.monotonic()
        took = now - self._start_s
        if not self._on or took < QUIET_S or now - self._last_s < EVERY_S:
            return
        self._last_s, self._shown = now, True
        print(f"\r\x1b[K{line(done_bytes, self.total_bytes, rows, took)}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Makes room for a line of output."""
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._shown = False


def line(done_bytes: int, total_bytes: int, rows: int, took_s: float) -> str:
    """`34%  1.2/3.5 GiB  48 MiB/s  ETA 45 s  123 456 rows`; no ETA where nothing is known yet."""
    pace = done_bytes / took_s if done_bytes and took_s else None
    left = duration((total_bytes - done_bytes) / pace) if pace else UNKNOWN
    return "  ".join(
        (
            share(done_bytes, total_bytes),
            used_of(done_bytes, total_bytes),
            rate(pace),
            f"ETA {left}",
            f"{count(rows)} rows",
        )
    )
