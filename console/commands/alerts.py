"""`tunedeck alerts`: what fires on all nodes and what has fired; attend to it, or send the nodes their rules."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from agent import wire
from console.commands.nodes import status
from console.commands.reach import answer, opened, report_unreachable, settle
from console.commands.table import show, show_json
from console.failure import USAGE, Failure
from console.fleet import Node
from console.format import age, clock
from console.screens.attention import Concern, about, muted, ordered
from console.session import Session
from console.strings import _


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--history", action="store_true", help=_("what has fired, newest first"))
    parser.add_argument("--ack", metavar="ALERT", help=_("say that somebody looks after it"))
    parser.add_argument("--mute", metavar="ALERT", help=_("keep quiet about it for --hours"))
    parser.add_argument("--hours", type=float, default=1.0, help=_("how long (1); 0 ends it"))
    parser.add_argument("--rules", metavar="FILE", help=_("check these rules and send them to the nodes"))
    parser.add_argument("--on", metavar="NODE", help=_("only this node"))


def run(args: argparse.Namespace) -> int:
    text = rules_text(args.rules) if args.rules else None
    with opened(args) as session:
        settle(session, args.timeout)
        heard = [n for n in session.fleet.nodes.values() if n.level_at is not None and args.on in (None, n.name)]
        if text is not None:
            return send(session, heard, text)
        if args.ack or args.mute:
            return attend(session, heard, args)
        if args.history:
            history(session, heard, args.json)
            return status(session.fleet)
        found = ordered([one for node in session.fleet.nodes.values() for one in about(node, time.monotonic())])
        found = [one for one in found if args.on in (None, one.node)]
        if args.json:
            show_json({"alerts": [as_json(one) for one in found]})
        else:
            print_alerts(session, found)
        report_unreachable(session)
        return status(session.fleet) or int(any(not one.quiet for one in found))


def rules_text(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"{file}: {error}", _("Give a file of rules; the README shows one."), USAGE) from error


def send(session: Session, nodes: list[Node], text: str) -> int:
    """The node checks it; a bad file is refused by the first and sent to none."""
    for node in nodes:
        count = answer(session, node.name, wire.SetRules(text)).result.get("rules")
        print(_("{node}: {n} rules in force").format(node=node.name, n=count))
    return 0


def attend(session: Session, nodes: list[Node], args: argparse.Namespace) -> int:
    wanted = args.ack or args.mute
    having = [node for node in nodes if wanted in node.state.alerts]
    if not having:
        raise Failure(_("no node has an alert {id}").format(id=wanted), _("`tunedeck alerts` lists them."))
    for node in having:
        body = wire.Acknowledge(wanted) if args.ack else wire.Mute(wanted, args.hours * 3600)
        answer(session, node.name, body)
        print(f"{node.name}: {_('acknowledged') if args.ack else _('muted') if args.hours else _('heard again')}")
    return 0


def history(session: Session, nodes: list[Node], as_document: bool) -> None:
    asked = [(node.name, answer(session, node.name, wire.ListAlerts()).result) for node in nodes]
    if as_document:
        show_json({"nodes": dict(asked)})
        return
    told = sorted(
        ((float(e["unix_s"]), name, e) for name, one in asked for e in one["history"]), key=lambda t: t[0], reverse=True
    )
    header = [_("WHEN"), _("NODE"), _("WHAT"), _("TEXT")]
    show(header, [[clock(at), name, str(e["kind"]).removeprefix("alert."), str(e["text"])] for at, name, e in told])
    for name, one in asked:
        if one["not_measured"]:
            print(_("{node}: not measured there: {rules}").format(node=name, rules=", ".join(one["not_measured"])))


def as_json(one: Concern) -> dict[str, Any]:
    return {"node": one.node, "text": one.text, "role": one.role, "since_s": one.since_s, "alert": one.alert}


def print_alerts(session: Session, found: list[Concern]) -> None:
    if session.fleet.simulated:
        print(_("SIMULATED: GPUs whose name says so do not exist; their figures come from a simulation."))
    if not found:
        print(_("Nothing fires."))
        return
    header = [_("SEVERITY"), _("FOR"), _("NODE"), _("TEXT"), _("ATTENDED"), _("ALERT")]
    show(header, [line(one) for one in found])


def line(one: Concern) -> list[str]:
    alert = one.alert
    said = "" if alert is None else _("muted") if muted(alert) else alert.acked_by
    severity = _("critical") if one.role == "bad" else _("warning")
    return [severity, age(one.since_s), one.node, one.text, said, alert.id if alert is not None else ""]
