"""What an Xid means for whoever trains on the card, and what to do: NVIDIA's names, the catalogue's remedies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.triage.catalogue import Kind

PROGRAM = frozenset({8, 13, 31, 32, 43, 45, 68, 69})
"""What the program did, or what was done to it; the card is well."""
NAMES = {
    8: "GPU stopped processing",
    13: "graphics engine exception",
    31: "GPU memory page fault",
    32: "corrupted push buffer stream",
    38: "driver firmware error",
    43: "a channel was reset",
    45: "a program was ended, after an earlier error or on demand",
    48: "double-bit ECC error",
    54: "auxiliary power is not connected",
    61: "internal micro-controller breakpoint",
    62: "internal micro-controller halt",
    63: "a bad row or page was noted, for the next reset to take out of use",
    64: "a bad row or page could not be noted",
    68: "video decoder exception",
    69: "graphics engine class error",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    92: "high rate of single-bit ECC errors",
    94: "contained memory error",
    95: "uncontained memory error",
    109: "context switch timeout",
    110: "security fault",
    119: "GPU system processor (GSP) timeout",
    120: "GPU system processor (GSP) error",
    121: "C2C link error",
    136: "link training failed",
    137: "NVLink privilege error",
    140: "unrecovered ECC error",
    143: "GPU initialisation error",
    **dict.fromkeys(range(144, 151), "NVLink error"),
    154: "the way to recover the GPU changed",
    171: "uncorrectable error in DRAM",
    172: "uncorrectable error in SRAM",
}
"""docs.nvidia.com/deploy/xid-errors"""
ADVICE = {
    8: "restart the program; if it repeats, run field diagnostics",
    43: "look at the Xid or the program's error before it: this one follows",
    45: "look at the Xid or the program's error before it: this one follows",
    54: "check the card's power cables",
    63: "reset the GPU when its runs are over: nvidia-smi --gpu-reset -i <gpu>",
    68: "restart the program; if it repeats, run field diagnostics",
    94: "restart the program; reset the GPU when its other runs are over",
    109: "restart the program; if it repeats, reset the GPU",
    137: "find it with compute-sanitizer; the GPU is not at fault",
    154: "do what the driver says: reset the GPU, or restart the node",
}
NOTICES = frozenset({63, 109, 137, 154})
"""No damage by themselves"""
UNLISTED = "look it up at docs.nvidia.com/deploy/xid-errors"


@dataclass(frozen=True, slots=True)
class Meaning:
    code: int
    title: str
    action: str
    hardware: bool
    """The card's own fault, not the program's"""

    @property
    def severity(self) -> str:
        return "critical" if self.hardware else "warn"

    def words(self, index: int | None = None) -> str:
        """`Xid 79, GPU has fallen off the bus: drain the node, …`"""
        name = f"Xid {self.code}" + (f", {self.title}" if self.title else "")
        return f"{name}: {self.action}".replace("<gpu>", "<gpu>" if index is None else str(index))


def meaning(code: int) -> Meaning:
    """Of an Xid nobody lists, its number alone: whether the card or the program is at fault is not known then."""
    from agent.triage.rules_gpu import XIDS  # a second of work and 8 MB, on nodes that never need it

    known = fault(XIDS.get(code, ""))
    action = ADVICE.get(code) or (known.remedy if known is not None else UNLISTED)
    title = NAMES.get(code) or (known.title if known is not None else "")
    hardware = code not in PROGRAM | NOTICES and (known is not None or code in NAMES)
    return Meaning(code, title, action, hardware)


def switch_action() -> str:
    """What to do after a fatal SXid of an NVSwitch."""
    known = fault("nvswitch.fault")
    return known.remedy if known is not None else UNLISTED


def fault(kind: str) -> Kind | None:
    from agent.triage import catalogue  # as above

    return catalogue.load().kinds.get(kind)
