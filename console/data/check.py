"""`tunedeck data check`: every row that cannot be used, was repaired or should be looked at, with file and line."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import nullcontext

from console.data import asked
from console.data.report import Report
from console.data.tokenizer import add_tokenizer, asked_for
from console.failure import USAGE, Failure
from console.format import count
from console.strings import _, plural
from jobs.data import mask, source
from jobs.data.check import Check
from jobs.data.example import Example
from jobs.data.near import SHARE, Near


def add_arguments(parser: argparse.ArgumentParser) -> None:
    asked.add_files(parser)
    group = parser.add_argument_group(_("what to look for"))
    group.add_argument(
        "--eval",
        action="append",
        default=[],
        metavar="PATH",
        help=_("held-back data: rows of it that are trained on are named. Files called test, eval, valid … count too"),
    )
    group.add_argument(
        "--near",
        type=float,
        nargs="?",
        const=SHARE,
        metavar="SHARE",
        help=_("also rows that share this much of their words ({share}); slow: about 2000 rows a second").format(
            share=SHARE
        ),
    )
    group.add_argument("--max-chars", type=int, metavar="N", help=_("name rows of more characters than this"))
    add_tokenizer(parser)
    asked.add_report(parser)


def run(args: argparse.Namespace) -> int:
    """0: all rows can be used; 1: rows are rejected, or held-back rows are trained on. Raises Failure, JobError."""
    if args.near is not None and not 0 < args.near <= 1:
        raise Failure(_("--near {share} is no share").format(share=args.near), _("use 0.5 to 1"), USAGE)
    data, progress = asked.data_set(args, args.eval)
    held = set(source.found(args.eval)) if args.eval else set()
    sides = [file.path in held or source.held_back(file.path) for file in data.sources]
    with Near(args.near) if args.near is not None else nullcontext() as near:
        check = Check(data, sides, near, *_measure(args))
        report = Report(data, progress, args.json, args.all, args.report)
        report.take(check.findings())
    report.close(_record(check, data.rows), _summary(check, data.rows, args))
    return 1 if check.rejected or check.leaks else 0


def _measure(args: argparse.Namespace) -> tuple[Callable[[Example], int] | None, int | None, str]:
    """How rows are measured, and what is too long: in tokens where a tokenizer is named. Raises Failure, JobError."""
    tokens, longest = asked_for(args)
    if tokens is None:
        if longest is not None:
            raise Failure(_("tokens cannot be counted"), _("add --tokenizer FOLDER, or use --max-chars"), USAGE)
        return (lambda example: len(example.flow())) if args.max_chars else None, args.max_chars, "characters"
    if longest is None:
        raise Failure(_("what is too long?"), _("add --max-length N"), USAGE)
    return (lambda example: mask.lengths(example, tokens)[0]), longest, "tokens"


def _record(check: Check, rows: int) -> dict[str, object]:
    return {
        "rows": rows,
        "usable": sum(check.usable.values()),
        "rejected": check.rejected,
        "leaks": check.leaks,
        "kinds": {f"{level}/{kind}": times for (level, kind), times in sorted(check.kinds.items())},
    }


def _summary(check: Check, rows: int, args: argparse.Namespace) -> list[str]:
    usable = sum(check.usable.values())
    lines = [
        "",
        _("{rows} rows: {usable} usable, {rejected} rejected").format(
            rows=count(rows), usable=count(usable), rejected=count(check.rejected)
        ),
    ]
    for (level, kind), times in sorted(check.kinds.items()):
        lines.append(f"  {level:9} {kind:16} {count(times)}")
    if args.near is None and usable > 1:
        lines.append(_("  near-duplicates were not looked for: add --near"))
    if check.leaks:
        lines.append(
            plural(
                "  {n} held-back row is trained on: what is measured on it says nothing",
                "  {n} held-back rows are trained on: what is measured on them says nothing",
                check.leaks,
            )
        )
    return lines
