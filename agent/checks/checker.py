"""Runs checks beside each other, each within its own deadline. One that hangs holds up nobody and says so."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from agent.checks import (
    clock,
    disk,
    driver,
    gpus,
    kernel,
    leftovers,
    limits,
    memory,
    network,
    nvlink,
    pcie,
    rdma,
)
from agent.checks.check import Probe, Told, unknown
from agent.checks.scene import Scene
from agent.node_state import Check
from agent.refusal import Refusal

LOG = logging.getLogger("agent")
FAMILIES: Mapping[str, tuple[Probe, ...]] = {
    "driver": driver.PROBES,
    "gpus": gpus.PROBES,
    "pcie": pcie.PROBES,
    "nvlink": nvlink.PROBES,
    "limits": limits.PROBES,
    "memory": memory.PROBES,
    "disk": disk.PROBES,
    "network": network.PROBES,
    "rdma": rdma.PROBES,
    "clock": clock.PROBES,
    "kernel": kernel.PROBES,
    "leftovers": leftovers.PROBES,
}


@dataclass(slots=True)
class Look:
    """One probe on a thread of its own."""

    family: str
    probe: Probe
    began: float
    thread: threading.Thread | None = None
    told: Mapping[str, Told] | None = None

    def run(self, scene: Scene) -> None:
        try:
            self.told = self.probe.look(scene)
        except (OSError, ValueError) as error:
            words = f"cannot be found out: {getattr(error, 'strerror', None) or error}"
            self.told = {name: unknown(words) for name in self.probe.names}
        except Exception as error:
            LOG.exception("check %s/%s", self.family, self.probe.names[0])
            words = f"the check itself failed: {type(error).__name__}: {error}"
            self.told = {name: unknown(words, "", "See serve.log on the node.") for name in self.probe.names}

    def checks(self) -> list[Check]:
        told = self.told
        if told is None:
            words = f"did not answer within {self.probe.deadline_s:.0f} s"
            waits = f"waiting for {time.monotonic() - self.began:.0f} s"
            told = {
                name: unknown(words, waits, "Look for processes in state D: ps -eo state,pid,wchan,cmd")
                for name in self.probe.names
            }
        return [
            Check(self.family, name, one.health, one.reason, one.evidence, one.action)
            for name in self.probe.names
            if (one := told.get(name)) is not None
        ]


@dataclass(slots=True)
class Checker:
    """`hung` keeps what never came back, so that no second one is sent to wait beside it."""

    families: Mapping[str, tuple[Probe, ...]] = field(default_factory=lambda: FAMILIES)
    hung: dict[Probe, Look] = field(default_factory=dict)

    def run(self, scene: Scene, families: Iterable[str] = ()) -> list[Check]:
        """All checks of these families, or of all. Takes as long as the longest deadline. Raises Refusal."""
        wanted = self.wanted(families)
        looks = [self.begin(family, one, scene) for family in wanted for one in self.families[family]]
        for look in looks:
            if look.thread is not None:
                look.thread.join(max(0.0, look.began + look.probe.deadline_s - time.monotonic()))
        self.hung = {look.probe: look for look in looks if look.told is None}
        return [check for look in looks for check in look.checks()]

    def wanted(self, families: Iterable[str]) -> list[str]:
        named = list(dict.fromkeys(families))
        if strange := [name for name in named if name not in self.families]:
            raise Refusal(f"there are no checks called {', '.join(strange)}", f"There are {', '.join(self.families)}.")
        return named or list(self.families)

    def begin(self, family: str, probe: Probe, scene: Scene) -> Look:
        before = self.hung.get(probe)
        if before is not None and before.thread is not None and before.thread.is_alive():
            return before
        look = Look(family, probe, time.monotonic())
        look.thread = threading.Thread(target=look.run, args=(scene,), name=f"check-{family}", daemon=True)
        look.thread.start()
        return look
