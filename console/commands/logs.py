"""`tunedeck logs RUN`: the end of a run's log by rank, or all of it as it grows."""

from __future__ import annotations

import argparse
import time

from agent import wire
from console.commands.reach import answer, located, opened
from console.commands.table import show_json
from console.session import Session
from console.strings import _

POLL_S = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help=_("run id, the beginning of one, or a run's name"))
    parser.add_argument("--rank", default="0", help=_("a rank's number, or `launcher` for torchrun's own output (0)"))
    parser.add_argument(
        "-n", "--lines", type=int, default=50, help=_("how many lines from the end; 0 means from the start (50)")
    )
    parser.add_argument("-f", "--follow", action="store_true", help=_("go on until the run ends"))
    parser.add_argument("--on", metavar="NODE", help=_("the node, when several have a run of that name"))


def run(args: argparse.Namespace) -> int:
    rank = None if args.rank == "launcher" else int(args.rank) if args.rank.isdigit() else -1
    with opened(args) as session:
        found = located(session, args.run, args.on, args.timeout)
        if args.follow:
            return follow(session, found.node, found.state.run, rank, args.lines)
        text = read_all(session, found.node, found.state.run, rank)
        wanted = text.splitlines()[-args.lines :] if args.lines > 0 else text.splitlines()
        if args.json:
            show_json({"run": found.state.run, "node": found.node, "rank": rank, "lines": wanted})
        elif wanted:
            print("\n".join(wanted))
        return 0


def read_all(session: Session, node: str, run: str, rank: int | None) -> str:
    """The whole log, slice by slice."""
    text, offset = "", 0
    while True:
        result = answer(session, node, wire.Logs(run, rank, offset)).result
        text, offset = text + str(result["text"]), int(result["next"])
        if offset >= int(result["size"]) or not result["text"]:
            return text


def follow(session: Session, node: str, run: str, rank: int | None, lines: int) -> int:
    """Print a log as it grows until the run ends; lost links are waited out. 0 when it completed or was stopped."""
    offset = 0 if lines <= 0 else -200 * lines
    while True:
        ended = (state := session.fleet.nodes[node].state.runs.get(run)) is not None and state.phase == "ended"
        result = answer(session, node, wire.Logs(run, rank, offset), deadline_s=3600.0).result
        print(str(result["text"]), end="", flush=True)
        offset = int(result["next"])
        if ended and offset >= int(result["size"]):
            return 0 if state is not None and state.reason in ("completed", "stopped") else 1
        session.pump()
        time.sleep(POLL_S)
