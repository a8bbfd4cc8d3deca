"""Setting the demo up and taking it down: model, homes, supervisor, and an end that leaves no process."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import configs
from agent import wire
from console.commands.reach import settle, turn_until
from console.config import Config
from console.demo.model import Model, Say, prepare
from console.demo.place import NODES, Place
from console.failure import Failure
from console.session import DemoOffer, Session
from console.strings import _
from console.target import Target
from jobs.identity import ProcessIdentity

SUPERVISOR_START_S = 30.0
SUPERVISOR_STOP_S = 40.0
GRACE_S = 10.0


def set_up(place: Place, say: Say) -> Model:
    """Everything a launch needs: the model, a home for each node, and nodes that answer. Raises Failure."""
    try:
        place.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        model = prepare(place.models, say)
        for node in NODES:
            furnish(place.home(node), model)
    except OSError as error:
        hint = _("Free some space, or choose another folder with --folder.")
        raise Failure(_("the demo cannot use {path}: {error}").format(path=place.path, error=error), hint) from error
    if supervisor(place) is None:
        start_supervisor(place)
    return model


def furnish(home: Path, model: Model) -> None:
    """A home as a tuner would have it: a model and a data set."""
    (home / "models").mkdir(mode=0o700, parents=True, exist_ok=True)
    link = home / "models" / model.path.name
    if not link.is_symlink():
        link.symlink_to(model.path)
    (home / "data").mkdir(mode=0o700, exist_ok=True)
    shutil.copyfile(configs.path("examples/faults.jsonl"), home / "data" / "faults.jsonl")


def offer(model: Model, steps: int | None = None) -> DemoOffer:
    """The shipped spec for the model that is there; for `steps` steps where given."""
    text = configs.path("specs/demo.yaml").read_text(encoding="utf-8")
    spec = re.sub(r"^model: .*$", f"model: ~/models/{model.path.name}", text, flags=re.MULTILINE)
    if steps is not None:
        spec = re.sub(r"^  steps: .*$", f"  steps: {steps}", spec, flags=re.MULTILINE)
    kind = _("a real pretrained model") if model.pretrained else _("a small RANDOM model; its answers make no sense")
    return DemoOffer(NODES[0], spec, _("LoRA fine-tune of {name} ({kind})").format(name=model.path.name, kind=kind))


def supervisor(place: Place) -> ProcessIdentity | None:
    """The supervisor that serves the nodes now."""
    raw = announced(place).get("supervisor")
    identity = ProcessIdentity.from_json(raw) if raw else None
    return identity if identity is not None and identity.state() == "alive" else None


def announced(place: Place) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(place.targets.read_text())
    except FileNotFoundError:
        return {}
    return found


def start_supervisor(place: Place) -> None:
    """In a session of its own, so that neither this terminal nor this process can take it along."""
    place.targets.unlink(missing_ok=True)
    with place.log.open("ab") as log:
        subprocess.Popen(
            [sys.executable, "-m", "console.demo.supervisor", str(place.path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=place.path,
            start_new_session=True,
        )
    deadline = time.monotonic() + SUPERVISOR_START_S
    while supervisor(place) is None:
        if time.monotonic() > deadline:
            raise Failure(_("the demo's nodes did not start"), _("See {log}.").format(log=place.log))
        time.sleep(0.05)


def targets(place: Place) -> tuple[Target, ...]:
    return tuple(
        Target(
            name=raw["name"],
            host=raw["host"],
            port=raw["port"],
            user=raw["user"],
            identity_files=tuple(Path(p) for p in raw["identity_files"]),
            known_hosts=tuple(Path(p) for p in raw["known_hosts"]),
            ssh_config=False,
        )
        for raw in announced(place)["targets"]
    )


def configuration(place: Place) -> Config:
    return Config(nodes=targets(place), config_dir=place.path, state_dir=place.path)


def take_down(place: Place, session: Session, say: Say) -> None:
    """End live runs with proof, then agents and nodes. Raises Failure when something stays."""
    settle(session, GRACE_S)
    asked = {}
    for run in session.fleet.runs():
        if run.live:
            say(_("ending {run} on {node}…").format(run=run.state.run, node=run.node))
            body = wire.Kill(run.state.run, GRACE_S)
            asked[run.state.run] = session.ask(run.node, body, 3 * GRACE_S)
    turn_until(session, lambda: all(future.done() for future in asked.values()), 4 * GRACE_S)
    failed = [name for name, future in asked.items() if not future.done() or not future.result().ok]
    session.close()
    stop_supervisor(place)
    if failed:
        hint = _("Run `tunedeck demo` again and end it there with X.")
        raise Failure(_("these runs may still be alive: {names}").format(names=", ".join(failed)), hint)


def stop_supervisor(place: Place) -> None:
    identity = supervisor(place)
    if identity is None:
        return
    identity.send(signal.SIGTERM)
    deadline = time.monotonic() + SUPERVISOR_STOP_S
    while identity.state() == "alive":
        if time.monotonic() > deadline:
            raise Failure(_("the demo's nodes (pid {pid}) do not stop").format(pid=identity.pid), str(place.log))
        time.sleep(0.05)
