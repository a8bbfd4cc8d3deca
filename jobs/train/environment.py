"""What a training runs on, as far as it can change a bit of the result."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

_PACKAGES = ("torch", "transformers", "peft", "accelerate", "numpy")


def describe(device: str, world: int) -> dict[str, Any]:
    """Names and values; two equal ones give equal bits for the same state and data."""
    found: dict[str, Any] = {name: _version(name) for name in _PACKAGES}
    found |= {"python": platform.python_version(), "machine": platform.machine(), "ranks": world, "device": device}
    if device == "cuda":
        return found | {"gpu": torch.cuda.get_device_name(), "cuda": torch.version.cuda}
    return found | {"threads": torch.get_num_threads(), "cpu": torch.backends.cpu.get_cpu_capability(), "os": os.name}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
