"""A node in words and bars: GPUs, host, disks, runs, events. Pure: state in, lines out."""

from __future__ import annotations

from collections.abc import Iterable

from agent import wire
from console.fleet import Node
from console.format import UNKNOWN, age, clock, duration, fraction, percent, power, rate, round_trip, share, used_of
from console.strings import _
from console.widgets.levels import (
    DISK_BAD,
    DISK_WARN,
    MEMORY_BAD,
    MEMORY_WARN,
    busy,
    heat,
    level,
    memory,
    phase,
    run_phase,
)
from console.widgets.paint import EMPTY, Line, Span, aligned, bar, cells, crop, heading, join, one_line, pairs, wrapped

SEVERITY = {"info": ("·", "dim"), "warn": ("!", "warn"), "critical": ("‼", "bad")}


def faded(lines: Iterable[Line]) -> list[Line]:
    """The same lines as old news: no colour says more than its age."""
    return [tuple((text, "dim" if role != "track" else role) for text, role in line) for line in lines]


def status_lines(node: Node, now: float, width: int) -> list[Line]:
    """The link: phase, age, round trip; when it is not well also why and what to do."""
    link = node.link
    old = node.level_age_s(now)
    heard = _("heard {age} ago").format(age=age(old)) if old is not None else _("not heard yet")
    first: Line = (*phase(link.phase), ("  ", "text"), (heard, "dim"))
    if link.phase == "live":
        swing = f" ± {round_trip(link.jitter_s)}" if link.jitter_s is not None else ""
        first = (*first, ("   RTT ", "dim"), (round_trip(link.rtt_s) + swing, "text"))
        if link.via not in ("", "ssh"):
            first = (*first, ("   " + _("through {via}").format(via=link.via), "dim"))
    else:
        since = _("for {age}").format(age=age(now - link.since_monotonic))
        first = (*phase(link.phase), (f" {since}  ", "text"), (heard, "dim"))
    if node.read_only:
        first = (*first, ("  " + _("read-only"), "warn"))
    lines = [crop(first, width)]
    if node.state.host.cordon:
        lines += wrapped("⊘ " + _("cordoned {words}").format(words=node.state.host.cordon), width, "warn")
    if link.why and (link.phase != "live" or link.kind):
        lines += wrapped(link.why, width, "bad" if link.phase == "down" else "warn")
    if link.question:
        lines += wrapped("? " + one_line(link.question.text) + _("  (a answers)"), width, "warn")
    if link.hint and link.phase != "live":
        lines += wrapped("→ " + link.hint, width, "text")
    return lines


def gpu_lines(gpu: wire.Gpu, width: int) -> list[Line]:
    """A card in two rows, or one where it does not answer."""
    name = one_line(gpu.name) or gpu.uuid
    left: Line = ((f"{gpu.index:>2} ", "strong"), (name, "warn" if gpu.simulated else "text"))
    if gpu.lost:
        return [crop(join([left, ((f"✕ {one_line(gpu.lost)}", "bad"),)]), width)]
    watts = power(gpu.power_w) + (f" / {power(gpu.power_limit_w)}" if gpu.power_limit_w is not None else "")
    right = (*aligned(heat(gpu.temperature_c), 6, right=True), *aligned(((watts, "text"),), 16, right=True))
    slowed: Line = ((_("slowed: ") + ", ".join(gpu.throttle), "warn"),) if gpu.throttle else EMPTY
    ecc: Line = ((_("ECC {n}!").format(n=gpu.ecc_uncorrected), "bad"),) if gpu.ecc_uncorrected else EMPTY
    head = crop(join([left, slowed, ecc]), width - cells(right) - 2)
    return [(*head, ("  ", "text"), *right), gpu_bars(gpu, width)]


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


