"""Snapshots of a running training: copied to host memory beside the next step, written beside those after it.

Weights and optimizer state change only when the optimizer steps. So the copy begins between two steps and may take
until the next one's forward and backward passes are done; only what it takes longer is time that training stands still.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from jobs import snapshot
from jobs.lineage import Lineage
from jobs.progress import Progress
from jobs.settings import Snapshots
from jobs.train import image, stored
from jobs.train.exchange import Exchange
from jobs.train.image import Image, Tensors
from jobs.train.rank import Rank
from jobs.train.state import TrainingState
from jobs.train.stored import Whole
from jobs.train.writing import Announce, Stall, Writing

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
        self._progress, self._cuda, self._facts = progress, device == "cuda", facts
        self._images: tuple[Image, Image] | None = None
        self._writer: threading.Thread | None = None
        self._copied = threading.Event()
        self._copied.set()
        self._stall = Stall()
        self.lineage = Lineage()
        self.held: Held | None = None
        self._told: tuple[bool, str] | None = None  # what became of the last one
        self.last = ""  # its name

    @property
    def busy(self) -> bool:
        return self._writer is not None and self._writer.is_alive()

    def settle(self) -> None:
        """Waits until the copy is made: before the optimizer steps, and before anything else changes the state."""
        if not self._copied.is_set():
            began_s = time.perf_counter()
            self._copied.wait()
            self._stall.seconds += time.perf_counter() - began_s

    def wait(self) -> None:
        """Waits until the last snapshot is written, or has failed."""
        if self._writer is not None:
            self._writer.join()

    def hold(self) -> None:
        """Keeps the present state in memory only, where the budget allows."""
        self.settle()
        if self._size_bytes() * self._rank.world <= self._budget_bytes():
            weights, moments = self._state.weights(), self._state.moments()
            images = self._room(weights, moments)
            self.held = self._held(images, None)
            self._fill(images, weights, moments)

    def take(self, reason: str, loss: float | None, announce: Announce) -> None:
        """Takes a snapshot of the present step. `announce` hears on rank 0, later, whether it stands, and its name.

        A writer still at work is waited for: the caller looks at `busy` first where that must not be. One that was
        taken at this very step already is not taken again.
        """
        began_s = time.perf_counter()
        self.wait()
        course = self._state.course()
        name = snapshot.name_of(self.lineage.branch, course.step)
        if name == self.last:
            if self._told is not None:
                announce(*self._told)
            return
        self.last, self._told, self._stall = name, None, Stall()
        weights, moments = self._state.still(), self._state.moments()
        drawn = self._exchange.gather(self._state.drawn())
        images = self._images_to_fill(weights, moments, loss)
        writing = None
        if self._progress is not None:
            facts = {**self._facts, "lineage": self.lineage.to_json(), "loss": loss, "reason": reason, "badge": "exact"}
            live = (image.chunks(weights), image.chunks(moments))
            first, second = (one.chunks() for one in images) if images else live
            parts, total = stored.parts(first, second, course, drawn), self._size_bytes()
            folder, branch = self._rank.folder, self.lineage.branch
            writing = Writing(folder, self._keep, self._progress, branch, course.step, parts, total, facts, self._stall)
        self._start(images, weights, moments, writing, announce)
        self._stall.seconds += time.perf_counter() - began_s

    def _images_to_fill(self, weights: Tensors, moments: Tensors, loss: float | None) -> tuple[Image, Image] | None:
        """Room in host memory as far as the budget goes: on all ranks, on rank 0 to write from, or none."""
        total = self._size_bytes()
        everywhere = total * self._rank.world <= self._budget_bytes()
        if not everywhere and (self._progress is None or total > self._budget_bytes()):
            self.held = None
            return None
        images = self._room(weights, moments)
        self.held = self._held(images, loss) if everywhere else None
        return images

    def _start(
        self,
        images: tuple[Image, Image] | None,
        weights: Tensors,
        moments: Tensors,
        writing: Writing | None,
        announce: Announce,
    ) -> None:
        def tell(good: bool, text: str) -> None:
            self._told = (good, text)
            announce(good, text)

        if images is None:  # straight from the live tensors: training has to stand still
            if writing is not None:
                self._stall.inline = True
                writing.publish(tell)
            return
        begun = self._mark()

        def work() -> None:
            try:
                self._fill(images, weights, moments, begun)
            except (RuntimeError, MemoryError) as wrong:  # no room after all; torch says so by a RuntimeError
                self.held = None
                if writing is not None:
                    writing.failed(f"no memory to copy it to: {wrong}", "Lower snapshots.memory_budget_gib.", tell)
                return
            finally:
                self._copied.set()
            if writing is not None:
                writing.publish(tell)

        self._copied.clear()
        # not a daemon thread: a process that ends waits until what it took is written
        self._writer = threading.Thread(target=work, name="snapshot-writer")
        self._writer.start()

    def _mark(self) -> Any:
        """On CUDA: the point in the stream's work at which the state is the one to be copied."""
        if not self._cuda:
            return None
        event = torch.cuda.Event()
        event.record()
        return event

    def _size_bytes(self) -> int:
        return image.size_bytes(self._state.weights()) + image.size_bytes(self._state.moments())

    def _budget_bytes(self) -> float:
        return self._keep.memory_budget_gib * _GIB

    def _held(self, images: tuple[Image, Image], loss: float | None) -> Held:
        course = self._state.course()
        whole = Whole(images[0].tensors, images[1].tensors, course, self._state.drawn())
        return Held(self.lineage.branch, course.step, loss, whole)

    def _room(self, weights: Tensors, moments: Tensors) -> tuple[Image, Image]:
        if self._images is None or not (self._images[0].fits(weights) and self._images[1].fits(moments)):
            self._images = None  # lets go of the old room before asking for new
            self._images = Image(weights, self._cuda), Image(moments, self._cuda)
        return self._images

    def _fill(self, images: tuple[Image, Image], weights: Tensors, moments: Tensors, begun: Any = None) -> None:
        if not self._cuda:
            images[0].fill(weights)
            images[1].fill(moments)
            return
        beside = torch.cuda.Stream()
        with torch.cuda.stream(beside):
            if begun is not None:
                beside.wait_event(begun)
            images[0].fill(weights)
            images[1].fill(moments)
        beside.synchronize()
