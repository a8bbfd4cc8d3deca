"""What is known of alerts across restarts of the daemon: from a file, and from the journal of events beyond it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from agent.events import Events
from agent.wire import Alert, Event
from jobs import durable


@dataclass(slots=True)
class Remembered:
    """What outlives the daemon. `seq`: the last event that is in it."""

    stream: str = ""
    seq: int = 0
    firing: dict[str, Alert] = field(default_factory=dict)
    muted: dict[str, float] = field(default_factory=dict)
    """Alert id → unix time"""
    counted: dict[str, float] = field(default_factory=dict)
    """Alert id → what the counter was when nothing was the matter"""

    def replay(self, event: Event) -> None:
        alert = str(event.data.get("id") or "")
        if event.kind == "alert.raised" and alert:
            known = {name: event.data[name] for name in Alert.__slots__ if name in event.data}
            self.firing[alert] = Alert(**known)
        elif event.kind == "alert.cleared":
            self.firing.pop(alert, None)
        elif event.kind == "alert.acked" and alert in self.firing:
            self.firing[alert] = replace(self.firing[alert], acked_by=str(event.data.get("by") or ""))
        elif event.kind == "alert.muted":
            self.mute(alert, float(event.data.get("until_unix") or 0.0))

    def mute(self, alert: str, until: float) -> None:
        self.muted.pop(alert, None)
        if until:
            self.muted[alert] = until

    def to_json(self) -> dict[str, Any]:
        firing = [asdict(alert) for alert in self.firing.values()]
        kept = {"muted": dict(self.muted), "counted": dict(self.counted)}
        return {"stream": self.stream, "seq": self.seq, "firing": firing, **kept}

    @classmethod
    def read(cls, path: Path, events: Events) -> Remembered:
        """What the file has, and what the journal has beyond it. A file that is no good is as none."""
        try:
            raw = durable.read_json(path) or {}
            firing = {str(one["id"]): Alert(**one) for one in raw.get("firing") or ()}
            found = cls(str(raw.get("stream") or ""), int(raw.get("seq") or 0), firing)
            found.muted, found.counted = dict(raw.get("muted") or {}), dict(raw.get("counted") or {})
        except (ValueError, TypeError, KeyError):
            found = cls()
        known = found.seq if found.stream == events.stream else 0
        for event in events.kept:
            if event.seq > known:
                found.replay(event)
        found.stream, found.seq = events.stream, events.last_seq
        return found
