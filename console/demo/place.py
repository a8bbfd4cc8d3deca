"""Where the demo keeps its things, and the nodes it has. One folder; removing it removes the demo."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from jobs.durable import read_json
from jobs.identity import ProcessIdentity

NODES = ("node1", "node2")


@dataclass(frozen=True, slots=True)
class Place:
    """Names every path of the demo."""

    path: Path

    @classmethod
    def default(cls, environ: dict[str, str] | os._Environ[str]) -> Place:
        state = Path(environ.get("XDG_STATE_HOME", ""))
        home = Path(environ.get("HOME") or Path.home())
        return cls((state if state.is_absolute() else home / ".local" / "state") / "tunedeck" / "demo")

    @property
    def models(self) -> Path:
        return self.path / "models"

    @property
    def server(self) -> Path:
        """Keys and targets of the SSH server."""
        return self.path / "server"

    @property
    def targets(self) -> Path:
        """Written by a supervisor once its server listens."""
        return self.path / "targets.json"

    @property
    def lock(self) -> Path:
        """Held by the supervisor as long as it lives."""
        return self.path / "supervisor.lock"

    @property
    def log(self) -> Path:
        return self.path / "supervisor.log"

    def home(self, node: str) -> Path:
        return self.path / "nodes" / node

    def runtime(self, node: str) -> Path:
        """Where the node's agent has its socket: apart from this user's own agent."""
        return self.path / "runtime" / node

    def gpus(self, node: str) -> Path:
        """State of the node's simulated GPUs."""
        return self.path / f"{node}.nvml"


def live_ranks(place: Place) -> dict[str, list[int]]:
    """Node to the pids of its ranks that are alive; nodes without any are left out."""
    found: dict[str, list[int]] = {}
    for node in NODES:
        for file in sorted(place.home(node).glob(".tunedeck/nodes/*/runs/*/ranks/*.json")):
            record = read_json(file)
            identity = ProcessIdentity.from_json(record["identity"]) if record else None
            if identity is not None and identity.state() == "alive":
                found.setdefault(node, []).append(identity.pid)
    return found


def unfinished(place: Place) -> bool:
    """A run is under way, or was when its keeper last wrote."""
    states = (state for node in NODES for state in place.home(node).glob(".tunedeck/nodes/*/runs/*/state.json"))
    return any((read_json(state) or {}).get("phase") != "ended" for state in states)
