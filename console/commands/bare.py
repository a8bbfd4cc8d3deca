"""`tunedeck` alone: the console on a terminal, one plain frame anywhere else."""

from __future__ import annotations

import argparse
import os
import sys

from console.commands import nodes, ps
from console.commands.reach import configured, opened, session_over, settle
from console.strings import _


def run(args: argparse.Namespace) -> int:
    if sys.stdin.isatty() and sys.stdout.isatty() and not args.json:
        return run_console(args)
    with opened(args) as session:
        settle(session, args.timeout)
        nodes.print_nodes(session.fleet)
        print()
        runs = session.fleet.runs()
        if runs:
            ps.print_runs(runs)
        else:
            print(_("No runs."))
        return nodes.status(session.fleet)


def run_console(args: argparse.Namespace) -> int:
    from console import app

    config = configured(args)
    status = app.run(lambda: session_over(config), names=[target.name for target in config.nodes])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # the interpreter's own end takes its time where threads hang in a log-in
