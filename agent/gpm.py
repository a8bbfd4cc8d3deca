"""SM activity from two samples of NVML's GPU performance monitoring (GPM): Hopper and newer."""

from __future__ import annotations

import ctypes
from types import ModuleType
from typing import Any

from agent.nvml import answer


class Activity:
    """One card. The driver counts between two samples, so the first look tells nothing yet."""

    def __init__(self, nv: ModuleType, card: Any) -> None:
        """Raises NVMLError when the card is lost."""
        self.nv, self.card = nv, card
        self.samples: list[Any] = []
        support = answer(nv, lambda: nv.nvmlGpmQueryDeviceSupport(card))
        self.supported = support is not None and bool(support.isSupportedDevice)

    def percent(self) -> float | None:
        """Share of the SMs that were busy since the last look. Raises NVMLError when the card is lost."""
        if not self.supported:
            return None
        kept = self.samples.pop(0) if len(self.samples) == 2 else answer(self.nv, self.nv.nvmlGpmSampleAlloc)
        if kept is None or answer(self.nv, lambda: self.nv.nvmlGpmSampleGet(self.card, kept)) is None:
            return None
        self.samples.append(kept)
        return self.between() if len(self.samples) == 2 else None

    def between(self) -> float | None:
        nv = self.nv
        asked = nv.c_nvmlGpmMetricsGet_t()
        asked.version, asked.numMetrics = nv.NVML_GPM_METRICS_GET_VERSION, 1
        asked.sample1, asked.sample2 = self.samples
        asked.metrics[0].metricId = nv.NVML_GPM_METRIC_SM_UTIL
        told = answer(nv, lambda: nv.nvmlGpmMetricsGet(asked))
        if told is None or told.metrics[0].nvmlReturn != nv.NVML_SUCCESS:
            return None
        share = ctypes.c_double(told.metrics[0].value).value
        return float(round(share)) if 0 <= share <= 100 else None
