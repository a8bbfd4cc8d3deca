"""The one question before something that cannot be undone by the next key; without an answer it is No."""

from __future__ import annotations

import argparse
import sys

from console.failure import USAGE, Failure
from console.fleet import Run
from console.strings import _


def add_run(parser: argparse.ArgumentParser) -> None:
    """The arguments by which commands find their run."""
    parser.add_argument("run", help=_("run id, the beginning of one, or a run's name"))
    parser.add_argument("--on", metavar="NODE", help=_("the node, when several have a run of that name"))


def add_yes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-y", "--yes", action="store_true", help=_("do not ask"))


def confirmed(question: str, yes: bool) -> bool:
    """Raises Failure when there is nobody to ask."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise Failure(_("this asks first, and there is no terminal to ask on"), _("add --yes"), USAGE)
    return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")


def step_of(found: Run) -> str:
    return "–" if found.state.step is None else str(found.state.step)
