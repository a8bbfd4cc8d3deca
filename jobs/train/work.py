"""How long this rank itself was at work in a step: a rank that is slower than the others is told by it.

A step takes all ranks as long as the slowest of them: the others wait, in collectives. So only what happens before the
first collective is timed, the pass forward; what the data takes is timed by their stream.
"""

from __future__ import annotations

import time
from typing import Any

import torch


class Forward:
    """Seconds of a model's passes forward, by the device's own clock where it has one."""

    def __init__(self, model: torch.nn.Module, device: str) -> None:
        self._cuda = device == "cuda"
        self._began: Any = None
        self._passes: list[tuple[Any, Any]] = []
        model.register_forward_pre_hook(self._begins)
        model.register_forward_hook(self._ends)

    def _begins(self, _model: torch.nn.Module, _given: Any) -> None:
        self._began = self._now()

    def _ends(self, _model: torch.nn.Module, _given: Any, _made: Any) -> None:
        self._passes.append((self._began, self._now()))

    def _now(self) -> Any:
        if not self._cuda:
            return time.perf_counter()
        mark = torch.cuda.Event(enable_timing=True)
        mark.record()
        return mark

    def taken_s(self) -> float | None:
        """Of all passes since the last call. None without one, and where the device is not done with the last."""
        passes, self._passes = self._passes, []
        if not passes or (self._cuda and not passes[-1][1].query()):
            return None
        return sum(began.elapsed_time(end) / 1000 if self._cuda else end - began for began, end in passes)