def host_lines(host: wire.Host, width: int) -> list[Line]:
    cpus = f" {host.cpu_count} CPU" if host.cpu_count is not None else ""
    load = UNKNOWN if host.load_1 is None else f"{host.load_1:.2f}"
    room = max(4, width // 2 - 26)
    items: list[tuple[str, Line]] = [
        ("CPU", (*bar(frac(host.cpu_percent), room, "accent"), (f" {percent(host.cpu_percent)}{cpus}", "text"))),
        (_("load"), ((load, "text"), (_(" over 1 min"), "dim"))),
        ("RAM", (*bar(fraction(host.ram_used_bytes, host.ram_total_bytes), room, "accent"), *ram(host))),
        (_("net"), ((f"↓ {rate(host.net_rx_bytes_s)}  ↑ {rate(host.net_tx_bytes_s)}", "text"),)),
    ]
    lines = pairs(items, width, 4, columns=2 if width >= 64 else 1)
    return lines + [disk_line(disk, width) for disk in host.disks]


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
                (("disk ", "dim"), *bar(full, max(4, width // 2 - 26), "accent" if role == "text" else role)),
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


def run_line(run: wire.RunState, width: int) -> Line:
    left: Line = (*aligned(run_phase(run), 12), (one_line(run.name) or run.run, "text"))
    steps = UNKNOWN if run.step is None else f"{run.step}/{run.total_steps or UNKNOWN}"
    right: Line = ((f"{steps} {share(run.step, run.total_steps)}", "dim"),)
    return (*crop(left, max(8, width - cells(right) - 1)), (" ", "text"), *right)


def event_line(event: wire.Event, width: int, node: str = "") -> Line:
    sign, role = SEVERITY.get(event.severity, ("·", "dim"))
    where: list[Span] = [(f"{node} ", "accent")] if node else []
    text = one_line(event.text)
    return crop(
        ((clock(event.unix_s) + " ", "dim"), (f"{sign} ", role), *where, (text, "text" if role == "dim" else role)),
        width,
    )


def event_lines(event: wire.Event, width: int) -> list[Line]:
    """An event in full, in as many lines as it needs."""
    sign, role = SEVERITY.get(event.severity, ("·", "dim"))
    at = clock(event.unix_s)
    indent = " " * (len(at) + 3)
    lines = wrapped(one_line(event.text), width, "text" if role == "dim" else role, indent)
    head: Line = ((f"{at} ", "dim"), (f"{sign} ", role))
    if not lines or width <= 2 * len(indent):
        return [event_line(event, width)]
    (text, colour), *_rest = lines[0]
    return [(*head, (text[len(indent) :], colour)), *lines[1:]]


def node_lines(node: Node, now: float, width: int, *, runs: bool = True) -> list[Line]:
    """Everything about a node, most pressing first."""
    lines = status_lines(node, now, width)
    body: list[Line] = []
    state = node.state
    if node.level_at is None:
        return lines
    gpus = sorted(state.gpus.values(), key=lambda gpu: gpu.index)
    body += [EMPTY, heading(gpu_title(state), width)]
    if state.host.gpu_note:
        body += wrapped(state.host.gpu_note, width, "warn")
    for gpu in gpus:
        body += gpu_lines(gpu, width)
    up = _("up {time}").format(time=duration(state.host.uptime_s))
    body += [EMPTY, heading(_("Host {name}, {up}").format(name=one_line(state.host.hostname), up=up), width)]
    body += host_lines(state.host, width)
    if runs and state.runs:
        body += [EMPTY, heading(_("Runs"), width), *(run_line(run, width) for run in node.runs()[:8])]
    if node.events:
        body += [EMPTY, heading(_("Events"), width), *(event_line(e, width) for e in list(node.events)[:-11:-1])]
    return lines + (body if node.live(now) else faded(body))


def gpu_title(state: wire.NodeState) -> str:
    if not state.gpus:
        return _("GPUs: none seen")
    old = state.gpu_age_s
    note = _(", read {age} ago").format(age=age(old)) if old is not None and old >= 5 else ""
    return _("GPUs ({n})").format(n=len(state.gpus)) + note
