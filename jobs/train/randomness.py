"""State of every generator that a training step may draw from, as JSON can hold it."""

from __future__ import annotations

import base64
import random
from typing import Any

import numpy
import torch

Drawn = dict[str, Any]


def capture(device: str) -> Drawn:
    """Of this process: python, numpy (the global generator), torch on the CPU and on its GPU."""
    state: Drawn = {"python": random.getstate(), "numpy": numpy.random.get_state(), "torch": torch.get_rng_state()}
    if device == "cuda":
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def restore(state: Drawn) -> None:
    """Sets what `capture` or `decode` gave."""
    random.setstate(state["python"])
    numpy.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"])


def encode(state: Drawn) -> dict[str, Any]:
    version, words, gauss = state["python"]
    kind, keys, position, has_gauss, cached = state["numpy"]
    plain = {
        "python": [version, list(words), gauss],
        "numpy": [kind, keys.tolist(), position, has_gauss, cached],
    }
    return plain | {name: _text(state[name]) for name in ("torch", "cuda") if name in state}


def decode(plain: dict[str, Any]) -> Drawn:
    """Raises KeyError, TypeError or ValueError for what `encode` did not make."""
    version, words, gauss = plain["python"]
    kind, keys, position, has_gauss, cached = plain["numpy"]
    state: Drawn = {
        "python": (version, tuple(words), gauss),
        "numpy": (kind, numpy.array(keys, dtype=numpy.uint32), position, has_gauss, cached),
    }
    return state | {name: _tensor(plain[name]) for name in ("torch", "cuda") if name in plain}


def _text(tensor: torch.Tensor) -> str:
    return base64.b64encode(tensor.numpy().tobytes()).decode()


def _tensor(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
