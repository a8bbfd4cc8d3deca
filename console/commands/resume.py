"""`tunedeck resume RUN`: an ended run goes on from a snapshot; what would differ is shown before anything starts."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent import wire
from agent.wire import NEWEST
from console.commands.asking import add_run, add_yes, confirmed, step_of
from console.commands.reach import answer, located, opened
from console.commands.run import read_spec
from console.commands.snapshots import READ_S, list_of, named
from console.commands.table import show_json
from console.fleet import Run
from console.format import duration, size
from console.strings import _


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument(
        "--from", dest="start", metavar="NAME|STEP", default=NEWEST, help=_("which snapshot (the newest good one)")
    )
    parser.add_argument("--check", action="store_true", help=_("only say how it would be, and start nothing"))
    parser.add_argument(
        "--fork", type=Path, metavar="SPEC", help=_("start a new run from that snapshot with this changed spec")
    )
    parser.add_argument(
        "--force", action="store_true", help=_("start although GPUs are busy or the plan says it does not fit")
    )
    add_yes(parser)


def run(args: argparse.Namespace) -> int:
    text = None if args.fork is None else read_spec(args.fork)
    with opened(args) as session:
        found = located(session, args.run, args.on, args.timeout)
        name = args.start if args.start == NEWEST else named(list_of(session, found), args.start)
        fork = text is not None
        body = wire.Resume(found.state.run, name, True, fork, text, args.force)
        plan = answer(session, found.node, body, READ_S).result
        if args.check:
            show_json({"node": found.node, **plan}) if args.json else print_plan(plan)
            return 0
        if not args.json:
            print_plan(plan)
        if not confirmed(question(found, plan, fork), args.yes):
            print(_("nothing was started"))
            return 1
        start = replace(body, snapshot=str(plan["snapshot"]), check=False)
        result = answer(session, found.node, start, READ_S).result
        if args.json:
            show_json({"node": found.node, **result})
        else:
            said = _("{run} on {node} goes on from {snapshot}")
            print(said.format(run=result["run"], node=found.node, snapshot=result["snapshot"]))
        return 0


def print_plan(plan: dict[str, Any]) -> None:
    print(_("{label} from {snapshot}, step {step}").format(**plan))
    for difference in plan["differences"]:
        print(f"  {difference}")
    if plan.get("open"):
        print(_("  compared only when it starts: {names}").format(names=", ".join(plan["open"])))
    for reason in plan.get("refused") or ():
        print(_("  not usable: {reason}").format(reason=reason))
    print(f"  {expected(plan)}")
    if plan.get("memory"):
        print(f"  {plan['memory']}")


def expected(plan: dict[str, Any]) -> str:
    """How much is to be read, and how long that and the whole resume will take where it is known."""
    said = _("{size} to read").format(size=size(plan.get("bytes")))
    read, ready = plan.get("forecast_s"), plan.get("ready_s")
    if isinstance(read, (int, float)):
        said += _(", about {time}").format(time=duration(read))
    if isinstance(ready, (int, float)):
        said += _("; ready for its next step about {time} after the order").format(time=duration(ready))
    return said


def question(found: Run, plan: dict[str, Any], fork: bool) -> str:
    state = found.state
    words = {"run": state.run, "node": found.node, "snapshot": plan["snapshot"], "step": plan["step"]}
    if fork:
        return _("Start a new run on {node} from {snapshot} of {run}, at step {step}?").format(**words)
    left = ""
    if isinstance(plan.get("from_step"), int) and plan["from_step"] > plan["step"]:
        left = _(" The steps up to {last} stay as a branch.").format(last=step_of(found))
    return _("Resume {run} on {node} from {snapshot}, at step {step}?").format(**words) + left
