"""What every call into NVML passes: the one policy for its errors, and its values in plain Python."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

T = TypeVar("T")
NO_DRIVER = "no NVIDIA driver on this node"


def answer(nv: ModuleType, call: Callable[[], T]) -> T | None:
    """A card that is gone raises NVMLError; anything else that it cannot tell is None."""
    gone = (nv.NVML_ERROR_GPU_IS_LOST, nv.NVML_ERROR_RESET_REQUIRED, nv.NVML_ERROR_DRIVER_NOT_LOADED)
    try:
        return call()
    except nv.NVMLError as error:
        if error.value in gone:
            raise
        return None


def why(nv: ModuleType, error: Any) -> str:
    """What keeps NVML from starting, and what to do."""
    if error.value == nv.NVML_ERROR_LIBRARY_NOT_FOUND:
        return NO_DRIVER
    if error.value == nv.NVML_ERROR_DRIVER_NOT_LOADED:
        return "the NVIDIA driver is not loaded: `nvidia-smi` or a reboot may load it"
    if error.value == nv.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        return "Driver/library version mismatch: the driver was updated under a running kernel module; reboot"
    return f"NVML does not start: {text(error)}"


def text(error: Any) -> str:
    return str(error) or type(error).__name__


def word(raw: Any) -> str:
    return raw.decode(errors="replace") if isinstance(raw, bytes) else str(raw)


def number(value: Any) -> float | None:
    return None if value is None else float(value)


def whole(value: Any) -> int | None:
    return None if value is None else int(value)
