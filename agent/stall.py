"""Whether a training stands still, from when its steps came: long before any timeout of a collective."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from agent.records import real
from jobs.lineage import TURNS

SLOWER = 6.0
"""So many times a step's usual length: snapshots, a long batch or a busy disk stay below three."""
LEAST_S = 20.0
"""Never earlier: a console needs no alarm about what may pass while one looks."""
FIRST_S = 300.0
"""While fewer than `KNOWN` steps were seen: compilation, warm-up and the first allocation belong to these."""
SAVING_S = 300.0
"""While a snapshot is being written or an order carried out."""
KNOWN = 3
WINDOW = 32


@dataclass(slots=True)
class Pace:
    """Fed with the progress records of a run, asked at any time. Loading and saving have no pace to fall behind."""

    phase: str = ""
    last_unix: float | None = None
    busy: bool = False
    steps_s: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def take(self, record: dict[str, Any]) -> None:
        kind, unix = str(record.get("kind")), real(record.get("time_unix"))
        if unix is not None:
            self.last_unix = unix
        if kind == "phase":
            self.phase = str(record.get("phase"))
        elif kind == "end":
            self.phase = "ended"
        elif kind == "step":
            self.phase = "training"
            took = real(record.get("step_time_s"))
            if took is not None and 0.0 < took < float("inf"):
                self.steps_s.append(took)
        elif kind in TURNS:
            self.steps_s.clear()
        # one that is published or failed is over; anything else about a snapshot means that one is on its way
        self.busy = kind == "snapshot" and record.get("state") not in ("published", "failed", "merged")

    @property
    def step_s(self) -> float | None:
        """The usual length of a step; None before it can be told."""
        return median(self.steps_s) if len(self.steps_s) >= KNOWN else None

    def stalled_s(self, now_unix: float, waiting: bool = False) -> float | None:
        """Seconds beyond when the next step was due; None while there is none due. `waiting`: an order is open."""
        if self.phase != "training" or self.last_unix is None:
            return None
        usual = self.step_s
        allowed = FIRST_S if usual is None else max(LEAST_S, SLOWER * usual)
        if self.busy or waiting:
            allowed = max(allowed, SAVING_S)
        silent = now_unix - self.last_unix
        return silent - (usual or 0.0) if silent > allowed else None
