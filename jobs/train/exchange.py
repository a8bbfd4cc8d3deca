"""What ranks tell each other once a step: is there an order, tokens, memory. One small sum, hidden behind the step.

It has a group of its own, on the CPU: it neither waits for the GPU nor gets between the gradients' collectives.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_FIXED = 3  # columns before those that each rank has for itself
_OWN = 3
_UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Heard:
    """As it was when the step began: `tokens` over all ranks, `busy`: a snapshot is written. The rest is by rank.

    `data_s`: until a rank had its batches for this step; `forward_s`: its pass forward in the step before.
    """

    order: bool
    busy: bool
    tokens: int
    memory_bytes: tuple[int, ...]
    data_s: tuple[float, ...]
    forward_s: tuple[float | None, ...]


class Exchange:
    def __init__(self, rank: int, world: int, device: str) -> None:
        self._rank, self._world, self._device = rank, world, device
        self._group = dist.new_group(backend="gloo") if world > 1 else None
        self._table = torch.zeros(_FIXED + _OWN * world, dtype=torch.int64)
        self._work: Any = None

    @property
    def memory_kind(self) -> str:
        return "cuda" if self._device == "cuda" else "rss"

    def start(self, order: bool, busy: bool, tokens: int, data_s: float, forward_s: float | None) -> None:
        """Every rank calls this once a step; it does not wait. `order` and `busy` count on rank 0 only."""
        row = [0] * (_FIXED + _OWN * self._world)
        row[:_FIXED] = int(order), int(busy), tokens
        forward = _UNKNOWN if forward_s is None else round(forward_s * 1e6)
        row[_FIXED + self._rank :: self._world] = self._memory_bytes(), round(data_s * 1e6), forward
        self._table = torch.tensor(row, dtype=torch.int64)
        if self._group is not None:
            self._work = dist.all_reduce(self._table, group=self._group, async_op=True)

    def finish(self) -> Heard:
        """Waits for the sum of the last `start`."""
        if self._work is not None:
            self._work.wait()
            self._work = None
        order, busy, tokens, *own = self._table.tolist()
        memory, data, forward = (tuple(own[at * self._world : (at + 1) * self._world]) for at in range(_OWN))
        forward_s = tuple(None if one == _UNKNOWN else one / 1e6 for one in forward)
        return Heard(order > 0, busy > 0, tokens, memory, tuple(one / 1e6 for one in data), forward_s)

    def agree(self, value: Any) -> Any:
        """Rank 0's value, on every rank. Rare: for the content of orders."""
        if self._group is None:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, group=self._group)
        return box[0]

    def gather(self, value: Any) -> list[Any]:
        """The value of every rank, on every rank."""
        if self._group is None:
            return [value]
        box: list[Any] = [None] * self._world
        dist.all_gather_object(box, value, group=self._group)
        return box

    def _memory_bytes(self) -> int:
        if self._device == "cuda":
            return int(torch.cuda.memory_reserved())
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES
