"""`tunedeck triage PATH…`: why it died, which rank, which wire, what now. Works on files alone; needs no node."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from pathlib import Path

from agent import wire
from agent.triage import triage
from agent.triage.catalogue import CatalogueError
from agent.triage.source import SourceError
from agent.triage.verdict import HEALTHY, Verdict
from console.failure import USAGE, Failure
from console.fleet import Run
from console.incident import EVIDENCE_S, incidents, kept, own_faults
from console.strings import _
from console.triage.page import as_html, as_markdown, as_text

RUN = re.compile(r"[a-z0-9][a-z0-9-]*")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH|RUN",
        help=_("folders, logs or archives of an incident; - is standard input; or a run, whose node is asked"),
    )
    parser.add_argument("--on", metavar="NODE", help=_("the node, when several have a run of that name"))
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--html", action="store_true", help=_("print one HTML page"))
    form.add_argument("--md", action="store_true", help=_("print Markdown"))
    parser.add_argument("--save", type=Path, metavar="FOLDER", help=_("keep the evidence of a run there, as one file"))
    parser.add_argument("--faults", type=Path, metavar="FILE", help=_("your own signatures, beside the shipped ones"))


def run(args: argparse.Namespace) -> int:
    """Print the verdict. Exit status 0: healthy; 1: a fault, an undetermined end, nothing to read. Raises Failure."""
    paths = [Path(p).expanduser() for p in args.paths if p != "-"]
    if len(args.paths) == 1 and RUN.fullmatch(args.paths[0]) and not paths[0].exists():
        paths = [evidence(args, args.paths[0])]
    stdin = sys.stdin.buffer if "-" in args.paths else None
    try:
        verdict = triage(paths, args.faults or own_faults(), stdin)
    except (SourceError, CatalogueError) as error:
        raise Failure(str(error), status=USAGE) from error
    print(_rendered(verdict, args))
    return 0 if verdict.verdict == HEALTHY and verdict.lines else 1


def evidence(args: argparse.Namespace, name: str) -> Path:
    """What the node of a run knows about it, as an archive. Raises Failure."""
    from console.commands.reach import answer, located, opened  # files alone need no nodes

    found: Run | None = None
    try:
        with opened(args) as session:
            found = located(session, name, args.on, args.timeout)
            reply = answer(session, found.node, wire.Evidence(found.state.run, alias=found.node), EVIDENCE_S)
    except Failure as error:
        if found is not None:
            raise
        there = _("{name} is neither a file here nor a run that was found: {why}")
        raise Failure(there.format(name=name, why=error.message), error.hint, error.status) from error
    try:
        incident = kept(reply.result, found.state.run, time.time(), args.save)
    except OSError as error:
        place = args.save or incidents()
        raise Failure(_("the evidence cannot be kept in {place}: {why}").format(place=place, why=error)) from error
    for what in incident.left_out:
        print(_("left out: {what}").format(what=what), file=sys.stderr)
    print(_("evidence: {file}").format(file=incident.archive), file=sys.stderr)
    return incident.archive


def _rendered(verdict: Verdict, args: argparse.Namespace) -> str:
    if args.json:
        return json.dumps(verdict.as_json(), ensure_ascii=False, indent=2)
    if args.html:
        return as_html(verdict)
    return as_markdown(verdict) if args.md else as_text(verdict)
