"""`tunedeck check NODE…`: whether nodes are sound, equal results together, the odd one out first."""

from __future__ import annotations

import argparse
import sys
import textwrap
import time
from collections.abc import Sequence

from agent import wire
from console.checked import FULL_S, QUICK_S, Checked, Group, grouped, read, summary
from console.commands.cordon import named
from console.commands.nodes import status
from console.commands.reach import opened, report_unreachable, settle, turn_until
from console.commands.table import show_json
from console.nodeset import fold
from console.session import Session
from console.strings import _, plural

WIDTH, INDENT = 100, 9
WORDS = {"fault": _("FAULT"), "watch": _("WATCH"), "unknown": _("UNKNOWN"), "good": _("GOOD")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = _(
        "Look whether nodes are sound: driver, cards, links, limits, memory, disk, network, RDMA, clock, kernel log "
        "and what was left behind. Needs no root, ends nothing, takes half a minute at the most."
    )
    parser.epilog = _("Exit status: 1 where a fault was found, else 0; 255 where no node answers.")
    parser.add_argument("node", nargs="*", help=_("node names or sets like gpu[01-16]; without any all of them"))
    parser.add_argument(
        "--family",
        action="append",
        default=[],
        metavar="F",
        help=_("only this family, such as gpus or disk; repeat it"),
    )
    parser.add_argument("--full", action="store_true", help=_("also look for the Python that would train; slower"))
    parser.add_argument("--python", default="", metavar="PATH", help=_("compare the torch of this Python on the node"))
    parser.add_argument("--all", action="store_true", help=_("list what is good, too"))


def run(args: argparse.Namespace) -> int:
    with opened(args) as session:
        names = named(session, args.node) or list(session.fleet.nodes)
        settle(session, args.timeout)
        there = [name for name in names if session.fleet.nodes[name].level_at is not None]
        results = ask(session, there, args)
        if args.json:
            document = {one.node: {"checks": one.checks, "error": one.trouble} for one in results}
            show_json({"nodes": document, "summary": summary(results)})
        else:
            report(session, results, args.all)
        silent = report_unreachable(session, names)
        failed = any(one.trouble or one.count("fault") for one in results)
        return int(failed or silent) if results else status(session.fleet)


def ask(session: Session, names: Sequence[str], args: argparse.Namespace) -> list[Checked]:
    """All nodes at once, each measured by its own agent."""
    deadline_s = FULL_S if args.full else QUICK_S
    futures = {
        name: session.ask(name, wire.RunChecks(tuple(args.family), not args.full, args.python, time.time()), deadline_s)
        for name in names
    }
    turn_until(session, lambda: all(future.done() for future in futures.values()), deadline_s + 5.0)
    none = wire.Reply("", False, error=_("no answer"))
    now = time.time()
    return [read(name, future.result(timeout=0) if future.done() else none, now) for name, future in futures.items()]


def report(session: Session, results: Sequence[Checked], everything: bool) -> None:
    if session.fleet.simulated:
        print(_("SIMULATED: GPUs whose name says so do not exist; their figures come from a simulation."))
    checked = [one for one in results if not one.trouble]
    for group in grouped(checked):
        if everything or group.check.health != "good":
            print("\n".join(lines(group, len(checked))) + "\n")
    for one in results:
        if one.trouble:
            print(f"tunedeck: {one.node}: {one.trouble}" + (f"\n  {one.hint}" if one.hint else ""), file=sys.stderr)
    if checked:
        print(totals(checked))


def totals(results: Sequence[Checked]) -> str:
    counts = summary(results)
    nodes = plural("{n} node checked", "{n} nodes checked", len(results))
    faults = plural("{n} fault", "{n} faults", counts["fault"])
    rest = _("{watch} to watch, {unknown} unknown, {good} good")
    return f"{nodes}: {faults}, {rest.format(**counts)}"


def lines(group: Group, nodes: int) -> list[str]:
    """Heading, then what was seen and what to do; evidence once where it is the same on all."""
    one = group.check
    where = fold(group.nodes) + (_(" ({n} of {total})").format(n=len(group.nodes), total=nodes) if nodes > 1 else "")
    found = [f"{WORDS[one.health]:<{INDENT}}{one.family} {one.name}  {where}", *wrapped(one.reason)]
    if one.health != "good" or nodes == 1:
        found += [line for text in seen(group) for line in wrapped(text)]
    return [*found, *wrapped(one.action, _("do: "))]


def seen(group: Group) -> list[str]:
    """Evidence under the names of the nodes that have it."""
    by_text: dict[str, list[str]] = {}
    for node, text in group.evidence.items():
        by_text.setdefault(text, []).append(node)
    if len(by_text) == 1:
        return [text for text in by_text if text]
    return [f"{fold(nodes)}: {text}" for text, nodes in by_text.items() if text]


def wrapped(text: str, first: str = "") -> list[str]:
    begin = " " * INDENT
    return textwrap.wrap(
        text, WIDTH, initial_indent=begin + first, subsequent_indent=begin + " " * len(first), break_on_hyphens=False
    )
