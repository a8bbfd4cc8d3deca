"""NVML to records. Runs only in the probe child: a driver that does not answer holds that process, never the daemon."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from agent.card import Card
from agent.gpm import Activity
from agent.holder import process
from agent.nvml import answer, text, why, word
from agent.wire import Gpu, GpuProcess
from agent.xids import Xid, Xids

SLOW_EVERY = 10
"""Samples between two looks at what changes slowly; each card has its own turn, so that none of them is dear."""
PROCESSES_EVERY = 2
"""The dearest of the quick calls: 4.5 ms on a laptop's card (MangoHud #2104)"""


@dataclass(frozen=True, slots=True)
class Sample:
    """All GPUs at one moment, by UUID; `note` says in words why there are none."""

    gpus: dict[str, Gpu] = field(default_factory=dict)
    note: str = ""
    xids: tuple[Xid, ...] = ()
    """New with this sample"""
    tells_xids: bool = False
    """Whether the driver hands them out here"""
    driver_version: str = ""
    cuda_version: str = ""


class Nvml:
    """NVML, initialised when first needed and again after the driver went away."""

    def __init__(self) -> None:
        self.library: ModuleType | None = None
        self.handles: list[Any] = []
        self.xids: Xids | None = None
        self.versions = ("", "")
        self.activities: dict[int, Activity] = {}
        self.processes: dict[int, tuple[GpuProcess, ...]] = {}
        self.slow: dict[int, dict[str, Any]] = {}
        self.count = 0

    def sample(self) -> Sample:
        """Never raises for what a driver says: it becomes a note, or a card's `lost`."""
        note = self.open()
        if note:
            return Sample(note=note)
        assert self.library is not None and self.xids is not None
        self.count += 1
        xids = self.xids.take()
        gpus = [self.read(index) for index in range(len(self.handles))]
        return Sample({gpu.uuid: gpu for gpu in gpus}, "", xids, self.xids.known, *self.versions)

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
            self.xids = Xids(pynvml, [one for one in self.handles if not isinstance(one, pynvml.NVMLError)])
            self.versions = versions(pynvml)
        except pynvml.NVMLError as error:
            return why(pynvml, error)
        self.library = pynvml
        self.activities, self.processes, self.slow = {}, {}, {}
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

    def figures(self, nv: ModuleType, handle: Any, index: int) -> Gpu:
        uuid = str(nv.nvmlDeviceGetUUID(handle))
        UUIDS[index] = uuid
        card = Card(nv, handle)
        if index not in self.slow or (self.count + index) % SLOW_EVERY == 0:
            self.slow[index] = card.slow()
        if index not in self.processes or self.count % PROCESSES_EVERY == 1:
            self.processes[index] = holders(card)
        if index not in self.activities:
            self.activities[index] = Activity(nv, handle)
        return Gpu(
            uuid=uuid,
            index=index,
            sm_active_percent=self.activities[index].percent(),
            processes=self.processes[index],
            **self.slow[index],
            **card.quick(),
        )


UUIDS: dict[int, str] = {}
"""Of cards seen before, so that a card keeps its name when it is lost."""


def handle(nv: ModuleType, index: int) -> Any:
    """The card's handle, or the error that there is instead of one."""
    try:
        return nv.nvmlDeviceGetHandleByIndex(index)
    except nv.NVMLError as error:
        return error


def holders(card: Card) -> tuple[GpuProcess, ...]:
    held = card.of(card.nv.nvmlDeviceGetComputeRunningProcesses)
    if held is None:  # drivers before 510 have only the second version of the call
        held = card.of(card.nv.nvmlDeviceGetComputeRunningProcesses_v2)
    return tuple(process(one) for one in held or ())


def versions(nv: ModuleType) -> tuple[str, str]:
    """Of the driver, and the newest CUDA that it serves: 12040 → 12.4."""
    driver = answer(nv, nv.nvmlSystemGetDriverVersion)
    cuda = answer(nv, nv.nvmlSystemGetCudaDriverVersion_v2)
    return word(driver or ""), f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else ""
