"""What may never be answered is asked aside: on a thread of its own, while whoever looks gets the last answer."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
PATIENCE_S = 0.02
"""So long a new question is waited for: a well machine answers within it, a sick one costs no more."""


class Aside(Generic[T]):
    """Asks `ask` again every `every_s` seconds at the most, and never while an earlier question is open."""

    def __init__(self, ask: Callable[[], T], first: T, every_s: float) -> None:
        self.ask, self.answer, self.every_s = ask, first, every_s
        self.asked_at = -math.inf
        self.thread: threading.Thread | None = None

    def look(self, now_s: float) -> T:
        """The last answer, `first` before there is one. `now_s`: monotonic seconds."""
        if now_s - self.asked_at >= self.every_s and not self.open():
            self.asked_at = now_s
            self.thread = threading.Thread(target=self.put, name="aside", daemon=True)
            self.thread.start()
            self.thread.join(PATIENCE_S)
        return self.answer

    def put(self) -> None:
        self.answer = self.ask()

    def open(self) -> bool:
        return self.thread is not None and self.thread.is_alive()

    def silent_s(self, now_s: float) -> float:
        """For how long a question has been open; 0 while none is."""
        return now_s - self.asked_at if self.open() else 0.0
