"""What `tunedeck bench` measures against a bare torch loop in the same two processes (gloo), taking turns.

Run by tests.bench.fabric under torchrun; rank 0 prints a line for each size: µs of both and the difference. The two
take turns within milliseconds, so that what else runs on this machine meets both alike, and the fastest tenth of the
repeats is compared: there the machine was theirs, and what one does more than the other shows.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

import torch
import torch.distributed as dist

from jobs.fabric.collectives import ALL_REDUCE
from jobs.train.collective import WARM_UP, operation, timed

SIZES = {1 << 12: (8, 800), 1 << 20: (4, 400), 16 << 20: (1, 300)}
"""Bytes → operations of one repeat, repeats."""
CPU = torch.device("cpu")


def bare(tensor: torch.Tensor, count: int) -> float:
    dist.barrier()
    began = time.perf_counter()
    for _ in range(count):
        dist.all_reduce(tensor)
    return time.perf_counter() - began


def compared(size: int, inner: int, repeats: int) -> dict[str, float]:
    made, tensor = operation(ALL_REDUCE, size, CPU), torch.zeros(size // 4)
    ours, theirs = [], []
    for number in range(WARM_UP + repeats):
        if number % 2:
            ours.append(timed(made.run, inner, CPU) / inner)
            theirs.append(bare(tensor, inner) / inner)
        else:
            theirs.append(bare(tensor, inner) / inner)
            ours.append(timed(made.run, inner, CPU) / inner)
    mine, other = (statistics.quantiles(times[WARM_UP:], n=10)[0] for times in (ours, theirs))
    return {"size": size, "ours_us": mine * 1e6, "bare_us": other * 1e6, "difference": mine / other - 1}


def main() -> int:
    dist.init_process_group("gloo")
    for size, (inner, repeats) in SIZES.items():
        found = compared(size, inner, repeats)
        if dist.get_rank() == 0:
            print(json.dumps(found), flush=True)
    dist.barrier()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
