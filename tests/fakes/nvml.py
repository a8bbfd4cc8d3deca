"""The simulated NVML for tests: real library, real nvidia-ml-py, a state file that a test writes."""

from __future__ import annotations

from pathlib import Path

from console.demo import nvml
from console.demo.nvml import Card, Driver, Simulation


def simulation(folder: Path, driver: Driver | None = None) -> Simulation:
    """A library built into `folder` with its first state written."""
    built = nvml.build(folder)
    assert built.folder is not None, built.reason
    made = Simulation.at(built.folder, folder / "nvml.state")
    (driver or Driver()).write(made.state)
    return made


def card(number: int, **more: object) -> Card:
    uuid = f"GPU-00000000-0000-0000-0000-{number:012d}"
    return Card(uuid, pci_bus_id=f"00000000:{16 + number:02X}:00.0", **more)  # type: ignore[arg-type]


__all__ = ["Card", "Driver", "Simulation", "card", "simulation"]
