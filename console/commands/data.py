"""`tunedeck data`: look at training data, put it into another form, divide it, count it. Needs no node and no torch."""

from __future__ import annotations

import argparse
import tempfile

from console.data import check, convert, preview, split, stats
from console.failure import USAGE, Failure
from console.strings import _
from jobs.failure import JobError

PARTS = {
    "check": (check, _("every row that cannot be used, with file, line and reason")),
    "convert": (convert, _("the same examples in another layout or kind of file, read back and compared")),
    "stats": (stats, _("how much there is, how long examples are, and what that means for training")),
    "preview": (preview, _("what training sees: the chat template, and which part is learned")),
    "split": (split, _("a part to train on and a part held back; rows that ask the same stay together")),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parts = parser.add_subparsers(dest="part", metavar="WHAT", required=True, title=_("what to do"))
    for name, (module, summary) in PARTS.items():
        module.add_arguments(parts.add_parser(name, help=summary, description=summary[:1].upper() + summary[1:] + "."))


def run(args: argparse.Namespace) -> int:
    """0: nothing is wrong; 1: something is, and was said; 2: wrong usage. Raises Failure."""
    try:
        status: int = PARTS[args.part][0].run(args)
    except JobError as error:
        raise Failure(error.message, error.hint, USAGE) from error
    except BrokenPipeError:
        raise
    except OSError as error:  # a disk that is full or fails, under the data or under temporary files
        message = _("{file}: {why}").format(file=error.filename or tempfile.gettempdir(), why=error.strerror or error)
        hint = _("temporary files go to {folder}; TMPDIR names another place").format(folder=tempfile.gettempdir())
        raise Failure(message, hint) from error
    return status
