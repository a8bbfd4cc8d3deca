"""`tunedeck watch`: keep the links without a screen and send alerts on, until told to end."""

from __future__ import annotations

import argparse
import signal

from console import notify
from console.commands.reach import configured, session_over
from console.document import ConfigError
from console.failure import USAGE, Failure
from console.strings import _
from console.watch import DOWN_S, Spool, Watch, say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--down", type=float, default=DOWN_S, metavar="S", help=_("seconds until a silent node is told (30)")
    )


def run(args: argparse.Namespace) -> int:
    config = configured(args)
    try:
        ways = notify.load(config.config_dir)
    except ConfigError as error:
        raise Failure(str(error), status=USAGE) from error
    session = session_over(config)
    watch = Watch(session, ways, Spool.read(config.state_dir / "watch.json"), say, args.down)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: watch.over.set())
    session.start()
    where = ", ".join(ways.names()) or _("nowhere but here: {file} names no way").format(file=notify.FILE)
    say(_("watching {n} nodes; alerts go to {where}").format(n=len(session.fleet.nodes), where=where))
    try:
        watch.run()
    finally:
        session.close()
    say(_("watch ends"))
    return 0
