"""A keeper's watch over the progress of its run: when no step comes any more, all ranks are asked, once."""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass, field

from agent import questioning
from agent.stall import Pace
from jobs import orders, progress
from jobs.run_folder import RunFolder

LOOK_EVERY_S = 1.0
TAIL_BYTES = 1 << 17
SLICE_BYTES = 1 << 20


@dataclass(slots=True)
class Vigil:
    folder: RunFolder
    offset: int
    pace: Pace = field(default_factory=Pace)
    asked: threading.Thread | None = None
    due: float = 0.0

    @classmethod
    def from_now(cls, folder: RunFolder) -> Vigil:
        """Over a session that begins: what earlier ones wrote is passed over."""
        return cls(folder, folder.progress.stat().st_size if folder.progress.exists() else 0)

    @classmethod
    def halfway(cls, folder: RunFolder) -> Vigil:
        """Over a session that has been running for a while."""
        size = folder.progress.stat().st_size if folder.progress.exists() else 0
        return cls(folder, max(0, size - TAIL_BYTES))

    def look(self) -> None:
        """Cheap enough for every turn of the keeper. Asking happens beside it, for a kill must not wait."""
        if time.monotonic() < self.due:
            return
        self.due = time.monotonic() + LOOK_EVERY_S
        try:
            self.judge()
        except OSError as error:  # a disk that cannot be read for a while is no reason to leave the run alone
            print(f"cannot read the progress: {error}", file=sys.stderr, flush=True)

    def judge(self) -> None:
        self.read()
        found = self.pace.stalled_s(time.time())
        if found is not None and self.asked is None:
            found = self.pace.stalled_s(time.time(), waiting=orders.waiting(self.folder))
        if found is not None and self.asked is None:
            self.asked = threading.Thread(target=self.ask, args=(found,), daemon=True)
            self.asked.start()
        elif found is None and self.asked is not None and not self.asked.is_alive():
            self.asked = None
            questioning.moved(self.folder)

    def ask(self, stalled_s: float) -> None:
        try:
            questioning.ask(self.folder, stalled_s)
        except OSError as error:
            print(f"cannot ask the ranks: {error}", file=sys.stderr, flush=True)

    def read(self) -> None:
        more = True
        while more:
            records, offset = progress.records(self.folder.progress, self.offset, SLICE_BYTES)
            more, self.offset = offset > self.offset, offset
            for one in records:
                self.pace.take(one)
