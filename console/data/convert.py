"""`tunedeck data convert`: the same examples in another layout and kind of file, verified by reading them back."""

from __future__ import annotations

import argparse
from pathlib import Path

from console.data import asked
from console.data.report import Report
from console.format import count
from console.strings import _
from jobs.data.columns import LAYOUTS
from jobs.data.convert import Conversion


def add_arguments(parser: argparse.ArgumentParser) -> None:
    asked.add_files(parser)
    group = parser.add_argument_group(_("what to write"))
    group.add_argument("--to", choices=LAYOUTS, required=True, help=_("the layout"))
    group.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE", help=_(".jsonl, .json, .csv, .tsv or .parquet")
    )
    group.add_argument(
        "--keep", action="append", default=[], metavar="COLUMN", help=_("a column that comes along as it is")
    )
    group.add_argument("--unique", action="store_true", help=_("leave out rows that repeat an earlier one"))
    group.add_argument("--force", action="store_true", help=_("replace a file that is there"))
    asked.add_report(parser)


def run(args: argparse.Namespace) -> int:
    """0: every row is in the file; 1: some are not, and were named. Raises Failure, JobError."""
    data, progress = asked.data_set(args)
    conversion = Conversion(data, args.to, args.output.expanduser(), args.keep, args.unique, args.force)
    report = Report(data, progress, args.json, args.all, args.report)
    report.take(conversion.findings())
    done = _("{written} of {rows} rows written to {path}, read back and compared").format(
        written=count(conversion.written), rows=count(data.rows), path=args.output
    )
    record = {"rows": data.rows, "written": conversion.written, "rejected": conversion.rejected}
    report.close({**record, "output": str(args.output)}, ["", done])
    return 1 if conversion.rejected else 0
