"""Exceptions of torch, transformers and the system → what went wrong and what to do."""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Failure:
    """`secondary`: this rank only noticed that another one is gone."""

    message: str
    hint: str
    secondary: bool = False


# from torch: c10/cuda/CUDACachingAllocator.cpp, c10/core/impl/alloc_cpu.cpp, ProcessGroupGloo and ProcessGroupNCCL
_MEMORY = re.compile(r"out of memory|can't allocate memory|DefaultCPUAllocator", re.IGNORECASE)
_PEER = re.compile(
    r"closed by (peer|remote)|Connection reset|Broken pipe|Socket Timeout|Timed out waiting|remote process exited"
    r"|NCCL (communicator was aborted|error)|ncclRemoteError",
    re.IGNORECASE,
)
_TARGETS = re.compile(r"Target modules .* not found|No modules were targeted", re.DOTALL)
_SAVE_MEMORY = (
    "Lower train.batch_size and raise train.accumulation by the same factor, lower data.max_length, "
    "or set train.gradient_checkpointing: true."
)


def explain(error: BaseException) -> Failure:
    """The nearest known cause; an unknown one is told as it is."""
    text = f"{type(error).__name__}: {error}"
    first = text.splitlines()[0][:300]
    if isinstance(error, MemoryError) or _MEMORY.search(text):
        return Failure(f"out of memory: {first}", _SAVE_MEMORY)
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return Failure("the disk is full", "Free space on the node, then resume the run.")
    if isinstance(error, KeyboardInterrupt):
        return Failure("interrupted by a signal", "Resume the run to continue.")
    if _TARGETS.search(text):
        return Failure(f"lora.targets does not fit the model: {first}", "Use `all-linear` or names found in the model.")
    if _PEER.search(text):
        return Failure(f"lost another rank: {first}", "Look at the first error of the other ranks.", secondary=True)
    return Failure(first, "See the end of this rank's log.")
