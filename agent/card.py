"""The figures of one card: those that change each second, and those that do not and cost more."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

from agent.nvml import answer, number, whole, word
from agent.wire import MigInstance

T = TypeVar("T")
MIB = 1 << 20
CAUSES = (0, 1)
"""Pages retired for multiple single-bit errors, and for a double-bit one: nvmlPageRetirementCause, nvml.h"""
UNLIKELY_C = 1000
"""Cards without a sensor were seen to tell nonsense instead of an error."""
THROTTLE = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
}
"""nvmlClocksEventReasons, nvml.h; idle (0x1) and application clocks (0x2) are no throttling."""


class Card:
    """`quick` and `slow` are fields of wire.Gpu by name; both raise NVMLError when the card is lost."""

    def __init__(self, nv: ModuleType, handle: Any) -> None:
        self.nv, self.handle = nv, handle

    def of(self, call: Callable[..., T], *more: Any) -> T | None:
        return answer(self.nv, lambda: call(self.handle, *more))

    def quick(self) -> dict[str, Any]:
        nv = self.nv
        rates = self.of(nv.nvmlDeviceGetUtilizationRates)
        power, limit = self.of(nv.nvmlDeviceGetPowerUsage), self.of(nv.nvmlDeviceGetEnforcedPowerLimit)
        reasons = self.of(nv.nvmlDeviceGetCurrentClocksThrottleReasons) or 0
        return {
            **self.memory(),
            "utilisation_percent": float(rates.gpu) if rates is not None else None,
            "temperature_c": number(self.of(nv.nvmlDeviceGetTemperature, nv.NVML_TEMPERATURE_GPU)),
            "power_w": float(round(power / 1000)) if power is not None else None,
            "power_limit_w": float(round(limit / 1000)) if limit is not None else None,
            "sm_clock_mhz": number(self.of(nv.nvmlDeviceGetClockInfo, nv.NVML_CLOCK_SM)),
            "throttle": tuple(name for bit, name in THROTTLE.items() if reasons & bit),
        }

    def memory(self) -> dict[str, int | None]:
        """As nvidia-smi counts: what driver and firmware hold back is not called used. Drivers before 510: it is."""
        nv = self.nv
        room = self.of(nv.nvmlDeviceGetMemoryInfo, nv.nvmlMemory_v2)
        reserved = whole(getattr(room, "reserved", None))
        room = room if room is not None else self.of(nv.nvmlDeviceGetMemoryInfo)
        return {
            "memory_total_bytes": int(room.total) if room is not None else None,
            "memory_used_bytes": int(room.used) // MIB * MIB if room is not None else None,
            "memory_reserved_bytes": reserved // MIB * MIB if reserved is not None else None,
        }

    def slow(self) -> dict[str, Any]:
        nv = self.nv
        pci, bar1 = self.of(nv.nvmlDeviceGetPciInfo), self.of(nv.nvmlDeviceGetBAR1MemoryInfo)
        coding, decoding = self.of(nv.nvmlDeviceGetEncoderUtilization), self.of(nv.nvmlDeviceGetDecoderUtilization)
        slows = self.of(nv.nvmlDeviceGetTemperatureThreshold, nv.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)
        mode, kept = self.of(nv.nvmlDeviceGetMigMode), self.of(nv.nvmlDeviceGetPersistenceMode)
        return {
            "name": str(self.of(nv.nvmlDeviceGetName) or ""),
            "pci_bus_id": word(pci.busId) if pci is not None else "",
            "bar1_total_bytes": int(bar1.bar1Total) if bar1 is not None else None,
            "bar1_used_bytes": int(bar1.bar1Used) if bar1 is not None else None,
            "encoder_percent": float(coding[0]) if coding is not None else None,
            "decoder_percent": float(decoding[0]) if decoding is not None else None,
            "temperature_memory_c": self.memory_temperature(),
            "temperature_slowdown_c": number(slows),
            "sm_clock_max_mhz": number(self.of(nv.nvmlDeviceGetMaxClockInfo, nv.NVML_CLOCK_SM)),
            "memory_clock_mhz": number(self.of(nv.nvmlDeviceGetClockInfo, nv.NVML_CLOCK_MEM)),
            **self.errors(),
            **self.pcie(),
            **self.nvlink(),
            "mig": self.instances() if mode is not None and mode[0] else (),
            "mig_mode": bool(mode[0]) if mode is not None else None,
            "persistence": bool(kept) if kept is not None else None,
            "serial": str(self.of(nv.nvmlDeviceGetSerial) or ""),
            "vbios": str(self.of(nv.nvmlDeviceGetVbiosVersion) or ""),
        }

    def memory_temperature(self) -> float | None:
        nv = self.nv
        told = self.of(nv.nvmlDeviceGetFieldValues, [nv.NVML_FI_DEV_MEMORY_TEMP])
        if not told or told[0].nvmlReturn != nv.NVML_SUCCESS:
            return None
        return float(told[0].value.uiVal) if 0 < told[0].value.uiVal < UNLIKELY_C else None

    def errors(self) -> dict[str, int | None]:
        nv = self.nv

        def counted(kind: int) -> int | None:
            return whole(self.of(nv.nvmlDeviceGetTotalEccErrors, kind, nv.NVML_AGGREGATE_ECC))

        rows = self.of(nv.nvmlDeviceGetRemappedRows)
        pages = [self.of(nv.nvmlDeviceGetRetiredPages, cause) for cause in CAUSES]
        pending = rows[2] if rows is not None else self.of(nv.nvmlDeviceGetRetiredPagesPendingStatus)
        return {
            "ecc_corrected": counted(nv.NVML_MEMORY_ERROR_TYPE_CORRECTED),
            "ecc_uncorrected": counted(nv.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
            "remapped_rows": int(rows[1]) if rows is not None else None,
            "remap_pending": whole(pending),
            "remap_failed": int(rows[3]) if rows is not None else None,
            "retired_pages": sum(len(some) for some in pages if some is not None) if pages != [None, None] else None,
        }

    def pcie(self) -> dict[str, int | None]:
        nv = self.nv
        return {
            "pcie_gen": whole(self.of(nv.nvmlDeviceGetCurrPcieLinkGeneration)),
            "pcie_gen_max": whole(self.of(nv.nvmlDeviceGetMaxPcieLinkGeneration)),
            "pcie_width": whole(self.of(nv.nvmlDeviceGetCurrPcieLinkWidth)),
            "pcie_width_max": whole(self.of(nv.nvmlDeviceGetMaxPcieLinkWidth)),
            "pcie_replays": whole(self.of(nv.nvmlDeviceGetPcieReplayCounter)),
        }

    def nvlink(self) -> dict[str, int | None]:
        """Links that a card does not have answer "not supported"; errors only of those that are up."""
        nv = self.nv
        kinds = (nv.NVML_NVLINK_ERROR_DL_REPLAY, nv.NVML_NVLINK_ERROR_DL_RECOVERY, nv.NVML_NVLINK_ERROR_DL_CRC_FLIT)
        states = {link: self.of(nv.nvmlDeviceGetNvLinkState, link) for link in range(nv.NVML_NVLINK_MAX_LINKS)}
        known = {link: bool(state) for link, state in states.items() if state is not None}
        up = [link for link, active in known.items() if active]
        told = [self.of(nv.nvmlDeviceGetNvLinkErrorCounter, link, kind) for link in up for kind in kinds]
        counted = [int(one) for one in told if one is not None]
        return {
            "nvlinks": len(known),
            "nvlinks_down": len(known) - len(up) if known else None,
            "nvlink_errors": sum(counted) if counted else None,
        }

    def instances(self) -> tuple[MigInstance, ...]:
        nv = self.nv
        most = self.of(nv.nvmlDeviceGetMaxMigDeviceCount) or 0
        found = [self.of(nv.nvmlDeviceGetMigDeviceHandleByIndex, at) for at in range(most)]
        return tuple(instance(nv, one) for one in found if one is not None)


def instance(nv: ModuleType, handle: Any) -> MigInstance:
    room = answer(nv, lambda: nv.nvmlDeviceGetMemoryInfo(handle))
    name = str(answer(nv, lambda: nv.nvmlDeviceGetName(handle)) or "")
    return MigInstance(
        uuid=str(answer(nv, lambda: nv.nvmlDeviceGetUUID(handle)) or ""),
        profile=name.rpartition(" MIG ")[2],
        memory_total_bytes=int(room.total) if room is not None else None,
        memory_used_bytes=int(room.used) // MIB * MIB if room is not None else None,
    )
