"""One thread that gives every live conversation its turn, so that a thousand idle links cost one thread's wake-ups.

What has come is not read at once but together with what comes in the next moment: the longer, the more links there
are. Where somebody waits for an answer nothing is put off. A turn that does not come back (a full pipe to a dead
machine) costs nobody else anything: another thread goes on with the rest.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable

from console.small import start_small

PAUSE_PER_LINK_S = 0.00025
PAUSE_LIMIT_S = 0.25
STUCK_S = 0.5

Turn = Callable[[], "float | None"]
"""Does what there is to do; returns seconds to the next turn if nobody rings before, None when it is over."""


class Seat(threading.Event):
    """One conversation's place, and the bell that asks for its turn. `hasty`: its next ring is not put off."""

    def __init__(self, sweeper: Sweeper, turn: Turn) -> None:
        super().__init__()
        self.turn: Turn | None = turn
        self.hasty = False
        self.rung = self.busy = False
        self.due_at = 0.0
        self._sweeper = sweeper

    def set(self) -> None:
        self._sweeper.ring(self)

    def leave(self) -> None:
        """No more turns. One under way ends by itself."""
        self._sweeper.vacate(self)


class Sweeper:
    """Thread-safe. Its thread starts with the first seat taken."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._awake, self._hurry = threading.Event(), threading.Event()
        self._rung: deque[Seat] = deque()
        self._due: list[tuple[float, int, Seat]] = []
        self._order = itertools.count()
        self._seats = 0
        self._began = float("inf")
        self._at_work: threading.Thread | None = None

    def seat(self, turn: Turn) -> Seat:
        """A place that gets its first turn at once."""
        seat = Seat(self, turn)
        with self._lock:
            self._seats += 1
            if self._at_work is None:
                self._start()
        seat.hasty = True
        seat.set()
        return seat

    def ring(self, seat: Seat) -> None:
        if not seat.rung:
            seat.rung = True
            self._rung.append(seat)
        if seat.hasty:
            self._hurry.set()
        if not self._awake.is_set():
            self._awake.set()
        if time.monotonic() - self._began > STUCK_S:
            self._take_over()

    def vacate(self, seat: Seat) -> None:
        with self._lock:
            self._seats -= seat.turn is not None
            seat.turn = None

    def _start(self) -> None:
        self._at_work = threading.Thread(target=self._sweep, name="sweeper", daemon=True)
        start_small(self._at_work.start)

    def _take_over(self) -> None:
        """The thread at work is held up: a new one goes on, the old one ends when it comes free."""
        with self._lock:
            held_up = time.monotonic() - self._began > STUCK_S
            at_work = self._at_work
        if held_up and at_work is not None:
            self._replace(at_work)

    def _replace(self, old: threading.Thread) -> None:
        with self._lock:
            if self._at_work is old:
                self._began = float("inf")
                self._start()

    def _sweep(self) -> None:
        me = threading.current_thread()
        while self._at_work is me:
            self._awake.wait(self._nap_s())
            self._hurry.wait(min(PAUSE_LIMIT_S, PAUSE_PER_LINK_S * self._seats))
            self._awake.clear()
            self._hurry.clear()
            while self._at_work is me and (seat := self._next()) is not None:
                self._serve(seat, me)

    def _nap_s(self) -> float | None:
        with self._lock:
            return max(0.0, self._due[0][0] - time.monotonic()) if self._due else None

    def _next(self) -> Seat | None:
        """Who has rung, then who is due."""
        if self._rung:
            seat = self._rung.popleft()
            seat.rung = False
            return seat
        with self._lock:
            while self._due and self._due[0][0] <= time.monotonic():
                due_at, _order, seat = heapq.heappop(self._due)
                if seat.due_at == due_at:
                    return seat
        return None

    def _serve(self, seat: Seat, me: threading.Thread) -> None:
        turn = seat.turn
        if turn is None or seat.busy:  # a seat that holds up its thread gets no second one
            return
        seat.busy = True
        self._began = time.monotonic()
        try:
            nap_s = turn()
        except BaseException:
            self._replace(me)  # a mistake of ours in one conversation ends that one
            self.vacate(seat)
            raise
        seat.busy = False
        if nap_s is None:
            self.vacate(seat)
        with self._lock:
            if self._at_work is me:
                self._began = float("inf")
            if nap_s is not None:
                seat.due_at = time.monotonic() + nap_s
                heapq.heappush(self._due, (seat.due_at, next(self._order), seat))
        if self._at_work is not me:
            seat.set()  # its rings were passed over meanwhile


SWEEPER = Sweeper()
"""For all links of this process"""
