"""`tunedeck data split`: a part to train on and a part held back; rows that ask the same stay on one side."""

from __future__ import annotations

import argparse
from pathlib import Path

from console.data import asked
from console.data.report import Report
from console.format import count
from console.strings import _
from jobs.data.split import Amount, Split


def add_arguments(parser: argparse.ArgumentParser) -> None:
    asked.add_files(parser)
    group = parser.add_argument_group(_("what to write"))
    group.add_argument("--eval", required=True, metavar="AMOUNT", help=_("held back: 500 rows, or a share: 0.05, 5%%"))
    group.add_argument("--seed", type=int, default=42, help=_("another seed, another choice (42)"))
    group.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help=_("where both files go"))
    group.add_argument(
        "--as",
        dest="kind",
        choices=("jsonl", "json", "csv", "parquet"),
        default="jsonl",
        help=_("kind of file (jsonl)"),
    )
    group.add_argument("--force", action="store_true", help=_("replace files that are there"))
    asked.add_report(parser)


def run(args: argparse.Namespace) -> int:
    """0: every row is in one of the files; 1: some are not, and were named. Raises Failure, JobError."""
    amount = Amount.parse(args.eval)
    data, progress = asked.data_set(args)
    folder = args.output.expanduser()
    train, held_back = folder / f"train.{args.kind}", folder / f"eval.{args.kind}"
    split = Split(data, amount, args.seed, train, held_back, args.force)
    report = Report(data, progress, args.json, args.all, args.report)
    report.take(split.findings())
    done = _("{a} rows in {train}, {b} rows in {eval} (seed {seed}); no question is in both").format(
        a=count(split.rows[0]), train=train, b=count(split.rows[1]), eval=held_back, seed=args.seed
    )
    files = {
        "train": {"file": str(train), "rows": split.rows[0]},
        "eval": {"file": str(held_back), "rows": split.rows[1]},
    }
    report.close({"rows": data.rows, "rejected": split.rejected, "seed": args.seed, **files}, ["", done])
    return 1 if split.rejected else 0
