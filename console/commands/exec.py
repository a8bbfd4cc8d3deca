"""`tunedeck exec -w gpu[01-16] -- CMD`: one command on many nodes, equal answers shown once."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING

from agent.wire import clean
from console.commands.reach import configured
from console.commands.table import show_json
from console.failure import USAGE, Failure
from console.nodeset import fold
from console.strings import _

if TYPE_CHECKING:
    from console.fanout import Outcome

AT_ONCE = 32


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = _(
        "Run a command on many nodes at once. Each has --timeout seconds for log-in and command together. "
        "Equal outputs are shown once, under the folded names of their nodes."
    )
    parser.epilog = _(
        "Exit status: the highest of the command's own; 124 where a node was not over in time, 255 where SSH failed."
    )
    parser.add_argument("--all", action="store_true", help=_("all nodes of fleet.yaml, where -w names none"))
    parser.add_argument("--fanout", type=int, default=AT_ONCE, metavar="N", help=_("nodes at once (32)"))
    parser.add_argument("--stream", action="store_true", help=_("print each line as it comes, after its node's name"))
    parser.add_argument(
        "--shell", action="store_true", help=_("CMD is one line for the login shell: pipes, variables, wildcards")
    )
    parser.add_argument("cmd", nargs=argparse.REMAINDER, metavar="-- CMD", help=_("program and arguments, as they are"))


def run(args: argparse.Namespace) -> int:
    command = command_of(args)
    if not args.nodes and not args.all:
        raise Failure(_("on which nodes?"), _("Name them with -w, or say --all."), USAGE)
    if args.fanout < 1 or args.timeout <= 0:
        raise Failure(_("--fanout and --timeout must be above zero"), status=USAGE)
    config = configured(args)
    if config.read_only:
        raise Failure(_("this console is read-only: it runs nothing"), status=USAGE)
    from console.answers import Answers
    from console.fanout import fan_out
    from console.ssh import Dialler

    answers, lines = Answers(config.accept_host_keys), Lines()
    dials = [(target.name, Dialler.of(target, config, answers)) for target in config.nodes]
    told = lines.add if args.stream else lambda _node, _piece: None
    outcomes = []
    for outcome in fan_out(dials, command, args.fanout, args.timeout, told):
        outcomes.append(outcome)
        if args.stream:
            lines.end(outcome)
    order = {target.name: i for i, target in enumerate(config.nodes)}
    outcomes.sort(key=lambda one: order[one.node])
    if args.json:
        show_json({"command": command, "nodes": [asdict(one) for one in outcomes]})
    elif not args.stream:
        for group in grouped(outcomes):
            show(group)
    return max(one.status for one in outcomes)


def command_of(args: argparse.Namespace) -> str:
    """What the login shell is given: the words as they are here, or the user's own line. Raises Failure."""
    words = args.cmd[1:] if args.cmd[:1] == ["--"] else args.cmd
    if not words:
        raise Failure(_("there is no command"), _("tunedeck exec -w 'gpu[01-16]' -- nvidia-smi -L"), USAGE)
    if any("\n" in word or "\0" in word or not word.isascii() for word in words):
        raise Failure(_("the command must be one line of ASCII"), status=USAGE)
    if args.shell and len(words) > 1:
        raise Failure(_("--shell takes one argument"), _("Quote the whole line: --shell -- 'ps aux | wc -l'"), USAGE)
    return str(words[0]) if args.shell else shlex.join(words)


def grouped(outcomes: Iterable[Outcome]) -> list[list[Outcome]]:
    """Those that came to the same, together; in the order of the nodes."""
    groups: dict[tuple[object, ...], list[Outcome]] = {}
    for one in outcomes:
        groups.setdefault((one.status, one.output, one.complaint, one.why, one.cut), []).append(one)
    return list(groups.values())


def show(group: list[Outcome]) -> None:
    """Under the folded names: output, then what went to stderr, then what went wrong."""
    first = group[0]
    count = f" ({len(group)})" if len(group) > 1 else ""
    ended = "" if first.status == 0 else "  " + _("exit {n}").format(n=first.status)
    print(f"---- {fold(one.node for one in group)}{count}{ended}")
    for text in (first.output, first.complaint):
        if text:
            print(text.rstrip("\n"))
    report(first)


def report(one: Outcome) -> None:
    if one.cut:
        print(_("[cut: more than is kept of one node's output]"))
    if one.why:
        print(f"tunedeck: {one.why}" + (f"\n  {one.hint}" if one.hint else ""))


class Lines:
    """Whole lines of many nodes, none torn."""

    def __init__(self) -> None:
        self.rests: dict[str, bytes] = {}

    def add(self, node: str, piece: bytes) -> None:
        *lines, self.rests[node] = (self.rests.get(node, b"") + piece).split(b"\n")
        self.show(node, (line.decode("utf-8", "replace") for line in lines))

    def show(self, node: str, lines: Iterable[str]) -> None:
        sys.stdout.write("".join(f"{node}: {clean(line)}\n" for line in lines))
        sys.stdout.flush()

    def end(self, one: Outcome) -> None:
        rest = self.rests.pop(one.node, b"")
        self.show(one.node, [rest.decode("utf-8", "replace")] if rest else [])
        self.show(one.node, one.complaint.splitlines())
        if one.why or one.status:
            self.show(one.node, [one.why or _("exit {n}").format(n=one.status)])
