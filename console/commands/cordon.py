"""`tunedeck cordon NODE`: take nodes out of use for new runs; live ones go on."""

from __future__ import annotations

import argparse
import sys

from agent import wire
from console.commands.reach import answer, opened, settle
from console.commands.table import show_json
from console.failure import USAGE, Failure
from console.nodeset import NodeSetError, expand
from console.session import Session
from console.strings import _


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_nodes(parser)
    parser.add_argument("--reason", default="", help=_("shown to everybody who looks at the node"))


def add_nodes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("node", nargs="+", help=_("node names or sets like gpu[01-16]"))


def run(args: argparse.Namespace) -> int:
    return change(args, wire.Cordon(True, args.reason))


def change(args: argparse.Namespace, body: wire.Cordon) -> int:
    """Give the order to each node; a node that fails stops none of the others."""
    with opened(args) as session:
        names = named(session, args.node)
        settle(session, args.timeout)
        done: dict[str, str] = {}
        failures: dict[str, Failure] = {}
        for name in names:
            try:
                done[name] = str(answer(session, name, body, args.timeout).result.get("cordon") or "")
            except Failure as failure:
                failures[name] = failure
        if args.json:
            found = {name: {"cordon": words, "error": ""} for name, words in done.items()}
            show_json({"nodes": found | {name: {"error": str(failure)} for name, failure in failures.items()}})
        else:
            report(done, failures)
        return max((failure.status for failure in failures.values()), default=0)


def report(done: dict[str, str], failures: dict[str, Failure]) -> None:
    for name, words in done.items():
        takes = _("{node} takes new runs").format(node=name)
        print(_("{node}: cordoned {words}").format(node=name, words=words) if words else takes)
    for failure in failures.values():
        print(f"tunedeck: {failure}", file=sys.stderr)


def named(session: Session, sets: list[str]) -> list[str]:
    """The nodes meant, all of them known. Raises Failure."""
    try:
        names = list(dict.fromkeys(name for text in sets for name in expand(text)))
    except NodeSetError as error:
        raise Failure(str(error), status=USAGE) from error
    for name in names:
        if name not in session.fleet.nodes:
            known = _("known nodes: {names}").format(names=", ".join(session.fleet.nodes))
            raise Failure(_("there is no node called {name}").format(name=name), known, USAGE)
    return names
