"""What training keeps for each trained parameter: the parameter, its gradient, the optimiser's values.

Follows the frameworks: torch keeps gradients and Adam moments in the parameter's own dtype; DeepSpeed keeps a 16-bit
parameter, an fp32 master copy and fp32 moments, whatever the parameter's dtype.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jobs.plan import adapter
from jobs.plan.architecture import Architecture
from jobs.plan.workload import Workload

# bytes per parameter of all moments; 8-bit Adam: two bytes + two fp32 scales per block of 256 (Dettmers et al. 2022)
MOMENTS = {"adamw-fp32": 8.0, "adamw-bf16": 4.0, "adamw-8bit": 2 + 8 / 256, "paged-adamw-8bit": 2 + 8 / 256, "sgd": 0.0}
FACTORED = 0.01  # Adafactor keeps a row and a column per matrix (Shazeer and Stern 2018): below 1 % of the parameters


@dataclass(frozen=True, slots=True)
class Group:
    """Trained parameters of one kind; bytes are per parameter."""

    count: int
    parameter_bytes: float  # 0 where the base weights already count them
    gradient_bytes: float
    optimizer_bytes: float
    step_bytes: float  # alive only during the optimiser step


def moments(work: Workload, element_bytes: float) -> float:
    """Bytes of optimiser values per parameter stored in ``element_bytes``."""
    if work.optimizer in ("adamw", "paged-adamw"):
        return 2 * element_bytes
    if work.optimizer == "adafactor":
        return FACTORED * 4
    return MOMENTS[work.optimizer]


def groups(shape: Architecture, work: Workload) -> Iterator[Group]:
    """Trained parameters by kind: the whole model, or adapters and whole saved modules."""
    model_bytes = 4.0 if work.weight_format == "fp32" else 2.0
    if not work.adapters:
        yield _group(shape.parameters, 0.0, model_bytes, work)
        return
    saved = adapter.saved(shape, work)
    yield _group(adapter.trainable(shape, work) - saved, float(work.adapter_bytes), float(work.adapter_bytes), work)
    if saved:
        yield _group(saved, model_bytes, model_bytes, work)


def _group(count: int, parameter: float, element: float, work: Workload) -> Group:
    if work.deepspeed:  # fp32 master + moments; at the step the gradients appear in fp32 too
        kept = 8.0 if work.optimizer in ("adamw", "paged-adamw") else moments(work, 4.0)
        return Group(count, min(parameter, 2.0), 2.0, 4.0 + kept, 4.0)
    # torch's multi-tensor AdamW holds one temporary as large as the parameters (the square root of the second moment);
    # fused and 8-bit kernels hold none
    step = element if work.optimizer == "adamw" and not work.in_backward else 0.0
    return Group(count, parameter, element, moments(work, element), step)
