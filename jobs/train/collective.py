"""Collectives measured with torch: NCCL where there are GPUs, gloo where there are none. One process is one rank."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

from jobs.fabric.collectives import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BROADCAST,
    ELEMENT_BYTES,
    REDUCE_SCATTER,
    Bench,
    Row,
    sizes,
)
from jobs.progress import Progress
from jobs.spec import Spec
from jobs.train.rank import Rank, say

all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
# renamed in torch 2.13

WARM_UP = 5
LEAST_REPEATS = 3
SHORTEST_S = 0.002
"""A repeat is as many operations as fill this: less is lost in what a barrier takes."""
BUFFERS = 6
"""At most at a time: input, output, and while the values that must come out are made 64-bit numbers of them."""
FREE_SHARE = {"cuda": 0.9, "cpu": 0.5}
"""Of the memory that is free: on a host there are others, who must not be pushed out of it."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One collective of one size on this rank. `run` may be called again and again; its buffers hold zeros then.

    Zeros stay zeros: a sum that is fed back into itself would grow until it overflows.
    """

    run: Callable[[], object]
    given: torch.Tensor
    got: torch.Tensor
    expected: Callable[[], torch.Tensor]
    filled: Callable[[], torch.Tensor]

    def wrong(self) -> int:
        """Elements that are not what they must be after one run on known values."""
        self.given.copy_(self.filled())
        if self.got is not self.given:
            self.got.fill_(-1)
        self.run()
        found = int((self.got != self.expected()).sum())
        self.given.zero_()
        self.got.zero_()
        return found


def operation(collective: str, size_bytes: int, device: torch.device) -> Operation:
    """The collective whose larger buffer has `size_bytes`, with small whole numbers that sum up exactly."""
    rank, world = dist.get_rank(), dist.get_world_size()
    count = size_bytes // ELEMENT_BYTES

    def values(of_rank: int, length: int, start: int = 0) -> torch.Tensor:
        return torch.arange(start, start + length, device=device).remainder_(17).add_(of_rank).to(torch.float32)

    def summed(length: int, start: int = 0) -> torch.Tensor:
        return values(0, length, start).mul_(world).add_(world * (world - 1) / 2)

    whole = torch.zeros(count, device=device)
    if collective == ALL_REDUCE:
        return Operation(
            lambda: dist.all_reduce(whole), whole, whole, lambda: summed(count), lambda: values(rank, count)
        )
    if collective == BROADCAST:
        return Operation(
            lambda: dist.broadcast(whole, 0), whole, whole, lambda: values(0, count), lambda: values(rank, count)
        )
    part = count // world
    if collective == ALL_TO_ALL:
        other = torch.zeros(count, device=device)
        return Operation(
            lambda: dist.all_to_all_single(other, whole), whole, other,
            lambda: torch.cat([values(of, part, rank * part) for of in range(world)]), lambda: values(rank, count),
        )  # fmt: skip
    one = torch.zeros(part, device=device)
    if collective == ALL_GATHER:
        return Operation(
            lambda: all_gather(whole, one), one, whole,
            lambda: torch.cat([values(of, part) for of in range(world)]), lambda: values(rank, part),
        )  # fmt: skip
    assert collective == REDUCE_SCATTER, collective
    return Operation(
        lambda: reduce_scatter(one, whole), whole, one,
        lambda: summed(part, rank * part), lambda: values(rank, count),
    )  # fmt: skip


def measure(collective: str, size_bytes: int, bench: Bench, device: torch.device) -> Row:
    """One row of the table, the same on all ranks: medians of the mean over the ranks. Raises RuntimeError."""
    made = operation(collective, size_bytes, device)
    wrong = made.wrong()
    for _ in range(WARM_UP):
        taken = timed(made.run, 1, device)
    each = agreed_s(taken)
    inner = max(1, int(SHORTEST_S / each))
    repeats = max(LEAST_REPEATS, min(bench.repeats, int(bench.seconds / (each * inner))))
    times = torch.tensor([timed(made.run, inner, device) / inner for _ in range(repeats)], device=device)
    dist.all_reduce(times)
    mistakes = torch.tensor([wrong], device=device)
    dist.all_reduce(mistakes)
    found = sorted((times / dist.get_world_size() * 1e6).tolist())
    low, middle, high = statistics.quantiles(found, n=4)
    return Row(collective, size_bytes, dist.get_world_size(), middle, (high - low) / 2, int(mistakes), repeats * inner)


def timed(run: Callable[[], object], count: int, device: torch.device) -> float:
    """Seconds for `count` operations of this rank, all ranks beginning together."""
    dist.barrier()
    settle(device)
    began = time.perf_counter()
    for _ in range(count):
        run()
    settle(device)
    return time.perf_counter() - began


def settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def agreed_s(seconds: float) -> float:
    """The slowest rank's figure: all have to repeat the same number of times."""
    on = torch.device("cuda") if dist.get_backend() == "nccl" else torch.device("cpu")
    most = torch.tensor([max(seconds, 1e-7)], device=on)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    return float(most)


