"""`tunedeck run SPEC`: start a run on a node."""

from __future__ import annotations

import argparse
from pathlib import Path

import configs
from agent import wire
from console.commands.logs import follow
from console.commands.reach import answer, only_node, opened
from console.commands.table import show_json
from console.failure import USAGE, Failure
from console.strings import _
from jobs.spec import Spec, SpecError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("spec", type=Path, help=_("the run's YAML file; see configs/specs for templates"))
    parser.add_argument("--on", metavar="NODE", help=_("the node to run on; needed when there is more than one"))
    parser.add_argument(
        "--force", action="store_true", help=_("start although GPUs are busy or the plan says it does not fit")
    )
    parser.add_argument("--check", action="store_true", help=_("check the spec here and start nothing"))
    parser.add_argument("-f", "--follow", action="store_true", help=_("stay and print the log of rank 0"))


def run(args: argparse.Namespace) -> int:
    text = read_spec(args.spec)
    if args.check:
        print(_("{spec}: nothing wrong that can be seen from here").format(spec=args.spec))
        return 0
    with opened(args) as session:
        node = only_node(session, args.on, args.timeout)
        reply = answer(session, node, wire.Launch(text, args.spec.name, args.force), deadline_s=120.0)
        started, forecast = str(reply.result["run"]), str(reply.result.get("forecast") or "")
        if args.json:
            show_json({"run": started, "node": node, "forecast": forecast})
        else:
            print(_("started {run} on {node}").format(run=started, node=node), flush=True)
            if forecast:
                print(f"  {forecast}", flush=True)
        return follow(session, node, started, rank=0, lines=0) if args.follow else 0


def read_spec(path: Path) -> str:
    """The text of a spec that parses. Raises Failure."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else _("not UTF-8 text")
        hint = _("Give a run spec; {folder} has templates.").format(folder=configs.path("specs"))
        raise Failure(_("{path} cannot be read: {why}").format(path=path, why=why), hint, USAGE) from error
    try:
        Spec.parse(text, path.name)
    except SpecError as error:
        raise Failure(str(error), status=USAGE) from error
    return text
