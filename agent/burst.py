"""The same thing over and over is told once, and then how often it came again."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
WINDOW_S = 60.0
MOST_KEYS = 1000


class Burst(Generic[K]):
    """Keys seen within the last window, each with the end of its window and how many were held back in it."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self.window_s = window_s
        self.held: dict[K, tuple[float, int]] = {}

    def admits(self, key: K, now_s: float) -> bool:
        """True: tell it. False: it is counted. `now_s`: monotonic seconds."""
        found = self.held.get(key)
        if found is None and len(self.held) < MOST_KEYS:
            self.held[key] = (now_s + self.window_s, 0)
            return True
        if found is not None:
            self.held[key] = (found[0], found[1] + 1)
        return False

    def over(self, now_s: float) -> Iterator[tuple[K, int]]:
        """Keys whose window has ended with something held back; what still comes opens none, it is counted on."""
        for key, (end_s, count) in list(self.held.items()):
            if now_s < end_s:
                continue
            if count:
                self.held[key] = (now_s + self.window_s, 0)
                yield key, count
            else:
                del self.held[key]
