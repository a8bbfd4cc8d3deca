"""The command line. Bare `tunedeck` opens the console; every screen has a command beside it.

Only the module of the command that was asked for is loaded, so `--help` stays quick. Exit status: 0 ok, 1 a failure was
found, 2 usage or bad configuration, 255 SSH failure.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys

from console.failure import USAGE, Failure
from console.strings import _
from jobs import VERSION

CONSOLE_EXTRA = ("rich", "textual", "paramiko")

COMMANDS = {
    "nodes": _("show every node: link, host, GPUs, runs"),
    "run": _("start a run from a spec on a node"),
    "ps": _("list runs on all nodes, live and ended"),
    "logs": _("print a run's log by rank, or follow it"),
    "kill": _("end a run and prove that its processes are gone"),
    "pause": _("save a run's state and free its GPUs, to be resumed"),
    "snapshots": _("list a run's snapshots; take, verify or pin one"),
    "rollback": _("take a running training back to an earlier step"),
    "resume": _("let an ended run go on from a snapshot, or fork it"),
    "export": _("bring a trained adapter or model home, verified"),
    "cordon": _("take nodes out of use for new runs"),
    "uncordon": _("let nodes take new runs again"),
    "audit": _("who ordered what, and what came of it"),
    "history": _("what a node's figures were, up to 14 days back"),
    "exec": _("run one command on many nodes; equal outputs are shown once"),
    "bench": _("how fast the GPUs of a node talk to each other"),
    "plan": _("what fits, and how long it takes"),
    "data": _("check, convert, split, count and preview training data"),
    "check": _("whether nodes are sound: driver, cards, links, limits, disk, network"),
    "alerts": _("what fires on all nodes; acknowledge, mute, send rules"),
    "watch": _("keep the links without a screen and send alerts on"),
    "triage": _("why a run died: cause, culprit, evidence, remedy"),
    "demo": _("fine-tune a small real model on two nodes on this machine"),
}


def parser_for(command: str | None) -> argparse.ArgumentParser:
    """The parser with full arguments for `command` only; the others are listed by name."""
    parser = argparse.ArgumentParser(
        prog="tunedeck",
        description=_(
            "A terminal console for fine-tuning on GPU machines reached by SSH. Without a command it opens the console."
        ),
        epilog=_("`tunedeck COMMAND --help` explains one command. Nodes come from fleet.yaml or -w; see the README."),
    )
    parser.add_argument("-V", "--version", action="version", version=f"tunedeck {VERSION}")
    add_common(parser, suppress=False)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title=_("commands"))
    for name, summary in COMMANDS.items():
        sub = commands.add_parser(name, help=summary, description=summary[:1].upper() + summary[1:] + ".")
        add_common(sub, suppress=True)
        if name == command:
            importlib.import_module(f"console.commands.{name}").add_arguments(sub)
    return parser


def add_common(parser: argparse.ArgumentParser, *, suppress: bool) -> None:
    """Options that may stand before or after the command."""

    def default(value: object) -> object:
        return argparse.SUPPRESS if suppress else value

    group = parser.add_argument_group(_("nodes and output"))
    group.add_argument(
        "-w",
        "--nodes",
        metavar="HOSTS",
        default=default(None),
        help=_("hosts instead of fleet.yaml: gpu1,gpu2 or gpu[01-16]"),
    )
    group.add_argument("--json", action="store_true", default=default(False), help=_("print JSON"))
    group.add_argument("--read-only", action="store_true", default=default(False), help=_("look, but order nothing"))
    group.add_argument(
        "--timeout", type=float, metavar="S", default=default(15.0), help=_("seconds to wait for nodes (15)")
    )
    group.add_argument(
        "--accept-host-key",
        metavar="FINGERPRINT",
        action="append",
        default=default([]),
        help=_("trust an unknown host key with this SHA256 fingerprint, and remember it"),
    )


def named_command(argv: list[str]) -> str | None:
    """The command in `argv`, told apart from the values of options before it."""
    finder = argparse.ArgumentParser(add_help=False)
    add_common(finder, suppress=False)
    finder.add_argument("command", nargs="?")
    finder.add_argument("rest", nargs=argparse.REMAINDER)
    command = finder.parse_known_args(argv)[0].command
    return command if command in COMMANDS else None


def main(argv: list[str] | None = None) -> int:
    """Run one command line. Returns its exit status."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a locale that lacks an arrow is no reason to end
    try:
        status = carried_out(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader left; nothing more to say to it
        return 1
    return status


def carried_out(argv: list[str]) -> int:
    try:
        args = parser_for(named_command(argv)).parse_args(argv)
        status: int = importlib.import_module(f"console.commands.{args.command or 'bare'}").run(args)
    except SystemExit as left:  # argparse leaves this way after --help and after a mistake
        return left.code if isinstance(left.code, int) else USAGE
    except Failure as failure:
        from agent.wire import clean  # here, because `--help` must not wait for it

        print(f"tunedeck: {clean(str(failure))}", file=sys.stderr)
        return failure.status
    except ModuleNotFoundError as missing:
        if missing.name not in CONSOLE_EXTRA:
            raise
        hint = _("this installation lacks {package}: pip install 'tunedeck[console]'").format(package=missing.name)
        print(f"tunedeck: {hint}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        return 130
    return status


if __name__ == "__main__":
    sys.exit(main())
