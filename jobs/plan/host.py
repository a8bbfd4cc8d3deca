"""Peak resident memory of one rank that trains on the CPU."""

from __future__ import annotations

from dataclasses import replace

from jobs.plan import memory
from jobs.plan.architecture import Architecture
from jobs.plan.memory import Component, Forecast
from jobs.plan.workload import Workload

PROCESS_BYTES = 384 * 2**20  # a rank of jobs.train with torch 2.13's CPU build and a model of next to nothing
# glibc returns freed blocks below its growing mmap threshold (up to 32 MiB, mallopt(3)) late or never: 1.6 and 1.7 in
# runs of jobs.train with 38M parameters
SLACK = 1.6


def forecast(shape: Architecture, work: Workload) -> Forecast:
    """As for a card, with a process in place of a CUDA context; ``device_bytes`` is the process's peak RSS."""
    card = memory.forecast(shape, work)
    reserved = card.allocated_bytes * SLACK
    kept = [part for part in card.components if part.name not in ("allocator slack", "CUDA and NCCL")]
    return replace(
        card,
        components=(
            *kept,
            Component("allocator slack", reserved - card.allocated_bytes, f"freed but kept: {SLACK:g} x allocated"),
            Component("process", float(PROCESS_BYTES), "Python, torch and their libraries"),
        ),
        reserved_bytes=reserved,
        device_bytes=reserved + PROCESS_BYTES,
        low_bytes=card.allocated_low_bytes + PROCESS_BYTES,
        high_bytes=card.allocated_high_bytes * (SLACK + 0.2) + PROCESS_BYTES,
    )
