"""When a figure deserves a colour, and the sign that goes with it: colour is never alone."""

from __future__ import annotations

from agent import wire
from console.format import UNKNOWN, fraction, percent, temperature
from console.widgets.paint import Line

MEMORY_WARN, MEMORY_BAD = 0.90, 0.97
"""Of a GPU's memory: nearly full is the danger, high utilisation is what one pays for"""
HOT_C, TOO_HOT_C = 83.0, 90.0
"""Data-centre cards begin to slow down near 85–90 °C"""
DISK_WARN, DISK_BAD = 0.90, 0.97
_MARK = {"warn": "!", "bad": "‼"}


def level(value: float | None, warn: float, bad: float) -> str:
    """Role of a figure where more is worse."""
    if value is None:
        return "dim"
    return "bad" if value >= bad else "warn" if value >= warn else "text"


def marked(text: str, role: str) -> Line:
    return ((text + _MARK.get(role, ""), role),)


def memory(used: float | None, total: float | None, warn: float = MEMORY_WARN, bad: float = MEMORY_BAD) -> Line:
    """How full, in percent."""
    ratio = fraction(used, total)
    return marked(percent(None if ratio is None else ratio * 100), level(ratio, warn, bad))


def heat(value_c: float | None) -> Line:
    return marked(temperature(value_c), level(value_c, HOT_C, TOO_HOT_C))


def busy(value: float | None) -> Line:
    """Utilisation, high is good."""
    return ((percent(value), "dim" if value is None else "ok" if value >= 50 else "text"),)


def utilisation(gpus: list[wire.Gpu]) -> float | None:
    known = [gpu.utilisation_percent for gpu in gpus if gpu.utilisation_percent is not None]
    return sum(known) / len(known) if known else None


def fullest(gpus: list[wire.Gpu]) -> wire.Gpu | None:
    """The card with the least free memory in proportion."""
    ratios = [(fraction(gpu.memory_used_bytes, gpu.memory_total_bytes), gpu) for gpu in gpus]
    known = [(ratio, gpu) for ratio, gpu in ratios if ratio is not None]
    return max(known, key=lambda pair: (pair[0], pair[1].uuid), default=(0.0, None))[1]


_PHASES = {
    "live": ("●", "ok"),
    "connecting": ("◌", "dim"),
    "carrying": ("◐", "accent"),
    "stale": ("◍", "warn"),
    "down": ("✕", "bad"),
}


def phase(name: str) -> Line:
    """State of a link as sign and word."""
    sign, role = _PHASES.get(name, ("?", "warn"))
    return ((f"{sign} {name}", role),)


_RUN_SIGNS = {
    "starting": ("◌", "accent"),
    "loading": ("◌", "accent"),
    "training": ("▶", "ok"),
    "saving": ("▶", "ok"),
    "stopping": ("◼", "warn"),
    "completed": ("✓", "ok"),
    "stopped": ("◼", "dim"),
    "killed": ("◼", "dim"),
    "failed": ("✕", "bad"),
    "lost": ("?", "bad"),
}


def run_phase(run: wire.RunState) -> Line:
    """State of a run as sign and word: its phase, or how it ended."""
    word = run.reason or run.phase if run.phase == "ended" else run.phase
    sign, role = _RUN_SIGNS.get(word, ("?", "warn"))
    return ((f"{sign} {word or UNKNOWN}", role),)
