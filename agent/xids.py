"""Xids as NVML hands them out, each once, to whoever registered before: no root and no kernel log needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from agent.nvml import answer

MOST = 64
"""A card that fails in a loop must not keep the probe from its figures."""


@dataclass(frozen=True, slots=True)
class Xid:
    uuid: str
    code: int


class Xids:
    """An event set over the cards given. Without one (WSL, vGPU, an old driver) `take` has nothing."""

    def __init__(self, nv: ModuleType, cards: Sequence[Any]) -> None:
        self.nv = nv
        self.set = answer(nv, nv.nvmlEventSetCreate)
        registered = [card for card in cards if self.set is not None and self.register(card)]
        self.known = bool(registered)

    def register(self, card: Any) -> bool:
        """A card that is lost, or does not tell Xids, is no reason to miss those of the others."""
        try:
            self.nv.nvmlDeviceRegisterEvents(card, self.nv.nvmlEventTypeXidCriticalError, self.set)
        except self.nv.NVMLError:
            return False
        return True

    def take(self) -> tuple[Xid, ...]:
        """Those that came since the last look; waits for none."""
        found: list[Xid] = []
        while self.known and len(found) < MOST:
            try:
                told = self.nv.nvmlEventSetWait(self.set, 0)
                found.append(Xid(str(self.nv.nvmlDeviceGetUUID(told.device)), int(told.eventData)))
            except self.nv.NVMLError as error:
                # the usual end is a timeout; a lost card can also end the set, whose Xid the kernel log still tells
                self.known = error.value == self.nv.NVML_ERROR_TIMEOUT
                break
        return tuple(found)
