"""`tunedeck kill RUN`: soft first, then hard, with proof that every process is gone."""

from __future__ import annotations

import argparse
import sys

from agent import wire
from console.commands.reach import answer, located, opened
from console.commands.table import show_json
from console.failure import USAGE, Failure
from console.fleet import Run
from console.format import duration
from console.strings import _


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help=_("run id, the beginning of one, or a run's name"))
    parser.add_argument("--on", metavar="NODE", help=_("the node, when several have a run of that name"))
    parser.add_argument(
        "--grace", type=float, default=20.0, metavar="S", help=_("seconds for a soft end before SIGKILL (20)")
    )
    parser.add_argument("--now", action="store_true", help=_("SIGKILL at once; nothing is saved"))
    parser.add_argument("-y", "--yes", action="store_true", help=_("do not ask"))


def run(args: argparse.Namespace) -> int:
    with opened(args) as session:
        found = located(session, args.run, args.on, args.timeout)
        if not args.yes and not confirmed(found):
            print(_("nothing was ended"))
            return 1
        body = wire.Kill(found.state.run, args.grace, args.now)
        result = answer(session, found.node, body, deadline_s=args.grace + 60.0).result
        if args.json:
            show_json({"run": found.state.run, "node": found.node, **result})
        else:
            print_proof(found, result)
        return 1 if result.get("alive") else 0


def confirmed(found: Run) -> bool:
    if not sys.stdin.isatty():
        raise Failure(_("kill asks before it ends a run, and there is no terminal to ask on"), _("add --yes"), USAGE)
    step = "–" if found.state.step is None else str(found.state.step)
    question = _("End {run} on {node} at step {step}? [y/N] ").format(run=found.state.run, node=found.node, step=step)
    return input(question).strip().lower() in ("y", "yes")


def print_proof(found: Run, result: dict[str, object]) -> None:
    gone, alive = result.get("gone") or [], result.get("alive") or []
    seconds = result.get("seconds")
    took = duration(float(seconds)) if isinstance(seconds, (int, float)) else "–"
    print(
        _("{run} on {node}: {reason} after {took}").format(
            run=found.state.run, node=found.node, reason=result.get("reason"), took=took
        )
    )
    print(
        _("processes proved gone: {pids}").format(
            pids=", ".join(map(str, gone)) if isinstance(gone, list) and gone else "–"
        )
    )
    if alive:
        print(_("STILL ALIVE: {pids}").format(pids=alive))
