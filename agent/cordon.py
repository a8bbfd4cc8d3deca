"""A node taken out of use for new runs: by whom, since when and why. A file, so it outlives daemon and machine."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from agent import wire
from agent.refusal import CORDONED, Refusal
from agent.state import StateFolder
from jobs import durable

REASON_LIMIT_CHARS = 500


@dataclass(frozen=True, slots=True)
class Cordon:
    operator: str
    unix: float
    reason: str

    @property
    def words(self) -> str:
        since = datetime.fromtimestamp(self.unix, timezone.utc)
        return f"by {self.operator} since {since:%Y-%m-%d %H:%M} UTC" + (f": {self.reason}" if self.reason else "")


def file(state: StateFolder) -> Path:
    return state.path / "cordon.json"


def of(state: StateFolder) -> Cordon | None:
    """None when the node takes runs. A file that cannot be read still says that it is there. Raises OSError."""
    try:
        found = durable.read_json(file(state))
        return None if found is None else Cordon(str(found["operator"]), float(found["unix"]), str(found["reason"]))
    except (ValueError, KeyError, TypeError):
        return Cordon("somebody", file(state).stat().st_mtime, f"{file(state)} is damaged")


def change(state: StateFolder, body: wire.Cordon, operator: str) -> dict[str, Any]:
    """Carries out the order. Raises OSError."""
    if body.cordoned:
        reason = " ".join(body.reason.split())[:REASON_LIMIT_CHARS]
        durable.write_json(file(state), {"operator": operator, "unix": time.time(), "reason": reason})
    else:
        file(state).unlink(missing_ok=True)
        durable.sync_folder(state.path)
    now = of(state)
    return {"cordon": now.words if now else ""}


def refuse(state: StateFolder, force: bool) -> None:
    """Raises Refusal where no new run may start."""
    now = of(state)
    if now is not None and not force:
        raise Refusal(
            f"this node is cordoned {now.words}",
            "Choose another, `tunedeck uncordon` it, or force.",
            {"kind": CORDONED},
        )
