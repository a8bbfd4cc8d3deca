"""What a machine taught: measured peaks against forecasts, as one factor that is shown wherever it is used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LEAST, MOST = 0.5, 2.0  # beyond this the forecast or the reading is wrong, and nothing should be learnt from it
MEMORY = 8.0  # runs after which an old reading weighs little
MARGIN = 0.02


@dataclass(frozen=True, slots=True)
class Correction:
    """``factor`` = measured / forecast, averaged over ``runs`` readings of one machine."""

    factor: float = 1.0
    runs: int = 0

    def learn(self, measured_bytes: float, forecast_bytes: float) -> Correction:
        """With one more reading of the device figure. Readings that make no sense are left out."""
        if forecast_bytes <= 0 or not LEAST <= measured_bytes / forecast_bytes <= MOST:
            return self
        weight = min(float(self.runs), MEMORY)
        factor = (self.factor * weight + measured_bytes / forecast_bytes) / (weight + 1)
        return Correction(factor, self.runs + 1)

    @property
    def text(self) -> str:
        """What is shown beside a corrected forecast; empty where nothing was learnt."""
        if not self.runs or abs(self.factor - 1) < MARGIN:
            return ""
        return f"x {self.factor:.2f}, learnt from {self.runs} run{'s' if self.runs > 1 else ''} on this machine"

    def to_json(self) -> dict[str, Any]:
        return {"factor": self.factor, "runs": self.runs}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Correction:
        """From what ``to_json`` wrote; a factor out of range counts as nothing learnt."""
        factor, runs = float(record.get("factor", 1.0)), int(record.get("runs", 0))
        return cls(factor, runs) if LEAST <= factor <= MOST and runs > 0 else cls()
