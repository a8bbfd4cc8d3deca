"""`tunedeck history`: what a node's figures were, over an hour or 14 days, as a table, CSV or JSON."""

from __future__ import annotations

import argparse
import csv
import math
import re
import sys
import time
from collections.abc import Callable
from typing import Any

from agent import wire
from console.commands.reach import answer, only_node, opened
from console.commands.table import show, show_json
from console.failure import USAGE, Failure
from console.fleet import Node
from console.format import UNKNOWN, age, figure, percent, power, rate, size, temperature
from console.strings import _

UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
LONGEST_S = 14 * 86400.0
POINTS_LIMIT = 5000
BLOCKS = "▁▂▃▄▅▆▇█"
BAR = 40
"""Characters of the small chart in a row of the table"""
SHOWN: dict[str, Callable[[float | None], str]] = {
    "percent": percent,
    "bytes_s": rate,
    "bytes": size,
    "c": temperature,
    "w": power,
    "mhz": lambda value: UNKNOWN if value is None else f"{value:.0f} MHz",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("node", nargs="?", help=_("which node; may be left out where there is one only"))
    parser.add_argument("--since", default="1h", metavar="TIME", help=_("how far back: 30m, 6h, 14d (1h)"))
    parser.add_argument("--points", type=int, default=300, metavar="N", help=_("at most so many points (300)"))
    parser.add_argument("--csv", action="store_true", help=_("print CSV: a line for each point, a column a series"))
    parser.add_argument(
        "--series", nargs="+", default=(), metavar="NAME", help=_("only these: host/cpu_percent, GPU-…/power_w (all)")
    )


def run(args: argparse.Namespace) -> int:
    body = wire.ReadHistory(seconds(args.since), tuple(args.series), min(max(1, args.points), POINTS_LIMIT))
    with opened(args) as session:
        name = only_node(session, args.node, args.timeout)
        result = answer(session, name, body, args.timeout).result
        node = session.fleet.nodes[name]
    if result.get("note"):
        print(f"tunedeck: {name}: {result['note']}", file=sys.stderr)
    columns = read(result)
    if args.json:
        show_json({"node": name, "step_s": result.get("step_s"), "unix": result.get("unix"), "series": columns})
    elif args.csv:
        write_csv(columns, float(result.get("unix") or 0.0), float(result.get("step_s") or 1.0))
    elif not columns:
        print(_("{node} has kept nothing of that yet").format(node=name))
    else:
        print(_("{node}, the last {age}").format(node=name, age=age(body.since_s)))
        header = [_("SUBJECT"), _("FIGURE"), _("LOWEST"), _("MEAN"), _("HIGHEST"), _("LAST"), ""]
        show(header, [row(node, series, column) for series, column in columns.items()])
    return 0


def seconds(text: str) -> float:
    """Raises Failure for what is no length of time."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text.strip())
    value = float(found[1]) * UNITS_S[found[2]] if found else 0.0
    if not 1.0 <= value <= LONGEST_S:
        raise Failure(
            _("--since {text} is no time up to 14 days").format(text=text), _("Say 90s, 30m, 6h or 14d."), USAGE
        )
    return value


def read(result: dict[str, Any]) -> dict[str, list[float | None]]:
    """The series as they were sent, without those of which nothing is known."""
    series = result.get("series")
    if not isinstance(series, dict):
        raise Failure(_("the node sent something that is no history"), status=1)
    columns = {
        str(name): [one if isinstance(one, (int, float)) and math.isfinite(one) else None for one in column]
        for name, column in series.items()
        if isinstance(column, list)
    }
    return {name: column for name, column in columns.items() if any(one is not None for one in column)}


def write_csv(columns: dict[str, list[float | None]], first: float, step: float) -> None:
    """Time in UTC; an empty cell where nothing is known."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["time", *columns])
    for i in range(max(map(len, columns.values()), default=0)):
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(first + i * step))
        writer.writerow([at, *("" if column[i] is None else column[i] for column in columns.values())])


def row(node: Node, series: str, column: list[float | None]) -> list[str]:
    subject, _slash, name = series.partition("/")
    gpu = node.state.gpus.get(subject)
    unit = next((unit for unit in SHOWN if name.endswith("_" + unit)), "")
    show_one = SHOWN.get(unit, figure)
    known = [value for value in column if value is not None]
    lowest, highest, middle = min(known), max(known), sum(known) / len(known)
    words = name.removesuffix("_" + unit).replace("_", " ") if unit else name.replace("_", " ")
    told = [show_one(value) for value in (lowest, middle, highest, column[-1])]
    return [f"GPU {gpu.index}" if gpu is not None else subject, words, *told, blocks(column)]


def blocks(column: list[float | None]) -> str:
    """A chart of one line, from nothing to the highest; a blank where nothing is known."""
    top = max((value for value in column if value is not None), default=0.0) or 1.0
    drawn = ""
    for i in range(min(BAR, len(column))):
        piece = column[i * len(column) // BAR : (i + 1) * len(column) // BAR] if len(column) > BAR else [column[i]]
        known = [value for value in piece if value is not None]
        drawn += BLOCKS[min(7, max(0, int(sum(known) / len(known) / top * 7.999)))] if known else " "
    return drawn
