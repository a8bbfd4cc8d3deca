"""`tunedeck pause RUN`: keep the state, end all processes, free the GPUs; `tunedeck resume` goes on."""

from __future__ import annotations

import argparse

from agent import wire
from console.commands.asking import add_run
from console.commands.reach import answer, located, opened, turn_until
from console.commands.snapshots import told
from console.failure import Failure
from console.strings import _

ANSWER_S = 900.0
END_S = 120.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)


def run(args: argparse.Namespace) -> int:
    with opened(args) as session:
        found = located(session, args.run, args.on, args.timeout)
        name, node = found.state.run, session.fleet.nodes[found.node]
        result = answer(session, found.node, wire.Steer(name, "pause"), ANSWER_S).result

        def ended() -> bool:
            state = node.state.runs.get(name)
            return state is not None and state.phase == "ended"

        if not turn_until(session, ended, END_S):
            said = _("{run} on {node} is saved, but its processes have not ended").format(run=name, node=found.node)
            raise Failure(said, _("`tunedeck kill {run}` ends them.").format(run=name))
        if not args.json:
            result = {**result, "message": _("{message}; its processes are gone").format(message=result["message"])}
        return told(args, found, result)
