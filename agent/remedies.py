"""What a rule does by itself about the runs concerned, where its author has said so: snapshot, pause, stop."""

from __future__ import annotations

import hashlib
import time

from agent.audit import Audit
from agent.events import Events
from agent.rules import Rule
from agent.state import StateFolder
from agent.wire import Alert
from jobs import orders
from jobs.run_folder import RunFolder

REST_S = 600.0
"""An alert that comes and goes must not take a snapshot each time."""


class Remedies:
    def __init__(self, state: StateFolder, events: Events) -> None:
        self.state, self.events, self.audit = state, events, Audit(state)
        self.done: dict[tuple[str, str, str], float] = {}

    def apply(self, rule: Rule, alert: Alert, runs: tuple[str, ...], unix: float) -> None:
        """The order's id is made from alert and time, so that whoever raises it again asks for nothing twice."""
        for verb in rule.actions:
            for run in runs:
                key = (alert.id, run, verb)
                if unix - self.done.get(key, -REST_S) >= REST_S:
                    self.done[key] = unix
                    self.order(rule, alert, run, verb)

    def order(self, rule: Rule, alert: Alert, run: str, verb: str) -> None:
        digest = hashlib.sha256(f"{alert.id} {alert.since_unix} {run} {verb}".encode()).hexdigest()
        order = orders.Order(f"alert-{digest[:24]}", verb)
        who = f"alert rule {rule.name}"
        try:
            orders.post(RunFolder.inside(self.state.runs, run), order)
            said = "ordered"
        except OSError as error:
            said = f"not ordered: {error.strerror}"
        severity = "warn" if said == "ordered" else "critical"
        self.events.add("alert.action", f"{who}: {verb} {run}: {said}", severity, run, {"id": alert.id, "verb": verb})
        entry = {"unix": time.time(), "operator": who, "verb": verb, "run": run, "outcome": said, "order": order.id}
        self.audit.write(entry)
