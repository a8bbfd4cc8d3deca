"""`tunedeck triage PATH…`: why it died, which rank, which wire, what now. Works on files alone; needs no node."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from agent.triage import triage
from agent.triage.catalogue import CatalogueError
from agent.triage.source import SourceError
from agent.triage.verdict import HEALTHY, Verdict
from console.failure import USAGE, Failure
from console.strings import _
from console.triage.page import as_html, as_markdown, as_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths", nargs="+", metavar="PATH", help=_("folders, logs or archives of an incident; - is standard input")
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--html", action="store_true", help=_("print one HTML page"))
    form.add_argument("--md", action="store_true", help=_("print Markdown"))
    parser.add_argument("--faults", type=Path, metavar="FILE", help=_("your own signatures, beside the shipped ones"))


def own_faults() -> Path | None:
    """The user's own signatures, where there are any."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser()
    file = Path(base) / "tunedeck" / "faults.yaml"
    return file if file.is_file() else None


def run(args: argparse.Namespace) -> int:
    """Print the verdict. Exit status 0: healthy; 1: a fault, or an undetermined end. Raises Failure."""
    paths = [Path(p).expanduser() for p in args.paths if p != "-"]
    stdin = sys.stdin.buffer if "-" in args.paths else None
    try:
        verdict = triage(paths, args.faults or own_faults(), stdin)
    except (SourceError, CatalogueError) as error:
        raise Failure(str(error), status=USAGE) from error
    print(_rendered(verdict, args))
    return 0 if verdict.verdict == HEALTHY else 1


def _rendered(verdict: Verdict, args: argparse.Namespace) -> str:
    if args.json:
        return json.dumps(verdict.as_json(), ensure_ascii=False, indent=2)
    if args.html:
        return as_html(verdict)
    return as_markdown(verdict) if args.md else as_text(verdict)
