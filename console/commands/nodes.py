"""`tunedeck nodes`: every node, or one plain frame when nothing else was asked for."""

from __future__ import annotations

import argparse
import time
from typing import Any

from console.commands.reach import opened, settle
from console.commands.table import show, show_json
from console.failure import SSH
from console.fleet import Fleet, Node
from console.format import UNKNOWN, percent, round_trip, used_of
from console.strings import _


def add_arguments(parser: argparse.ArgumentParser) -> None:
    del parser  # the common options are all it takes


def run(args: argparse.Namespace) -> int:
    with opened(args) as session:
        settle(session, args.timeout)
        if args.json:
            show_json({"nodes": [as_json(node) for node in session.fleet.nodes.values()]})
        else:
            print_nodes(session.fleet)
        return status(session.fleet)


def status(fleet: Fleet) -> int:
    """0 when every node answers, 255 when none does, 1 otherwise."""
    live = [node.link.phase == "live" for node in fleet.nodes.values()]
    return 0 if all(live) else 1 if any(live) else SSH


def as_json(node: Node) -> dict[str, Any]:
    age = node.level_age_s(time.monotonic())
    return {
        "name": node.name,
        "link": {
            "phase": node.link.phase,
            "kind": node.link.kind,
            "why": node.link.why,
            "hint": node.link.hint,
            "rtt_s": node.link.rtt_s,
            "jitter_s": node.link.jitter_s,
            "via": node.link.via,
        },
        "age_s": age,
        "read_only": node.read_only,
        **(
            {"host": node.state.host, "gpus": list(node.state.gpus.values()), "runs": node.runs()}
            if age is not None
            else {}
        ),
    }


def print_nodes(fleet: Fleet) -> None:
    if fleet.simulated:
        print(_("SIMULATED: GPUs whose name says so do not exist; their figures come from a simulation."))
    header = [_("NODE"), _("LINK"), _("RTT"), _("CPU"), _("RAM"), _("GPUS"), _("GPU MEMORY"), _("RUNS")]
    show(header, [row(node) for node in fleet.nodes.values()])
    for node in fleet.nodes.values():
        if node.link.why:
            print(f"\n{node.name}: {node.link.why}" + (f"\n  {node.link.hint}" if node.link.hint else ""))
        elif node.state.host.gpu_note:
            print(f"\n{node.name}: {node.state.host.gpu_note}")
        if node.state.host.cordon:
            print("\n" + _("{node}: cordoned {words}").format(node=node.name, words=node.state.host.cordon))


def row(node: Node) -> list[str]:
    host, gpus = node.state.host, node.state.gpus.values()
    names = sorted({gpu.name for gpu in gpus})
    return [
        node.name,
        node.link.phase,
        round_trip(node.link.rtt_s),
        percent(host.cpu_percent),
        used_of(host.ram_used_bytes, host.ram_total_bytes),
        f"{len(gpus)} × {', '.join(names)}" if names else UNKNOWN,
        memory(node),
        runs(node),
    ]


def runs(node: Node) -> str:
    if node.level_at is None:
        return UNKNOWN
    live = sum(run.phase not in ("ended", "unknown") for run in node.state.runs.values())
    return _("{live} live, {ended} ended").format(live=live, ended=len(node.state.runs) - live)


def memory(node: Node) -> str:
    known = [(g.memory_used_bytes, g.memory_total_bytes) for g in node.state.gpus.values()]
    pairs = [(used, total) for used, total in known if used is not None and total is not None]
    return used_of(sum(u for u, _t in pairs), sum(t for _u, t in pairs)) if pairs else used_of(None, None)
