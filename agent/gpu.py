"""NVML to records. Runs only in the probe child: a driver that does not answer holds that process, never the daemon."""

from __future__ import annotations

import pwd
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from agent.wire import Gpu, GpuProcess

T = TypeVar("T")
MIB = 1 << 20
NO_DRIVER = "no NVIDIA driver on this node"
INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""PROC_PID_INIT_INO, include/linux/proc_ns.h: pids mean there what the driver means."""

THROTTLE = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
}
"""nvmlClocksEventReasons, nvml.h; idle (0x1) and application clocks (0x2) are no throttling."""


@dataclass(frozen=True, slots=True)
class Sample:
    """All GPUs at one moment, by UUID; `note` says in words why there are none."""

    gpus: dict[str, Gpu] = field(default_factory=dict)
    note: str = ""


class Nvml:
    """NVML, initialised when first needed and again after the driver went away."""

    def __init__(self) -> None:
        self.library: ModuleType | None = None
        self.handles: list[Any] = []
        self.processes: dict[int, tuple[GpuProcess, ...]] = {}
        self.count = 0

    def sample(self) -> Sample:
        """Never raises for what a driver says: it becomes a note, or a card's `lost`."""
        note = self.open()
        if note:
            return Sample(note=note)
        assert self.library is not None
        self.count += 1
        found: dict[str, Gpu] = {}
        for index in range(len(self.handles)):
            gpu = self.read(index)
            found[gpu.uuid] = gpu
        return Sample(found)

    def open(self) -> str:
        """Why NVML cannot be used; empty when it can."""
        if self.library is not None:
            return ""
        try:
            import pynvml
        except ImportError:
            return "no GPU figures: the package nvidia-ml-py is not in this agent"
        try:
            pynvml.nvmlInit()
            self.handles = [handle(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())]
        except pynvml.NVMLError as error:
            return why(pynvml, error)
        self.library = pynvml
        return ""

    def read(self, index: int) -> Gpu:
        """One card; an error of its own blanks only itself."""
        nv, card = self.library, self.handles[index]
        assert nv is not None
        if isinstance(card, nv.NVMLError):
            return Gpu(uuid=f"unknown-{index}", index=index, lost=text(card))
        try:
            return self.figures(nv, card, index)
        except nv.NVMLError as error:
            if error.value in (nv.NVML_ERROR_DRIVER_NOT_LOADED, nv.NVML_ERROR_UNINITIALIZED):
                self.library = None  # reloaded or gone: begin anew with the next sample
            return Gpu(uuid=self.remembered(nv, card, index), index=index, lost=text(error))

    def remembered(self, nv: ModuleType, card: Any, index: int) -> str:
        """The UUID, which NVML may still tell of a lost card."""
        try:
            return str(nv.nvmlDeviceGetUUID(card))
        except nv.NVMLError:
            return UUIDS.get(index, f"unknown-{index}")

    def figures(self, nv: ModuleType, card: Any, index: int) -> Gpu:
        def ask(call: Callable[[Any], T]) -> T | None:
            return answer(nv, lambda: call(card))

        uuid = str(nv.nvmlDeviceGetUUID(card))
        UUIDS[index] = uuid
        memory = ask(nv.nvmlDeviceGetMemoryInfo)
        rates = ask(nv.nvmlDeviceGetUtilizationRates)
        power, limit = ask(nv.nvmlDeviceGetPowerUsage), ask(nv.nvmlDeviceGetEnforcedPowerLimit)
        reasons = ask(nv.nvmlDeviceGetCurrentClocksThrottleReasons) or 0
        pci = ask(nv.nvmlDeviceGetPciInfo)
        if self.count % 2 == 1 or index not in self.processes:  # the dearest call: no faster than every 2 s
            held = ask(nv.nvmlDeviceGetComputeRunningProcesses)
            if held is None:  # drivers before 510 have only the second version of the call
                held = ask(nv.nvmlDeviceGetComputeRunningProcesses_v2)
            self.processes[index] = tuple(process(one) for one in held or ())
        return Gpu(
            uuid=uuid,
            index=index,
            name=str(ask(nv.nvmlDeviceGetName) or ""),
            pci_bus_id=word(pci.busId) if pci is not None else "",
            memory_total_bytes=int(memory.total) if memory is not None else None,
            memory_used_bytes=int(memory.used) // MIB * MIB if memory is not None else None,
            utilisation_percent=float(rates.gpu) if rates is not None else None,
            temperature_c=number(ask(lambda c: nv.nvmlDeviceGetTemperature(c, nv.NVML_TEMPERATURE_GPU))),
            power_w=float(round(power / 1000)) if power is not None else None,
            power_limit_w=float(round(limit / 1000)) if limit is not None else None,
            sm_clock_mhz=number(ask(lambda c: nv.nvmlDeviceGetClockInfo(c, nv.NVML_CLOCK_SM))),
            throttle=tuple(name for bit, name in THROTTLE.items() if reasons & bit),
            ecc_uncorrected=ask(
                lambda c: int(
                    nv.nvmlDeviceGetTotalEccErrors(c, nv.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nv.NVML_AGGREGATE_ECC)
                )
            ),
            processes=self.processes[index],
        )


UUIDS: dict[int, str] = {}
"""Of cards seen before, so that a card keeps its name when it is lost."""


def handle(nv: ModuleType, index: int) -> Any:
    """The card's handle, or the error that there is instead of one."""
    try:
        return nv.nvmlDeviceGetHandleByIndex(index)
    except nv.NVMLError as error:
        return error


def answer(nv: ModuleType, call: Callable[[], T]) -> T | None:
    """The one policy for errors: a card that is gone raises, anything else it cannot tell is None."""
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


def process(raw: Any) -> GpuProcess:
    """A process as the driver counts pids; named only where its pid means the same here."""
    memory = getattr(raw, "usedGpuMemory", None)
    pid = int(raw.pid)
    named = NAMES_MEAN_THE_SAME or holds_gpu(pid)
    return GpuProcess(
        pid=pid,
        memory_bytes=int(memory) // MIB * MIB if memory is not None else None,
        name=command_name(pid) if named else "",
        user=owner(pid) if named else "",
    )


def in_initial_namespace() -> bool:
    try:
        return str(Path("/proc/self/ns/pid").readlink()) == INITIAL_PID_NAMESPACE
    except OSError:
        return False


NAMES_MEAN_THE_SAME = in_initial_namespace()


def holds_gpu(pid: int) -> bool:
    """In a container the driver's pid may name a stranger here: only a process with the device open is meant."""
    folder = Path(f"/proc/{pid}/fd")
    try:
        return any(str(entry.readlink()).startswith("/dev/nvidia") for entry in folder.iterdir())
    except OSError:
        return False


def command_name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return ""


def owner(pid: int) -> str:
    try:
        uid = Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return ""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
