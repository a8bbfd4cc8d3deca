"""What a keeper writes down about its run: `state.json`, replaced as a whole."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from jobs import durable
from jobs.identity import ProcessIdentity
from jobs.run_folder import RunFolder


@dataclass(frozen=True, slots=True)
class Kept:
    """`phase`: starting | running | stopping | ended. `reason`: completed | stopped | killed | failed | lost."""

    phase: str
    keeper: ProcessIdentity | None = None
    launcher: ProcessIdentity | None = None
    started_unix: float | None = None
    ended_unix: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    reason: str | None = None
    detail: str = ""

    def write(self, folder: RunFolder) -> None:
        durable.write_json(folder.state, asdict(self))


def read(folder: RunFolder) -> Kept | None:
    """None when no keeper has written yet. Raises ValueError for a file that is no keeper's."""
    raw = durable.read_json(folder.state)
    if raw is None:
        return None
    known = {name: raw[name] for name in Kept.__slots__ if name in raw}
    try:
        return Kept(**{**known, "keeper": identity(raw.get("keeper")), "launcher": identity(raw.get("launcher"))})
    except (TypeError, KeyError) as error:
        raise ValueError(f"{folder.state} is not a keeper's record: {error!r}") from error


def identity(raw: Any) -> ProcessIdentity | None:
    return ProcessIdentity.from_json(raw) if isinstance(raw, dict) else None


def recorded(folder: RunFolder) -> list[ProcessIdentity]:
    """Launcher and ranks as they wrote themselves down."""
    kept = read(folder)
    found = [kept.launcher] if kept and kept.launcher else []
    return found + [rank.identity for rank in rank_records(folder) if rank.identity]


@dataclass(frozen=True, slots=True)
class RankRecord:
    """A rank's own word about itself: who it is and, in the end, how it ended."""

    rank: int
    identity: ProcessIdentity | None
    outcome: str | None
    """completed | stopped | failed; None while it lives, or when it could not say"""
    error: str = ""
    secondary: bool = False
    """It failed only because another rank did."""


def rank_records(folder: RunFolder) -> list[RankRecord]:
    """The readable records of all ranks in order; a rank that died before writing has none."""
    if not folder.ranks.is_dir():
        return []
    numbers = sorted(int(path.stem) for path in folder.ranks.glob("*.json") if path.stem.isdecimal())
    return [record for number in numbers if (record := rank_record(folder, number))]


def rank_record(folder: RunFolder, number: int) -> RankRecord | None:
    try:
        raw = durable.read_json(folder.rank(number))
        if raw is None:
            return None
        error = raw.get("error") or {}
        return RankRecord(
            number,
            identity(raw.get("identity")),
            raw.get("outcome"),
            str(error.get("message") or ""),
            bool(error.get("secondary")),
        )
    except (ValueError, KeyError, AttributeError):
        return None
