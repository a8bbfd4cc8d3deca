"""What sharding splits among the ranks, and the buffers it needs in return."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.plan import weights
from jobs.plan.architecture import Architecture
from jobs.plan.workload import Workload

LIVE_PARAMETERS = 1e9  # DeepSpeed's stage3_max_live_parameters
BUCKET_ELEMENTS = 5e8  # DeepSpeed's reduce_bucket_size and allgather_bucket_size


@dataclass(frozen=True, slots=True)
class Split:
    """Among how many ranks each kind of state is divided."""

    weights: int
    gradients: int
    optimizer: int


def split(work: Workload) -> Split:
    """ZeRO-1 divides the optimiser, ZeRO-2 also gradients, ZeRO-3 and FSDP also weights (Rajbhandari et al. 2020)."""
    n = work.shards
    return {
        "zero1": Split(1, 1, n),
        "zero2": Split(1, n, n),
        "zero3": Split(n, n, n),
        "fsdp": Split(n, n, n),
    }.get(work.sharding, Split(1, 1, 1))


def buffers(shape: Architecture, work: Workload, gradient_bytes: float) -> float:
    """Bytes of gather, prefetch and reduce buffers of one rank. ``gradient_bytes``: all gradients, unsharded.

    FSDP and ZeRO-3 hold the layer in use and the one prefetched, and the unsharded embedding and head; where the
    weights train, also one layer's unsharded gradient. ZeRO-3 keeps up to 1e9 parameters live. DDP copies gradients
    into buckets.
    """
    if work.sharding == "ddp":
        return gradient_bytes
    if work.sharding in ("zero1", "zero2"):
        return min(2 * 2 * BUCKET_ELEMENTS, 2 * gradient_bytes)
    if work.sharding not in ("zero3", "fsdp"):
        return 0.0
    layer = shape.layer_parameters / work.tensor_parallel
    stored = weights.linear_bytes(layer, work) if work.quantized else 2.0 * layer
    ends = 2.0 * (shape.embedding_parameters + shape.head_parameters) / work.tensor_parallel
    gathered = 2 * stored + ends + (0.0 if work.adapters else 2.0 * layer)
    if work.offload == "all":
        gathered += (2 * stored + ends) / split(
            work
        ).weights  # the shards, brought to the card before they are gathered
    live = 2.0 * min(shape.parameters, LIVE_PARAMETERS) if work.sharding == "zero3" else 0.0
    return max(gathered, live)
