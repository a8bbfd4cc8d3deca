"""The order of the data as one endless row of examples: any position in it can be gone to at once.

Epoch after epoch in a new order that depends only on the seed, so the position, one number, says which examples come
next, on any number of ranks. Steps never stop at the end of an epoch: every batch is full.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from jobs.train.rank import die_with_parent

_SEED_STRIDE = 1_000_003  # keeps the orders of neighbouring seeds and epochs apart


@dataclass(frozen=True, slots=True)
class Shape:
    """How a step is cut: `per_rank` examples at once, `accumulation` times, on `world` ranks."""

    per_rank: int
    accumulation: int
    world: int

    @property
    def per_step(self) -> int:
        return self.per_rank * self.accumulation * self.world

    def steps(self, epochs: float, examples: int) -> int:
        """Steps that `epochs` passes over `examples` take."""
        return max(1, math.ceil(epochs * examples / self.per_step))


class Stream(Iterator[dict[str, torch.Tensor]]):
    """This rank's micro-batches from `position` on; `position` counts the examples that all ranks together have had."""

    def __init__(
        self,
        data: Dataset[Any],
        length: int,
        collate: Callable[[Sequence[Any]], dict[str, torch.Tensor]],
        shape: Shape,
        rank: int,
        seed: int | None,
        workers: int,
        pinned: bool,
    ) -> None:
        """`length`: examples in `data`; `seed` None keeps the order of the file."""
        self._data, self._length, self._collate, self._shape = data, length, collate, shape
        self._rank, self._seed, self._workers, self._pinned = rank, seed, workers, pinned
        self._batches: Iterator[dict[str, torch.Tensor]] | None = None
        self._tokens, self._waited_s = 0, 0.0
        self._over = False
        self.position = 0

    def seek(self, position: int) -> None:
        self._batches = None  # the old iterator ends its workers when it goes
        self.position, self._over = position, False

    def end(self) -> None:
        """No more batches from here, until the next `seek`: without this Trainer takes one step before it counts."""
        self._over = True

    def close(self) -> None:
        """Ends the loader workers."""
        self._batches = None

    def __next__(self) -> dict[str, torch.Tensor]:
        if self._over:
            raise StopIteration
        began_s = time.perf_counter()
        if self._batches is None:
            self._batches = iter(self._loader())
        batch = next(self._batches)
        self._waited_s += time.perf_counter() - began_s
        self.position += self._shape.per_rank * self._shape.world
        self._tokens += int(batch["attention_mask"].sum())
        return batch

    def taken_tokens(self) -> int:
        """Tokens without padding that this rank was given since the last call."""
        tokens, self._tokens = self._tokens, 0
        return tokens

    def taken_s(self) -> float:
        """Seconds that this rank waited for its batches since the last call."""
        waited_s, self._waited_s = self._waited_s, 0.0
        return waited_s

    def _loader(self) -> DataLoader[dict[str, torch.Tensor]]:
        return DataLoader(
            self._data,
            batch_sampler=_Plan(self._indices),
            collate_fn=self._collate,
            num_workers=self._workers,
            pin_memory=self._pinned,
            worker_init_fn=_worker_starts if self._workers else None,
            # a generator of its own: otherwise each new iterator would draw from the generator that dropout uses
            generator=torch.Generator().manual_seed(self._seed or 0),
        )

    def _indices(self) -> Iterator[list[int]]:
        at = self.position + self._rank * self._shape.per_rank
        while True:
            yield [self._example(at + offset) for offset in range(self._shape.per_rank)]
            at += self._shape.per_rank * self._shape.world

    def _example(self, place: int) -> int:
        epoch, within = divmod(place, self._length)
        return within if self._seed is None else _permutation(self._seed, epoch, self._length)[within]


@lru_cache(maxsize=3)
def _permutation(seed: int, epoch: int, length: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed * _SEED_STRIDE + epoch)
    order: list[int] = torch.randperm(length, generator=generator).tolist()
    return order


class _Plan:
    """What DataLoader wants as a batch sampler: an iterable without an end."""

    def __init__(self, indices: Callable[[], Iterator[list[int]]]) -> None:
        self._indices = indices

    def __iter__(self) -> Iterator[list[int]]:
        return self._indices()


def _worker_starts(_: int) -> None:
    die_with_parent()
