"""Bytes of the weights as they lie on the card."""

from __future__ import annotations

from jobs.plan.architecture import Architecture
from jobs.plan.workload import Workload

# bytes per compressed element. NF4: half a byte + one fp32 absmax per 64 (Dettmers et al. 2023); double quantisation
# stores absmax in 8 bits with an fp32 constant per 256; int8 (LLM.int8): a byte + an fp32 scale per row, below 0.1 %;
# GPTQ/AWQ groups of 128: fp16 scale and packed zero point
PER_ELEMENT = {
    "fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0,
    "nf4": 0.5 + 4 / 64, "nf4-dq": 0.5 + 1 / 64 + 4 / (64 * 256),
    "gptq-int4": 0.5 + 2.5 / 128, "awq-int4": 0.5 + 2.5 / 128, "gptq-int8": 1.0 + 3 / 128,
}  # fmt: skip


def uncompressed_bytes(work: Workload) -> int:
    """Bytes per element of what quantisation leaves alone: embedding, head, norms."""
    if work.weight_format == "fp32" or (work.quantized and work.upcast_unquantized):
        return 4
    return 2


def linear_bytes(elements: float, work: Workload) -> float:
    return elements * PER_ELEMENT[work.weight_format]


def outside(shape: Architecture) -> int:
    """Elements of embedding, head, norms and biases."""
    return shape.embedding_parameters + shape.head_parameters + shape.small_parameters


def total(shape: Architecture, work: Workload) -> float:
    """All base weights, unsharded."""
    return linear_bytes(shape.linear_weights, work) + outside(shape) * uncompressed_bytes(work)
