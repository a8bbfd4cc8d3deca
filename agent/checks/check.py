"""What a check says: how it stands, why, what was seen and what to do; and what a family is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import configs
from agent.checks.scene import Scene

GOOD, WATCH, FAULT, UNKNOWN = "good", "watch", "fault", "unknown"
QUICK_S = 4.0
"""What reads a few files in /proc and /sys is over in milliseconds, or hangs."""


@dataclass(frozen=True, slots=True)
class Told:
    """`reason` is the same on nodes that are alike; what differs between them stands in `evidence`."""

    health: str
    """good | watch | fault | unknown"""
    reason: str
    evidence: str = ""
    action: str = ""


@dataclass(frozen=True, slots=True)
class Probe:
    """What is looked at in one go. `look` leaves out the names that do not apply to this node; may raise OSError."""

    names: tuple[str, ...]
    look: Callable[[Scene], Mapping[str, Told]]
    deadline_s: float = QUICK_S


def probe(name: str, look: Callable[[Scene], Told | None], deadline_s: float = QUICK_S) -> Probe:
    """One check by itself; None where it does not apply."""

    def looked(scene: Scene) -> Mapping[str, Told]:
        told = look(scene)
        return {} if told is None else {name: told}

    return Probe((name,), looked, deadline_s)


def good(reason: str, evidence: str = "") -> Told:
    return Told(GOOD, reason, evidence)


def watch(reason: str, evidence: str = "", action: str = "") -> Told:
    return Told(WATCH, reason, evidence, action)


def fault(reason: str, evidence: str = "", action: str = "") -> Told:
    return Told(FAULT, reason, evidence, action)


def unknown(reason: str, evidence: str = "", action: str = "") -> Told:
    return Told(UNKNOWN, reason, evidence, action)


def figure(name: str) -> float:
    """A threshold or expected value from configs/checks.yaml, where its source stands."""
    return float(configs.load("checks.yaml")["figures"][name]["value"])
