"""The one question before something that cannot be undone by the next key; without an answer it is No."""

from __future__ import annotations

import argparse
import getpass
import sys
from collections import Counter
from collections.abc import Iterable

from console.failure import USAGE, Failure
from console.fleet import Node, Run
from console.refusal import Question
from console.session import Session
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


TRIES = 3
"""As often as ssh asks for a password (NumberOfPasswordPrompts)"""


def answer_one(session: Session, nodes: Iterable[Node], tries: Counter[tuple[str, str]]) -> bool:
    """Ask the user the first thing a link asks. False when there is nothing to ask, or nobody at a terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    for node in nodes:
        question = node.link.question
        if question is None or tries[question.kind, question.subject] >= TRIES:
            continue
        tries[question.kind, question.subject] += 1
        if text := spoken(node.name, question):
            session.answer(node.name, question, text)
        else:
            tries[question.kind, question.subject] = TRIES
        return True
    return False


def spoken(name: str, question: Question) -> str:
    """What the user answers; empty for no answer. A host's key is accepted by `yes` alone."""
    print(f"{name}: {question.text}", file=sys.stderr)
    try:
        if question.kind == "host-key":
            print(_("Accept this key? Compare it first. [yes/N] "), end="", file=sys.stderr, flush=True)
            return "yes" if sys.stdin.readline().strip().lower() == "yes" else ""
        return getpass.getpass("> ") if question.secret else input("> ")
    except EOFError:
        return ""


def step_of(found: Run) -> str:
    return "–" if found.state.step is None else str(found.state.step)
