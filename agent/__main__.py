"""attach | serve | keep | probe"""

from __future__ import annotations

import argparse
import json
import os
import sys

from agent.refusal import Refusal, of_os_error
from agent.state import StateFolder


def main() -> int:
    options = arguments().parse_args()
    os.umask(0o077)
    try:
        return int(options.run(options))
    except (Refusal, OSError) as fault:
        error = fault if isinstance(fault, Refusal) else of_os_error(fault, "the agent cannot go on")
        if options.run is run_attach:
            from agent.attach import say_refused

            say_refused(error)
            return 1
        print(f"tunedeck agent: {error}", file=sys.stderr, flush=True)
        return error.status


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="agent", description="The agent of tunedeck on one GPU machine.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    attach = commands.add_parser("attach", help="bridge stdin and stdout to the daemon; starts it if need be")
    attach.add_argument("--read-only", action="store_true", help="refuse everything that changes something")
    attach.set_defaults(run=run_attach)
    serve = commands.add_parser("serve", help="be the daemon")
    serve.add_argument(
        "--idle", type=float, default=600.0, metavar="SECONDS", help="end when nobody needs it this long"
    )
    serve.set_defaults(run=run_serve)
    stop = commands.add_parser("stop", help="end the daemon; runs go on, and the next attach starts it again")
    stop.set_defaults(run=run_stop)
    keep = commands.add_parser("keep", help="be the parent of one run")
    keep.add_argument("name", metavar="RUN")
    keep.add_argument("--adopt", action="store_true", help="take over a run whose keeper is lost")
    keep.set_defaults(run=run_keep)
    probe = commands.add_parser("probe", help="print one sample as JSON")
    probe.add_argument("--follow", action="store_true", help="one GPU sample for each line on stdin")
    probe.set_defaults(run=run_probe)
    return parser


def run_attach(options: argparse.Namespace) -> int:
    from agent.attach import attach, write_all
    from agent.forced import greeting

    write_all(1, greeting(os.environ))
    return attach(StateFolder.locate(), options.read_only)


def run_serve(options: argparse.Namespace) -> int:
    from agent.serve import serve

    return serve(StateFolder.locate(), options.idle)


def run_stop(options: argparse.Namespace) -> int:
    del options
    from agent.stop import stop

    return stop(StateFolder.locate())


def run_keep(options: argparse.Namespace) -> int:
    from agent.keeper import keep

    return keep(StateFolder.locate(), options.name, options.adopt)


def run_probe(options: argparse.Namespace) -> int:
    from agent import probe

    if options.follow:
        return probe.main_follow()
    print(json.dumps(sample(), indent=1))
    return 0


def sample() -> dict[str, object]:
    """The machine and its GPUs at this moment, without runs."""
    import time
    from dataclasses import replace

    from agent import probe, wire
    from agent.host import HostReader

    host = HostReader()
    found = probe.once()
    time.sleep(0.2)  # rates need two looks
    machine = replace(host.read(found.note), driver_version=found.driver_version, cuda_version=found.cuda_version)
    return wire.to_tree(wire.NodeState(machine, found.gpus, gpu_age_s=0.0 if found.gpus else None))


if __name__ == "__main__":
    sys.exit(main())
