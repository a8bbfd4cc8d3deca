"""`tunedeck rollback RUN`: the running training goes back to an earlier state; what it leaves stays as a branch."""

from __future__ import annotations

import argparse
import math
from typing import Any

from agent import wire
from console.commands.asking import add_run, add_yes, confirmed, step_of
from console.commands.reach import answer, located, opened
from console.commands.snapshots import list_of, told
from console.failure import USAGE, Failure
from console.fleet import Run
from console.strings import _

ANSWER_S = 900.0
"""Until the next step boundary, then reading a large state from disk."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument(
        "--to", type=int, metavar="STEP", help=_("the newest snapshot at or before this step (else the last good one)")
    )
    parser.add_argument("--lr", type=float, metavar="RATE", help=_("go on from there at this learning rate"))
    parser.add_argument("--skip-data", action="store_true", help=_("do not go through the same examples again"))
    add_yes(parser)


def run(args: argparse.Namespace) -> int:
    if args.lr is not None and not (math.isfinite(args.lr) and args.lr > 0):
        raise Failure(_("--lr must be a positive number, not {lr}").format(lr=args.lr), status=USAGE)
    if args.to is not None and args.to < 0:
        raise Failure(_("--to must be a step, not {step}").format(step=args.to), status=USAGE)
    with opened(args) as session:
        found = located(session, args.run, args.on, args.timeout)
        refuse_ended(found)
        if not args.yes and not confirmed(question(found, list_of(session, found), args.to), yes=False):
            print(_("nothing was rolled back"))
            return 1
        wanted = {"step": args.to, "lr": args.lr, "skip_data": args.skip_data or None}
        given = {key: value for key, value in wanted.items() if value is not None}
        body = wire.Steer(found.state.run, "rollback", given)
        return told(args, found, answer(session, found.node, body, ANSWER_S).result)


def refuse_ended(found: Run) -> None:
    if found.state.phase == "ended":
        said = _("{run} on {node} has ended: nothing runs that could be rolled back")
        hint = _("`tunedeck resume {run} --from STEP` goes on from an earlier state.")
        raise Failure(said.format(run=found.state.run, node=found.node), hint.format(run=found.state.run))


def question(found: Run, listed: dict[str, Any], to: int | None) -> str:
    state = found.state
    known = [int(one["step"]) for one in listed["snapshots"]]
    if to is None:
        step = state.snapshot_step
        target = _("the last good snapshot") if step is None else _("step {step}, the last snapshot").format(step=step)
    else:
        reached = [step for step in known if step <= to]
        newest = _("step {step}").format(step=max(reached)) if reached else _("what is in memory")
        target = _("{newest}, the newest snapshot at or before step {to}").format(newest=newest, to=to)
    said = _("Roll {run} on {node} back from step {step} to {target}? What it leaves stays as a branch.")
    return said.format(run=state.run, node=found.node, step=step_of(found), target=target)
