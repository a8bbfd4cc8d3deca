"""A machine in rows: processors, memory, disks, network, RDMA ports. Pure: record in, lines out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from agent import wire
from console.format import UNKNOWN, count, fraction, gigabits, gigabytes_s, percent, rate, size, used_of
from console.strings import _, plural
from console.widgets.levels import DISK_BAD, DISK_WARN, level, marked, memory
from console.widgets.paint import EMPTY, Line, aligned, bar, crop, heading, join, one_line, pairs

SHOWN = 4
"""Interfaces, and rows of ports; the rest is counted"""
COLUMNS_FROM = 100
"""Columns of the screen: from here on two ports stand in one row."""
SHM_FROM, SHM_WARN, SHM_BAD = 0.5, 0.8, 0.95
"""Of /dev/shm: once it is full, loader workers die of a bus error"""
FLAPS_STUCK = 255
"""Eight bits are all that InfiniBand gives to that counter"""
STEAL_WARN, STEAL_BAD = 5.0, 20.0
T = TypeVar("T", wire.Interface, wire.Port)


def host_lines(host: wire.Host, width: int) -> list[Line]:
    cpus = f" {host.cpu_count} CPU" if host.cpu_count is not None else ""
    load = UNKNOWN if host.load_1 is None else f"{host.load_1:.2f}"
    room = max(4, width // 2 - 27)
    items: list[tuple[str, Line]] = [
        ("CPU", (*bar(frac(host.cpu_percent), room, "accent"), (f" {percent(host.cpu_percent)}{cpus}", "text"))),
        (_("load"), ((load, "text"), (_(" over 1 min"), "dim"))),
        ("RAM", (*bar(fraction(host.ram_used_bytes, host.ram_total_bytes), room, "accent"), *ram(host))),
        (_("net"), ((f"↓ {rate(host.net_rx_bytes_s)}  ↑ {rate(host.net_tx_bytes_s)}", "text"),)),
        *now_and_then(host, room),
    ]
    lines = pairs(items, width, 5, columns=2 if width >= 64 else 1)
    lines += [disk_line(disk, width) for disk in host.disks]
    return lines + network_lines(host.interfaces, width)


def now_and_then(host: wire.Host, room: int) -> Iterable[tuple[str, Line]]:
    """What is told only where there is something to tell."""
    if host.disk_read_bytes_s is not None or host.disk_write_bytes_s is not None:
        words = _("r {read}  w {written}").format(
            read=rate(host.disk_read_bytes_s), written=rate(host.disk_write_bytes_s)
        )
        yield "I/O", ((words, "text"),)
    if host.swap_used_bytes:
        yield _("swap"), ((_("{size} used").format(size=size(host.swap_used_bytes)), "text"),)
    if host.cpu_steal_percent:
        role = level(host.cpu_steal_percent, STEAL_WARN, STEAL_BAD)
        yield _("steal"), (*marked(percent(host.cpu_steal_percent), role), (_(" taken by other machines"), "dim"))
    full = fraction(host.shm_used_bytes, host.shm_total_bytes)
    if full is not None and full > SHM_FROM:
        role = level(full, SHM_WARN, SHM_BAD)
        figures = marked(f" {used_of(host.shm_used_bytes, host.shm_total_bytes)}", role)
        yield "shm", (*bar(full, room, "accent" if role == "text" else role), *figures)


def frac(value: float | None) -> float | None:
    return None if value is None else value / 100


def ram(host: wire.Host) -> Line:
    return ((" " + used_of(host.ram_used_bytes, host.ram_total_bytes), "text"),)


def disk_line(disk: wire.Disk, width: int) -> Line:
    used = disk.total_bytes - disk.free_bytes
    full = fraction(used, disk.total_bytes)
    role = level(full, DISK_WARN, DISK_BAD)
    return crop(
        join(
            [
                (("disk  ", "dim"), *bar(full, max(4, width // 2 - 27), "accent" if role == "text" else role)),
                (*memory(used, disk.total_bytes, DISK_WARN, DISK_BAD), (_(" used, "), "dim")),
                (
                    (used_of(disk.free_bytes, disk.total_bytes) + _(" free"), "text"),
                    (f"  {one_line(disk.mount)}", "dim"),
                ),
            ],
            " ",
        ),
        width,
    )


def network_lines(interfaces: dict[str, wire.Interface], width: int) -> list[Line]:
    """One row each where there are several, the busy and the faulty first; a single one is in the machine's own row."""
    if len(interfaces) < 2:
        return []
    order = sorted(interfaces.values(), key=lambda one: (one.up is False, -traffic(one), -(one.errors or 0), one.name))
    lines = [crop(interface_line(one), width) for one in order[:SHOWN]]
    return lines + more(order[SHOWN:], lambda one: one.up is False, width)


