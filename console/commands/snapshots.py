"""`tunedeck snapshots RUN`: what a run can go back to, and how exact that would be."""

from __future__ import annotations

import argparse
import time
from typing import Any

from agent import wire
from console.commands.asking import add_run
from console.commands.reach import answer, located, opened
from console.commands.table import show, show_json
from console.failure import Failure
from console.fleet import Run
from console.format import UNKNOWN, age, figure, size
from console.session import Session
from console.strings import _

READ_S = 3600.0
"""Hashing tens of GiB from a slow disk."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("--verify", action="store_true", help=_("read every byte and compare its SHA-256"))
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--now", action="store_true", help=_("take one now"))
    what.add_argument("--pin", metavar="NAME", help=_("keep this one until it is unpinned"))
    what.add_argument("--unpin", metavar="NAME", help=_("let this one go when its time comes"))


def run(args: argparse.Namespace) -> int:
    with opened(args) as session:
        found = located(session, args.run, args.on, args.timeout)
        name, node = found.state.run, found.node
        if args.now:
            return told(args, found, answer(session, node, wire.Steer(name, "snapshot"), READ_S).result)
        if args.pin or args.unpin:
            answer(session, node, wire.Pin(name, args.pin or args.unpin, bool(args.pin)))
        listed = list_of(session, found, args.verify)
        if args.json:
            show_json({"run": name, "node": node, **listed})
        else:
            print_list(found, listed)
        return 1 if listed["refused"] else 0


def list_of(session: Session, found: Run, verify: bool = False) -> dict[str, Any]:
    return answer(session, found.node, wire.ListSnapshots(found.state.run, verify), READ_S).result


def told(args: argparse.Namespace, found: Run, result: dict[str, Any]) -> int:
    """What the job answered."""
    if args.json:
        show_json({"run": found.state.run, "node": found.node, **result})
    else:
        print(f"{found.state.run} on {found.node}: {result.get('message')}")
    return 0


def print_list(found: Run, listed: dict[str, Any]) -> None:
    if listed["snapshots"]:
        head = [_("NAME"), _("STEP"), _("AGE"), _("SIZE"), _("LOSS"), _("PINNED"), _("VERIFIED"), _("RESUME"), ""]
        show(head, [row(one) for one in listed["snapshots"]])
    else:
        print(_("{run} on {node} has no snapshots").format(run=found.state.run, node=found.node))
    for one in listed["refused"]:
        print(_("not usable: {reason}").format(reason=one["reason"]))


def row(one: dict[str, Any]) -> list[str]:
    loss, verified = one.get("loss"), one.get("verified")
    return [
        str(one["name"]),
        str(one["step"]),
        age(time.time() - float(one["created_unix"])),
        size(one["size_bytes"]),
        figure(loss if isinstance(loss, (int, float)) else None),
        _("pinned") if one.get("pinned") else "",
        UNKNOWN if verified is None else _("yes") if verified else _("DAMAGED"),
        str(one.get("badge") or UNKNOWN),
        str(one.get("why") or ""),
    ]


def named(listed: dict[str, Any], wanted: str) -> str:
    """The name of the snapshot meant: a name, or a step, of which the latest one counts. Raises Failure."""
    found = [one for one in listed["snapshots"] if str(one["step"]) == wanted]
    if not wanted.isdecimal() or found:
        return str(found[0]["name"]) if found else wanted
    steps = ", ".join(sorted({str(one["step"]) for one in listed["snapshots"]}, key=int))
    hint = _("There are snapshots of steps {steps}.").format(steps=steps) if steps else _("There are none.")
    raise Failure(_("there is no snapshot of step {step}").format(step=wanted), hint)
