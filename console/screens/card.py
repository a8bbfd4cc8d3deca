"""A GPU in rows: its figures, what else it tells, and what is not as it should be. Pure: record in, lines out."""

from __future__ import annotations

from agent import wire
from console.format import fraction, percent, power, size, used_of
from console.strings import _
from console.widgets.levels import MEMORY_BAD, MEMORY_WARN, busy, heat, level
from console.widgets.paint import Line, aligned, bar, cells, crop, join, one_line

DETAILS_FROM = 90
"""Columns: narrower, a card's row of details would push others off the screen."""


def gpu_lines(gpu: wire.Gpu, width: int) -> list[Line]:
    """A card in two rows, or one where it does not answer."""
    name = one_line(gpu.name) or gpu.uuid
    left: Line = ((f"{gpu.index:>2} ", "strong"), (name, "warn" if gpu.simulated else "text"))
    if gpu.lost:
        return [crop(join([left, ((f"✕ {one_line(gpu.lost)}", "bad"),)]), width)]
    watts = power(gpu.power_w) + (f" / {power(gpu.power_limit_w)}" if gpu.power_limit_w is not None else "")
    right = (*aligned(heat(gpu.temperature_c), 6, right=True), *aligned(((watts, "text"),), 16, right=True))
    head = crop(join([left, *complaints(gpu)]), width - cells(right) - 2)
    lines: list[Line] = [(*head, ("  ", "text"), *right), gpu_bars(gpu, width)]
    if width >= DETAILS_FROM and (more := gpu_details(gpu)):
        lines.append(crop((("   ", "text"), *more), width))
    return lines + [instance_line(one, width) for one in gpu.mig]


def complaints(gpu: wire.Gpu) -> list[Line]:
    """What is not as it should be, in words."""
    said = [
        (_("slowed: ") + ", ".join(gpu.throttle), "warn", bool(gpu.throttle)),
        (_("Xid {n}").format(n=gpu.xid), "bad" if gpu.xids_hardware else "warn", gpu.xid is not None),
        (_("ECC {n}!").format(n=gpu.ecc_uncorrected), "bad", bool(gpu.ecc_uncorrected)),
        (_("no spare memory rows"), "bad", bool(gpu.remap_failed)),
        (_("bad memory waits for a reset"), "warn", bool(gpu.remap_pending)),
        (_("{n} NVLinks down").format(n=gpu.nvlinks_down), "warn", bool(gpu.nvlinks_down)),
    ]
    return [((text, role),) for text, role, so in said if so]


def gpu_details(gpu: wire.Gpu) -> Line:
    """What else the card tells, in one row; what it does not tell is left out."""
    links = None if not gpu.nvlinks else f"{gpu.nvlinks - (gpu.nvlinks_down or 0)}/{gpu.nvlinks}"
    bus = None if gpu.pcie_gen is None else f"{gpu.pcie_gen}x{gpu.pcie_width}"
    clocks = None if gpu.sm_clock_mhz is None else f"{gpu.sm_clock_mhz:.0f}"
    most = "" if gpu.sm_clock_max_mhz is None else f"/{gpu.sm_clock_max_mhz:.0f}"
    slows = gpu.temperature_slowdown_c
    items = [
        (_("SM busy"), None if gpu.sm_active_percent is None else percent(gpu.sm_active_percent)),
        (_("clock"), None if clocks is None else f"{clocks}{most} MHz"),
        (_("slows at"), None if slows is None else f"{slows:.0f} °C"),
        (_("HBM"), None if gpu.temperature_memory_c is None else f"{gpu.temperature_memory_c:.0f} °C"),
        ("PCIe", bus),
        ("NVLink", links),
        ("ECC", None if gpu.ecc_corrected is None else f"{gpu.ecc_corrected}/{gpu.ecc_uncorrected}"),
        (_("rows"), None if gpu.remapped_rows is None else str(gpu.remapped_rows)),
        (_("held back"), None if not gpu.memory_reserved_bytes else size(gpu.memory_reserved_bytes)),
    ]
    return join([((f"{name} ", "dim"), (said, "text")) for name, said in items if said is not None], "  ")


def instance_line(one: wire.MigInstance, width: int) -> Line:
    figures = used_of(one.memory_used_bytes, one.memory_total_bytes)
    return crop(
        ((f"   MIG {one_line(one.profile):<10}", "dim"), (figures, "text"), (f"  {one_line(one.uuid)}", "dim")), width
    )


def gpu_bars(gpu: wire.Gpu, width: int) -> Line:
    figures = used_of(gpu.memory_used_bytes, gpu.memory_total_bytes)
    room = max(8, width - 34)
    full = fraction(gpu.memory_used_bytes, gpu.memory_total_bytes)
    role = level(full, MEMORY_WARN, MEMORY_BAD)
    used = gpu.utilisation_percent
    return crop(
        (
            ("   util ", "dim"),
            *bar(None if used is None else used / 100, room // 2, "accent"),
            *aligned(busy(used), 5, right=True),
            ("  mem ", "dim"),
            *bar(full, room - room // 2, "accent" if role == "text" else role),
            *aligned(((figures, role),), 15, right=True),
        ),
        width,
    )