def interface_line(one: wire.Interface) -> Line:
    sign = {True: ("● ", "ok"), False: ("✕ ", "dim"), None: ("? ", "dim")}[one.up]
    head = (("net   ", "dim"), sign, *aligned(((one_line(one.name), "text"),), 12))
    if one.up is False:
        return (*head, (_("down"), "dim"))
    lost = ((_("{n} lost").format(n=count(one.errors)), "dim"),) if one.errors else EMPTY
    speed = ((gigabits(one.speed_bits_s), "dim"),) if one.speed_bits_s is not None else EMPTY
    flow = ((f"↓ {rate(one.rx_bytes_s)}  ↑ {rate(one.tx_bytes_s)}", "text"),)
    return join([(*head, *aligned(flow, 32)), speed, lost])


def port_title(ports: dict[str, wire.Port]) -> str:
    """How many are active, and what all of them move."""
    active = [one for one in ports.values() if one.down == 0]
    rx, tx = (known_sum(values) for values in ([one.rx_bytes_s for one in active], [one.tx_bytes_s for one in active]))
    title = _("RDMA: {n} of {all} ports active").format(n=len(active), all=len(ports))
    return f"{title}  ↓ {gigabytes_s(rx)}  ↑ {gigabytes_s(tx)}" if rx is not None or tx is not None else title


def port_lines(ports: dict[str, wire.Port], width: int) -> list[Line]:
    """Nothing without ports. Those that went down first, then the faulty, then the busy; never active ones last."""
    if not ports:
        return []
    order = sorted(ports.values(), key=lambda one: (-rank(one), -faults(one), -traffic(one), one.device, one.port))
    columns = 2 if width >= COLUMNS_FROM else 1
    cells_each = width // columns
    kept, rest = order[: SHOWN * columns], order[SHOWN * columns :]
    shown = [crop(port_line(one), cells_each) for one in kept]
    rows = [tuple(span for line in shown[i : i + columns] for span in line) for i in range(0, len(shown), columns)]
    return [crop(heading(port_title(ports), width), width), *rows, *more(rest, lambda one: one.down != 0, width)]


def port_line(one: wire.Port) -> Line:
    name = aligned(((f"{one_line(one.device)}/{one.port}", "text"),), 14)
    where: Line = ((one_line(one.interface), "dim"),) if one.interface else EMPTY
    if one.down != 0:
        words = _("{state}: {physical}").format(state=one_line(one.state), physical=one_line(one.physical))
        role = "bad" if one.down else "dim"
        return join([((("✕ "), role), *name, (words, role)), where])
    flow = ((f"↓ {gigabytes_s(one.rx_bytes_s)}  ↑ {gigabytes_s(one.tx_bytes_s)}", "text"),)
    speed: Line = ((gigabits(one.rate_bits_s), "dim"),)
    faulty: list[Line] = [((words, "dim"),) for words in faults_in_words(one)]
    return join([(("● ", "ok"), *name, *aligned(speed, 9)), aligned(flow, 24), *faulty, where])


def faults_in_words(one: wire.Port) -> Iterable[str]:
    """Since somebody cleared the counters, so maybe long ago: that they grow is for alerts to say."""
    if one.errors:
        yield plural("{n} error", "{n} errors", one.errors)
    if one.link_downed == FLAPS_STUCK:
        yield _("{n} flaps or more").format(n=FLAPS_STUCK)
    elif one.link_downed:
        yield plural("{n} flap", "{n} flaps", one.link_downed)


def rank(one: wire.Port) -> int:
    return 2 if one.down else 1 if one.down == 0 else 0


def faults(one: wire.Port) -> int:
    return (one.errors or 0) + (one.link_downed or 0)


def traffic(one: wire.Interface | wire.Port) -> float:
    return (one.rx_bytes_s or 0.0) + (one.tx_bytes_s or 0.0)


def known_sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def more(rest: Sequence[T], down: Callable[[T], bool], width: int) -> list[Line]:
    """What was left out, in one line."""
    if not rest:
        return []
    n = sum(map(down, rest))
    words = _("+{n} more").format(n=len(rest)) + (_(", {n} down").format(n=n) if n else "")
    return [crop((("      ", "text"), (words, "dim")), width)]
