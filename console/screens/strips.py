"""A node's past as small charts: one row of them for each card and the machine, or all cards as one where many."""

from __future__ import annotations

import math
from collections.abc import Callable

from agent import wire
from console.fleet import Node
from console.format import age, percent, used_of
from console.screens.past import POINTS, Column, Past
from console.strings import _, plural
from console.widgets.levels import MEMORY_BAD, MEMORY_WARN, busy, fullest, memory, utilisation
from console.widgets.paint import EMPTY, Line, one_line, spread, wrapped
from console.widgets.strip import Strip, abreast

LEAST, MOST = 3, 12
"""Lines of one row: its title, and braille from two lines on"""
Row = tuple[Strip, Strip]
UNKNOWN: Column = [math.nan] * POINTS


def past_lines(past: Past, node: Node, width: int, height: int, fresh: bool) -> list[Line]:
    """`fresh`: the node tells now, so the right edge is now."""
    said = [line for text in remarks(past) for line in wrapped(text, width, "warn")]
    room = height - len(said) - 1
    rows = rows_for(past, node.state, room)
    if not rows or width < 24:
        return said[:height]
    each = min(MOST, room // len(rows))
    role = "accent" if fresh else "dim"
    lines = [line for row in rows for line in abreast(row, width, each, role)]
    return [*said, *lines, foot(past, width)]


def remarks(past: Past) -> list[str]:
    if past.trouble.startswith("this node does not understand"):
        return [_("The agent on this node is an older one that keeps no history: drawn is what it tells from now on.")]
    return [text for text in (past.trouble, past.note) if text]


def state_word(past: Past, fresh: bool) -> str:
    if not fresh:
        return _("stale") if not past.heard else _("history, stale")
    if past.future is not None and not past.heard:
        return _("reading…")
    return _("history and live") if past.heard else _("live")


def rows_for(past: Past, state: wire.NodeState, room: int) -> list[Row]:
    """As many as there is room for: each card, or all as one; the machine; nothing."""
    gpus = sorted((gpu for gpu in state.gpus.values() if not gpu.lost), key=lambda gpu: gpu.index)
    apart = [card(past, gpu) for gpu in gpus]
    machine = host(past, state.host)
    together = [all_cards(past, gpus)] if gpus else []
    for rows in ([*apart, machine], apart, [*together, machine], together):
        if rows and len(rows) * LEAST <= room:
            return rows
    return []


def card(past: Past, gpu: wire.Gpu) -> Row:
    name: Line = ((f"{gpu.index} ", "strong"), (one_line(gpu.name) or gpu.uuid, "warn" if gpu.simulated else "text"))
    held = past.columns.get(f"{gpu.uuid}/memory_used_bytes", UNKNOWN)
    top = gpu.memory_total_bytes or most(held)
    role = memory(gpu.memory_used_bytes, gpu.memory_total_bytes)[0][1]
    return (
        Strip(name, busy(gpu.utilisation_percent), past.columns.get(f"{gpu.uuid}/utilisation_percent", UNKNOWN), 100.0),
        Strip(
            ((_("memory"), "dim"),), ((used_of(gpu.memory_used_bytes, gpu.memory_total_bytes), role),), held, float(top)
        ),
    )


def all_cards(past: Past, gpus: list[wire.Gpu]) -> Row:
    """Mean utilisation, and the memory of whichever was fullest."""
    busy_columns = [past.columns.get(f"{gpu.uuid}/utilisation_percent", UNKNOWN) for gpu in gpus]
    shares = [
        [value / gpu.memory_total_bytes for value in past.columns.get(f"{gpu.uuid}/memory_used_bytes", UNKNOWN)]
        for gpu in gpus
        if gpu.memory_total_bytes
    ]
    worst = fullest(gpus)
    now = memory(worst.memory_used_bytes, worst.memory_total_bytes) if worst is not None else EMPTY
    title = plural("{n} GPU, mean", "{n} GPUs, mean", len(gpus))
    return (
        Strip(((title, "text"),), busy(utilisation(gpus)), across(busy_columns, mean), 100.0),
        Strip(((_("fullest memory"), "dim"),), now, across(shares, max), 1.0),
    )


def host(past: Past, machine: wire.Host) -> Row:
    used = past.columns.get("host/ram_used_bytes", UNKNOWN)
    role = memory(machine.ram_used_bytes, machine.ram_total_bytes, MEMORY_WARN, MEMORY_BAD)[0][1]
    ram = used_of(machine.ram_used_bytes, machine.ram_total_bytes)
    return (
        Strip(
            ((_("Host CPU"), "text"),),
            ((percent(machine.cpu_percent), "text"),),
            past.columns.get("host/cpu_percent", UNKNOWN),
            100.0,
        ),
        Strip(((_("RAM"), "dim"),), ((ram, role),), used, float(machine.ram_total_bytes or most(used))),
    )


def across(columns: list[Column], chosen: Callable[[list[float]], float]) -> Column:
    """One column of several, by what is known of each point."""
    known = [[value for value in values if value == value] for values in zip(*columns, strict=True)] or [[]] * POINTS
    return [chosen(values) if values else math.nan for values in known]


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def most(column: Column) -> float:
    return max((value for value in column if value == value), default=1.0)


def foot(past: Past, width: int) -> Line:
    """Where time begins and ends, under each of the two."""
    each = (width - 2) // 2
    left: Line = ((" " + _("{age} ago").format(age=age(past.step_s * POINTS)), "dim"),)
    half = spread(left, ((_("now"), "dim"),), each)
    return (*half, ("  ", "text"), *half)
