"""A node in words and bars: GPUs, host, disks, runs, events. Pure: state in, lines out."""

from __future__ import annotations

from collections.abc import Iterable

from agent import wire
from console.fleet import Node
from console.format import (
    UNKNOWN,
    age,
    clock,
    duration,
    round_trip,
    share,
)
from console.screens.card import gpu_lines
from console.screens.machine import host_lines, port_lines
from console.strings import _
from console.widgets.levels import (
    phase,
    run_phase,
)
from console.widgets.paint import EMPTY, Line, Span, aligned, cells, crop, heading, one_line, wrapped

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
    if state.ports:
        body += [EMPTY, *port_lines(state.ports, width)]
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
