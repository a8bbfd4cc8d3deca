"""The request to end a run, laid into its folder, where it outlives the daemon and waits for a new keeper."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path

from jobs import durable
from jobs.run_folder import RunFolder


@dataclass(frozen=True, slots=True)
class KillRequest:
    """Soft first, hard after `grace_s` seconds; at once when `hard`."""

    order: str
    grace_s: float
    hard: bool
    asked_unix: float

    def write(self, folder: RunFolder) -> None:
        durable.write_json(request_path(folder), asdict(self))


@dataclass(frozen=True, slots=True)
class KillResult:
    """What the keeper saw: pids that were of the run and are gone, and those that would not go."""

    gone: tuple[int, ...]
    alive: tuple[int, ...]
    ended_unix: float

    def write(self, folder: RunFolder) -> None:
        durable.write_json(result_path(folder), asdict(self))


def request_path(folder: RunFolder) -> Path:
    return folder.path / "kill.json"


def result_path(folder: RunFolder) -> Path:
    return folder.path / "kill.result.json"


def requested(folder: RunFolder) -> KillRequest | None:
    """The latest request. One that cannot be read is taken as hard: somebody wanted this run to end."""
    try:
        raw = durable.read_json(request_path(folder))
        if raw is None:
            return None
        return KillRequest(str(raw["order"]), float(raw["grace_s"]), bool(raw["hard"]), float(raw["asked_unix"]))
    except (ValueError, KeyError, TypeError):
        return KillRequest("unreadable", 0.0, True, time.time())


def result(folder: RunFolder) -> KillResult | None:
    try:
        raw = durable.read_json(result_path(folder))
        return KillResult(tuple(raw["gone"]), tuple(raw["alive"]), float(raw["ended_unix"])) if raw else None
    except (ValueError, KeyError, TypeError):
        return None
