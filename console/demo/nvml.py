"""The simulated NVML: built here with whatever C compiler there is, described by a small state file."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "simulated_nvml.c"
LIBRARY = "libnvidia-ml.so.1"
STATE_VARIABLE = "TUNEDECK_SIMULATED_NVML"
BUILD_S = 120.0


@dataclass(frozen=True, slots=True)
class Built:
    """The folder with the library, or why there is none."""

    folder: Path | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Card:
    """One simulated GPU. The name must begin with SIMULATED; None leaves a figure unsupported."""

    uuid: str
    name: str = "SIMULATED H100 80GB"
    pci_bus_id: str = "00000000:17:00.0"
    memory_total_bytes: int | None = 80 << 30
    memory_used_bytes: int = 0
    utilisation_percent: int | None = 0
    temperature_c: int | None = 35
    power_mw: int | None = 70_000
    power_limit_mw: int = 700_000
    sm_clock_mhz: int | None = 345
    sm_clock_max_mhz: int = 1980
    memory_clock_mhz: int = 2619
    throttle: int | None = 0
    ecc_uncorrected: int | None = 0
    ecc_corrected: int = 0
    reserved_bytes: int | None = None
    bar1: tuple[int, int] | None = None
    """Total and used bytes"""
    codec_percent: tuple[int, int] | None = None
    """Encoder, decoder"""
    sm_active_percent: int | None = None
    slowdown_c: int | None = None
    memory_c: int | None = None
    rows: tuple[int, int, int, int] | None = None
    """Remapped for correctable and for uncorrectable errors, pending, failed"""
    pages: tuple[int, int, int] | None = None
    """Retired for single-bit and for double-bit errors, pending"""
    pcie: tuple[int, int, int, int, int] | None = None
    """Generation, its maximum, width, its maximum, replays"""
    nvlink: tuple[int, int, int] | None = None
    """Links, bits of those that are down, errors of each kind on each link"""
    persistence: int | None = None
    serial: str = ""
    vbios: str = ""
    mig: tuple[tuple[str, int, int, str], ...] | None = None
    """UUID, total and used bytes, profile of each instance; none of them: MIG mode is off; None: no MIG"""
    xids: tuple[tuple[int, int], ...] = ()
    """Running number and code"""
    processes: tuple[tuple[int, int], ...] = ()
    """(pid, bytes)"""
    lost: int = 0
    """An nvmlReturn_t that every call answers: 15 lost, 16 needs a reset"""
    wedge_s: int = 0

    def lines(self) -> list[str]:
        if not self.name.startswith("SIMULATED "):
            raise ValueError(f"{self.name!r}: the name of a simulated card begins with SIMULATED")
        figures = {
            "memory": (self.memory_total_bytes, self.memory_used_bytes),
            "util": (self.utilisation_percent, 0),
            "temperature": (self.temperature_c,),
            "power": (self.power_mw, self.power_limit_mw),
            "clock": (self.sm_clock_mhz, self.sm_clock_max_mhz, self.memory_clock_mhz),
            "throttle": (self.throttle,),
            "ecc": (self.ecc_uncorrected, self.ecc_corrected),
            "reserved": (self.reserved_bytes,),
            "bar1": self.bar1 or (None,),
            "codec": self.codec_percent or (None,),
            "active": (self.sm_active_percent,),
            "slowdown": (self.slowdown_c,),
            "hbm": (self.memory_c,),
            "rows": self.rows or (None,),
            "pages": self.pages or (None,),
            "pcie": self.pcie or (None,),
            "nvlink": self.nvlink or (None,),
            "persistence": (self.persistence,),
            "serial": (self.serial or None,),
            "vbios": (self.vbios or None,),
            "lost": (self.lost,),
            "wedge": (self.wedge_s,),
        }
        words = [f"{key} {' '.join(map(str, values))}" for key, values in figures.items() if values[0] is not None]
        held = [f"process {pid} {size}" for pid, size in self.processes]
        mig = ["nomig"] if self.mig == () else [f"mig {' '.join(map(str, one))}" for one in self.mig or ()]
        xids = [f"xid {number} {code}" for number, code in self.xids]
        return [f"gpu {self.uuid}", f"name {self.name}", f"pci {self.pci_bus_id}", *words, *held, *mig, *xids]


@dataclass(frozen=True, slots=True)
class Driver:
    """What the state file says. `init`: nvmlReturn_t of nvmlInit (9 not loaded, 18 driver/library version mismatch)."""

    cards: tuple[Card, ...] = ()
    version: str = "550.54.15"
    init: int = 0
    wedge_s: int = 0

    def write(self, path: Path) -> None:
        """Replaces the state file as a whole, so that no reader sees half of it."""
        lines = [f"driver {self.version}", "cuda 12040", f"init {self.init}", f"wedge {self.wedge_s}"]
        lines += [line for card in self.cards for line in card.lines()]
        staging = path.with_name(f".{path.name}.new")
        staging.write_text("\n".join(lines) + "\n")
        staging.replace(path)


def build(folder: Path) -> Built:
    """Compiles the library into `folder` unless a newer one is there."""
    library = folder / LIBRARY
    newest = max(path.stat().st_mtime for path in (SOURCE, SOURCE.with_suffix(".h")))
    if library.exists() and library.stat().st_mtime >= newest:
        return Built(folder)
    compiler = find_compiler()
    if compiler is None:
        return Built(None, "no C compiler: simulated GPUs need `cc`, `gcc`, `clang` or the Python package ziglang")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    staging = folder / f".{LIBRARY}.{os.getpid()}"
    command = [*compiler, "-shared", "-fPIC", "-O1", "-o", str(staging), str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S, check=False)
    if done.returncode:
        return Built(None, f"{compiler[0]} cannot build the simulated NVML: {done.stderr.strip()[-400:]}")
    staging.replace(library)
    return Built(folder)


def find_compiler() -> list[str] | None:
    for name in ("cc", "gcc", "clang"):
        if path := shutil.which(name):
            return [path]
    return [sys.executable, "-m", "ziglang", "cc"] if importlib.util.find_spec("ziglang") else None


@dataclass(frozen=True, slots=True)
class Simulation:
    """A built library and its state file: `environment` makes every process below see these GPUs."""

    library: Path
    state: Path
    environment: dict[str, str] = field(default_factory=dict)

    @classmethod
    def at(cls, library: Path, state: Path) -> Simulation:
        search = os.pathsep.join(filter(None, [str(library), os.environ.get("LD_LIBRARY_PATH")]))
        return cls(library, state, {"LD_LIBRARY_PATH": search, STATE_VARIABLE: str(state)})
