"""`tunedeck ps`: runs on all nodes."""

from __future__ import annotations

import argparse

from console.commands.nodes import status
from console.commands.reach import opened, report_unreachable, settle
from console.commands.table import show, show_json
from console.fleet import Run
from console.format import clock, count, duration, figure
from console.strings import _


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-a", "--all", action="store_true", help=_("ended runs too"))


def run(args: argparse.Namespace) -> int:
    with opened(args) as session:
        settle(session, args.timeout)
        runs = [r for r in session.fleet.runs() if args.all or r.live]
        if args.json:
            show_json({"runs": [{"node": r.node, "state": r.state, "eta_s": r.eta_s} for r in runs]})
        elif runs:
            print_runs(runs)
        elif any(node.level_at is not None for node in session.fleet.nodes.values()):
            print(_("No runs.") if args.all else _("No runs are live. `tunedeck ps --all` lists the ended ones."))
        report_unreachable(session)
        return status(session.fleet)


def print_runs(runs: list[Run]) -> None:
    header = [_("RUN"), _("NODE"), _("STATE"), _("STEP"), _("LOSS"), _("TOKENS/S"), _("ETA"), _("STARTED")]
    show(header, [row(run) for run in runs])


def row(run: Run) -> list[str]:
    state = run.state
    return [
        state.run,
        run.node,
        state.phase if state.reason is None else f"{state.phase}: {state.reason}",
        f"{'–' if state.step is None else state.step}/{'–' if state.total_steps is None else state.total_steps}",
        figure(state.loss),
        count(state.tokens_per_s),
        duration(run.eta_s),
        clock(state.started_unix),
    ]
