"""Snapshots of a running training: copied to host memory between two steps, written beside the next ones."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from jobs import snapshot
from jobs.progress import Progress
from jobs.settings import Snapshots
from jobs.train import image, stored
from jobs.train.exchange import Exchange
from jobs.train.image import Image, Tensors
from jobs.train.lineage import Lineage
from jobs.train.rank import Rank
from jobs.train.state import TrainingState
from jobs.train.stored import Whole
from jobs.train.writing import Announce, Writing

_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Held:
    """The newest snapshot, in this rank's host memory, on disk or not."""

    branch: int
    step: int
    loss: float | None
    whole: Whole

    @property
    def name(self) -> str:
        return snapshot.name_of(self.branch, self.step)


class Vault:
    """Every rank has one and calls it at the same steps; rank 0 (`progress` is not None) writes."""

    def __init__(
        self,
        rank: Rank,
        keep: Snapshots,
        state: TrainingState,
        exchange: Exchange,
        progress: Progress | None,
        device: str,
        facts: Mapping[str, Any],
    ) -> None:
        """`facts` go into each manifest."""
        self._rank, self._keep, self._state, self._exchange = rank, keep, state, exchange
        self._progress, self._pinned, self._facts = progress, device == "cuda", facts
        self._images: tuple[Image, Image] | None = None
        self._writer: threading.Thread | None = None
        self.lineage = Lineage()
        self.held: Held | None = None
        self._told: tuple[bool, str] | None = None  # what became of the last one
        self.last = ""  # its name

    @property
    def busy(self) -> bool:
        return self._writer is not None and self._writer.is_alive()

    def wait(self) -> None:
        if self._writer is not None:
            self._writer.join()

    def hold(self) -> None:
        """Keeps the present state in memory only, where the budget allows."""
        if self._size_bytes() * self._rank.world <= self._budget_bytes():
            self._copy(self._state.weights(), self._state.moments(), None)

    def take(self, reason: str, loss: float | None, announce: Announce) -> None:
        """Takes a snapshot of the present step. `announce` hears on rank 0, later, whether it stands, and its name.

        A writer still at work is waited for: the caller looks at `busy` first where that must not be. One that was
        taken at this very step already is not taken again.
        """
        began_s = time.perf_counter()
        self.wait()
        weights, moments, course = self._state.weights(), self._state.moments(), self._state.course()
        name = snapshot.name_of(self.lineage.branch, course.step)
        if name == self.last:
            if self._told is not None:
                announce(*self._told)
            return
        self.last, self._told = name, None
        drawn = self._exchange.gather(self._state.drawn())
        staged = self._stage(weights, moments, loss)
        if self._progress is None:
            return
        live = (image.chunks(weights), image.chunks(moments))
        first, second = (one.chunks() for one in self._images) if staged and self._images else live
        parts = stored.parts(first, second, course, drawn)
        total = self._size_bytes()
        writing = Writing(self._rank.folder, self._keep, self._progress, self.lineage.branch, course.step, parts, total)
        facts = {**self._facts, "lineage": self.lineage.to_json(), "loss": loss, "reason": reason, "badge": "exact"}

        def tell(good: bool, text: str) -> None:
            self._told = (good, text)
            announce(good, text)

        self._start(writing, facts, tell, began_s, staged)

    def _stage(self, weights: Tensors, moments: Tensors, loss: float | None) -> bool:
        """Copies to host memory as far as the budget goes: on all ranks, on rank 0 to write from, or not at all."""
        total = self._size_bytes()
        if total * self._rank.world <= self._budget_bytes():
            self._copy(weights, moments, loss)
            return True
        self.held = None
        if self._progress is None or total > self._budget_bytes():
            return False
        self._fill(weights, moments)
        return True

    def _start(self, writing: Writing, facts: dict[str, Any], announce: Announce, began_s: float, staged: bool) -> None:
        stall_s = time.perf_counter() - began_s
        if not staged:
            writing.publish(facts, announce, None)
            return
        # not a daemon thread: a process that ends waits until what it took is written
        self._writer = threading.Thread(target=writing.publish, args=(facts, announce, stall_s), name="snapshot-writer")
        self._writer.start()

    def _size_bytes(self) -> int:
        return image.size_bytes(self._state.weights()) + image.size_bytes(self._state.moments())

    def _budget_bytes(self) -> float:
        return self._keep.memory_budget_gib * _GIB

    def _copy(self, weights: Tensors, moments: Tensors, loss: float | None) -> None:
        first, second = self._fill(weights, moments)
        course = self._state.course()
        whole = Whole(first.tensors, second.tensors, course, self._state.drawn())
        self.held = Held(self.lineage.branch, course.step, loss, whole)

    def _fill(self, weights: Tensors, moments: Tensors) -> tuple[Image, Image]:
        if self._images is None or not (self._images[0].fits(weights) and self._images[1].fits(moments)):
            self._images = None  # lets go of the old room before asking for new
            self._images = Image(weights, self._pinned), Image(moments, self._pinned)
        self._images[0].fill(weights)
        self._images[1].fill(moments)
        if self._pinned:
            torch.cuda.current_stream().synchronize()
        return self._images