def largest_bytes(bench: Bench, device: torch.device, local_ranks: int) -> int:
    """What the memory of the smallest rank allows, down to a power of two, and no more than was asked for."""
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0]
    else:
        words = Path("/proc/meminfo").read_text(encoding="ascii").split()
        free = int(words[words.index("MemAvailable:") + 1]) * 1024 // local_ranks
    room = torch.tensor([int(free * FREE_SHARE[device.type] / BUFFERS)], device=device)
    dist.all_reduce(room, dist.ReduceOp.MIN)
    return min(bench.largest_mib << 20, 1 << (int(room).bit_length() - 1))


def rows(bench: Bench, device: torch.device, local_ranks: int, absent: Callable[[str, str], None]) -> Iterator[Row]:
    """All that the spec asks for, in order. `absent` is told which collectives the backend lacks, and its words."""
    limit = largest_bytes(bench, device, local_ranks)
    for collective in bench.collectives:
        try:
            operation(collective, ELEMENT_BYTES * dist.get_world_size(), device).run()
        except (RuntimeError, NotImplementedError) as wrong:
            if not unsupported(wrong):
                raise
            absent(collective, str(wrong).splitlines()[0])
            continue
        for size in sizes(collective, dist.get_world_size(), limit):
            yield measure(collective, size, bench, device)


def unsupported(wrong: Exception) -> bool:
    """Whether the backend says that it cannot do this at all, which it does before anything is sent."""
    text = str(wrong).lower()
    return isinstance(wrong, NotImplementedError) or "not support" in text or "unsupported" in text


def bench(rank: Rank, spec: Spec) -> str:
    """The run itself. Rank 0 writes a record for each row. The outcome: completed."""
    cuda = bool(os.environ.get("CUDA_VISIBLE_DEVICES")) and torch.cuda.is_available()
    device = torch.device("cuda", rank.local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", device_id=device if cuda else None)
    progress = Progress(rank.folder.progress) if rank.number == 0 else None

    def tell(kind: str, **fields: object) -> None:
        if progress is not None:
            progress.write(kind, **fields)
            say(f"{kind} {fields}")

    tell("phase", phase="measuring", detail=", ".join(spec.bench.collectives))
    card = torch.cuda.get_device_name(device) if cuda else None
    tell("bench_start", ranks=rank.world, backend=dist.get_backend(), device=device.type, card=card)
    for row in rows(spec.bench, device, rank.world, lambda name, why: tell("bench_absent", collective=name, why=why)):
        tell("bench", **row.to_json())
    tell("end", outcome="completed", step=0, detail="")
    dist.barrier()
    dist.destroy_process_group()
    if progress is not None:
        progress.close()
    return "completed"
