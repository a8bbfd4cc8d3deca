"""A console without a screen: it keeps the links and sends on what the nodes' alerts say, and that a node is silent.

What was sent is remembered (watch.json), so that a restart sends nothing twice and skips nothing; what could not be
sent yet is kept there too, and tried until it is taken.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent import wire
from console.fleet import LinkView, Node
from console.notify import Undelivered, Ways
from console.session import Session
from console.strings import _
from jobs import durable

DOWN_S = 30.0
RETRY_S = (1.0, 2.0, 5.0, 15.0, 60.0, 300.0)
PENDING_KEPT = 5000
TURN_S = 0.1
Say = Callable[[str], None]


@dataclass(slots=True)
class Spool:
    path: Path
    told: dict[str, list[Any]] = field(default_factory=dict)
    """Node → stream and number of its last event that was taken in"""
    pending: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """Way and notice"""
    down: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Spool:
        try:
            raw = durable.read_json(path) or {}
            pending = [(str(way), dict(notice)) for way, notice in raw.get("pending") or ()]
            return cls(path, dict(raw.get("told") or {}), pending, list(raw.get("down") or ()))
        except (ValueError, TypeError):
            return cls(path)

    def save(self) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        durable.write_json(self.path, {"told": self.told, "pending": self.pending, "down": self.down})


class Watch:
    """`turn` moves what was heard into notices; a thread of its own sends them."""

    def __init__(self, session: Session, ways: Ways, spool: Spool, say: Say, down_s: float = DOWN_S) -> None:
        self.session, self.ways, self.spool, self.say, self.down_s = session, ways, spool, say, down_s
        self.fresh: set[str] = set()
        self.heard: list[tuple[str, wire.FromAgent]] = []
        self.lock, self.bell, self.over = threading.Lock(), threading.Event(), threading.Event()
        session.listeners.append(self.overhear)
        self.sender = threading.Thread(target=self.send_all, name="send", daemon=True)

    def overhear(self, name: str, message: wire.FromAgent | LinkView) -> None:
        """All events, in order: what a node keeps for screens may be pruned before it is looked at."""
        if isinstance(message, (wire.Event, wire.Gap, wire.Welcome)):
            self.heard.append((name, message))

    def run(self) -> None:
        self.sender.start()
        while not self.over.is_set():
            self.turn()
            self.over.wait(TURN_S)
        self.spool.save()

    def turn(self) -> None:
        self.session.pump()
        heard, self.heard = self.heard, []
        with self.lock:
            before = len(self.spool.pending)
            for name, message in heard:
                self.note(name, message)
            changed = [self.look(node) for node in self.session.fleet.nodes.values()]
            if heard or any(changed):
                self.spool.save()
            if len(self.spool.pending) > before:
                self.bell.set()

    def note(self, name: str, message: wire.FromAgent) -> None:
        if isinstance(message, wire.Welcome):
            known = self.spool.told.get(name)
            if known is None:
                self.fresh.add(name)
            if known is None or known[0] != message.stream:  # what happened before anybody watched is history
                self.spool.told[name] = [message.stream, message.last_seq if known is None else 0]
        elif isinstance(message, wire.Gap):
            lost = _("{n} events are no longer on the node; look at its alerts").format(
                n=message.last - message.first + 1
            )
            self.queue({"node": name, "state": "gap", "severity": "warn", "text": f"{name}: {lost}"})
        elif isinstance(message, wire.Event):
            told = self.spool.told.setdefault(name, [message.stream, 0])
            if message.seq > told[1]:
                told[1] = message.seq
                self.of_event(name, message)

    def of_event(self, name: str, event: wire.Event) -> None:
        state = event.kind.removeprefix("alert.")
        if event.kind not in ("alert.raised", "alert.cleared"):
            return
        until = event.data.get("muted_until_unix")
        if isinstance(until, (int, float)) and until > event.unix_s:
            return
        facts = {"alert": event.data.get("id"), "rule": event.data.get("rule"), "run": event.run}
        text = f"{name}: {event.text}"
        self.queue(
            {"node": name, "state": state, "severity": event.severity, "text": text, "unix": event.unix_s, **facts}
        )

    def look(self, node: Node) -> bool:
        """A node that is silent for long, and one that is back; on a node never watched before, what fires already."""
        now = time.monotonic()
        if node.name in self.fresh and node.level > 0:
            self.fresh.remove(node.name)
            for alert in node.state.alerts.values():
                if not alert.acked_by and not alert.muted_until_unix:
                    facts = {"state": "raised", "severity": alert.severity, "rule": alert.rule, "alert": alert.id}
                    self.queue({"node": node.name, "text": f"{node.name}: {alert.text}", "run": alert.run, **facts})
        silent = node.link.phase in ("down", "stale", "connecting") and now - node.link.since_monotonic > self.down_s
        if silent and node.name not in self.spool.down:
            self.spool.down.append(node.name)
            text = _("{node} is not heard any more: {why}").format(node=node.name, why=node.link.why or "?")
            self.queue(
                {"node": node.name, "state": "raised", "severity": "critical", "rule": "node-down", "text": text}
            )
            return True
        if node.name in self.spool.down and node.link.phase == "live":
            self.spool.down.remove(node.name)
            text = _("{node} is heard again").format(node=node.name)
            facts = {"state": "cleared", "severity": "info", "rule": "node-down"}
            self.queue({"node": node.name, "text": text, **facts})
            return True
        return False

    def queue(self, notice: dict[str, Any]) -> None:
        self.say(f"{notice['severity']}: {notice['text']}")
        if self.ways.severity == "critical" and notice["severity"] == "warn":
            return
        self.spool.pending += [(way, notice) for way in self.ways.names()]
        if len(self.spool.pending) > PENDING_KEPT:
            dropped = len(self.spool.pending) - PENDING_KEPT
            self.say(_("NOT SENT: {n} notices are given up, too many wait").format(n=dropped))
            del self.spool.pending[:dropped]

    def send_all(self) -> None:
        """One after the other; a way that fails is tried again later, and the others do not wait for it."""
        failures: dict[str, int] = {}
        due: dict[str, float] = {}
        while not self.over.is_set():
            with self.lock:
                waiting = list(self.spool.pending)
            for item in waiting:
                way, notice = item
                if self.over.is_set() or due.get(way, 0.0) > time.monotonic():
                    continue
                try:
                    self.ways.send(way, notice)
                except Undelivered as why:
                    failures[way] = failures.get(way, 0) + 1
                    pause = RETRY_S[min(failures[way], len(RETRY_S)) - 1]
                    due[way] = time.monotonic() + pause
                    self.say(_("{way} failed, again in {s:.0f} s: {why}").format(way=way, s=pause, why=why))
                    continue
                failures.pop(way, None)
                with self.lock:
                    if item in self.spool.pending:
                        self.spool.pending.remove(item)
                    self.spool.save()
            self.bell.wait(0.5)
            self.bell.clear()


def say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stdout, flush=True)
