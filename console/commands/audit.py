"""`tunedeck audit`: who ordered what, on which node, and what came of it."""

from __future__ import annotations

import argparse
import time
from typing import Any

from agent import wire
from console.commands.cordon import named
from console.commands.reach import answer, opened, report_unreachable, settle
from console.commands.table import show, show_json
from console.failure import SSH
from console.format import CLOCK_LIMIT_S, UNKNOWN
from console.strings import _


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("node", nargs="*", help=_("node names or sets like gpu[01-16]; all when left out"))
    parser.add_argument("--limit", type=int, default=50, metavar="N", help=_("newest entries of each node (50)"))


def run(args: argparse.Namespace) -> int:
    with opened(args) as session:
        names = named(session, args.node) or list(session.fleet.nodes)
        settle(session, args.timeout)
        silent = report_unreachable(session, names)
        entries: list[dict[str, Any]] = []
        for name in names:
            if session.fleet.nodes[name].level_at is not None:
                found = answer(session, name, wire.ReadAudit(args.limit), args.timeout).result.get("entries") or []
                entries += [{"node": name, **entry} for entry in found if isinstance(entry, dict)]
    entries.sort(key=when, reverse=True)
    if args.json:
        show_json({"entries": entries})
    else:
        header = [_("TIME"), _("NODE"), _("WHO"), _("ORDER"), _("RUN"), _("STEP"), _("OUTCOME")]
        show(header, [row(entry) for entry in entries])
    return SSH if silent else 0


def when(entry: dict[str, Any]) -> float:
    unix = entry.get("unix")
    return float(unix) if isinstance(unix, (int, float)) and 0 <= unix < CLOCK_LIMIT_S else 0.0


def row(entry: dict[str, Any]) -> list[str]:
    texts = [entry.get(key) for key in ("node", "operator", "verb", "run", "step", "outcome")]
    told = [" ".join(str(text).split()) if text not in (None, "") else UNKNOWN for text in texts]
    return [time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when(entry))), *told]
