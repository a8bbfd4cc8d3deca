"""`tunedeck demo`: two nodes on this machine behind a real SSH server, and one key to fine-tune a real model."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from agent import wire
from console.commands.reach import answer, only_node, session_over, settle, turn_until
from console.commands.table import show_json
from console.demo import stage
from console.demo.place import NODES, Place, unfinished
from console.failure import Failure
from console.fleet import History, Run
from console.format import clock, duration, figure, tokens_s
from console.session import DemoOffer, Session
from console.strings import _

LONGEST_S = 3600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--folder", type=Path, help=_("where the demo keeps its things (in your state folder)"))
    parser.add_argument("--steps", type=int, help=_("train for so many steps instead of what the spec says"))
    parser.add_argument("--keep", action="store_true", help=_("leave nodes and runs alive when this command ends"))
    parser.add_argument("--stop", action="store_true", help=_("end a demo that is still alive, and nothing else"))


def run(args: argparse.Namespace) -> int:
    place = Place(args.folder.absolute()) if args.folder else Place.default(os.environ)
    if args.stop:
        return stop(place)
    model = stage.set_up(place, lambda text: print(text, file=sys.stderr, flush=True))
    offer = stage.offer(model, args.steps)
    if sys.stdin.isatty() and sys.stdout.isatty() and not args.json:
        return on_terminal(place, offer, args.keep)
    return unattended(place, offer, args.keep, args.json)


def session(place: Place) -> Session:
    return session_over(stage.configuration(place))


def stop(place: Place) -> int:
    if stage.supervisor(place) is None:
        if not unfinished(place):
            print(_("no demo is alive"))
            return 0
        stage.start_supervisor(place)  # runs outlive it; to end them their nodes must answer
    last = session(place)
    last.start()
    stage.take_down(place, last, print)
    print(_("the demo has ended; no process is left"))
    return 0


def on_terminal(place: Place, offer: DemoOffer, keep: bool) -> int:
    from console import app

    def factory() -> Session:
        made = session(place)
        made.demo = offer
        return made

    farewell = None if keep else lambda _session: ""
    status = app.run(factory, farewell=farewell, ends_runs=not keep, names=NODES)
    return status if keep else stop(place)


def unattended(place: Place, offer: DemoOffer, keep: bool, as_json: bool) -> int:
    """The same path without a terminal: progress lines, the result, and an end that leaves no process."""
    here = session(place)
    here.start()
    try:
        settle(here, 60.0)
        if here.fleet.simulated:
            say(_("GPUs here are SIMULATED; training runs on the CPU and is real."))
        node, name = found_or_launched(here, offer)
        history = watched(here, node, name)
        return report(Run(node, here.fleet.nodes[node].state.runs[name]), history, as_json)
    finally:
        if keep:
            here.close()
        else:
            stage.take_down(place, here, say)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def found_or_launched(here: Session, offer: DemoOffer) -> tuple[str, str]:
    """A run that an earlier console left going, else a new one."""
    live = next((r for r in here.fleet.runs() if r.live), None)
    if live is not None:
        say(_("{run} on {node} is still going").format(run=live.state.run, node=live.node))
        return live.node, live.state.run
    only_node(here, offer.node, 60.0)
    say(_("{note} on {node}").format(note=offer.note, node=offer.node))
    reply = answer(here, offer.node, wire.Launch(offer.spec_text, "demo.yaml"), deadline_s=120.0)
    return offer.node, str(reply.result["run"])


def watched(here: Session, node: str, name: str) -> History:
    """Print every tenth step until the run has ended; its whole history."""
    history = here.follow(node, name)
    printed = 0

    def over() -> bool:
        nonlocal printed
        for step in history.steps[printed:]:
            if step["step"] == 1 or step["step"] % 10 == 0:
                say(line(step))
        printed = len(history.steps)
        state = here.fleet.nodes[node].state.runs.get(name)
        return state is not None and state.phase == "ended" and history.complete and history.mark("end") is not None

    def failed() -> bool:
        state = here.fleet.nodes[node].state.runs.get(name)
        return state is not None and state.phase == "ended" and state.reason not in ("completed", "stopped")

    if not turn_until(here, lambda: over() or failed(), LONGEST_S):
        raise Failure(_("{run} did not end within an hour").format(run=name))
    return history


def line(step: dict[str, object]) -> str:
    values = {key: value if isinstance(value, (int, float)) else None for key, value in step.items()}
    return _("{time}  step {step}/{total}  loss {loss}  {speed}  {pace}/step").format(
        time=clock(values["time_unix"]),
        step=step["step"],
        total=step["total_steps"],
        loss=figure(values["loss"]),
        speed=tokens_s(values["tokens_per_s"]),
        pace=duration(values["step_time_s"]),
    )


def report(ended: Run, history: History, as_json: bool) -> int:
    state = ended.state
    _steps, losses = history.series("loss")
    if as_json:
        show_json({"node": ended.node, "state": state, "first_loss": losses[:1], "last_loss": losses[-1:]})
    else:
        first, last = (figure(values[0] if values else None) for values in (losses[:1], losses[-1:]))
        result = _("{run}: {reason}; loss {first} → {last}")
        print(result.format(run=state.run, reason=state.reason, first=first, last=last))
        if state.detail:
            print(state.detail)
    return 0 if state.reason == "completed" else 1
