"""The alert rules at work: once a tick, whether or not anybody looks.

What fires is remembered by the journal of events: a raised alert is an event with everything in it, so a daemon that
starts again goes on where the last one ended and tells nothing twice. `alerts.json` only shortens that reading, and
holds what counters had come to.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from agent import wording
from agent.conditions import good, holds
from agent.events import Events
from agent.measures import Measures, Subject
from agent.refusal import Refusal
from agent.remedies import Remedies
from agent.remembered import Remembered
from agent.rules import FILE, Rule, load, shipped
from agent.state import StateFolder
from agent.wire import Alert, NodeState
from jobs import durable
from jobs.section import SpecError

LOG = logging.getLogger("agent")
UNKNOWN_S = 600.0
"""A firing alert whose figure is not there any more is kept that long: not knowing is not being well."""
LONGEST_MUTE_S = 30 * 86400.0
RELOAD_EVERY_S = 2.0
NO_RULES = "alert-rules"


@dataclass(slots=True)
class Watched:
    """One rule on one subject."""

    held_since: float | None = None
    good_since: float | None = None
    unknown_since: float | None = None


class Alerts:
    def __init__(self, state: StateFolder, events: Events) -> None:
        """Raises OSError when what was remembered cannot be read."""
        self.state, self.events = state, events
        self.path = state.path / "alerts.json"
        self.memory = Remembered.read(self.path, events)
        self.measures, self.remedies = Measures(), Remedies(state, events)
        self.watched: dict[str, Watched] = {}
        self.rules: dict[str, Rule] = {}
        self.by_kind: dict[str, list[Rule]] = {}
        self.rules_stamp: tuple[int, int] | None = (-1, -1)
        self.rules_due = 0.0
        self.trouble = ""
        self.unmeasured: list[str] = []
        self.saved = self.memory.to_json()
        self.lock = threading.Lock()
        self.reload(0.0)

    def look(self, state: NodeState, now_s: float, unix: float) -> dict[str, Alert]:
        """All that fires. `now_s`: monotonic seconds. Called on one thread only."""
        self.reload(now_s)
        self.measures.take(state, now_s)
        with self.lock:
            self.memory.muted = {alert: until for alert, until in self.memory.muted.items() if until > unix}
            measured, seen = set(), set()
            for subject in self.measures.subjects():
                for rule in self.by_kind.get(subject.kind, ()):
                    if applies(rule, subject, state.host.hostname):
                        alert = f"{rule.name}@{subject.key}" if subject.key else rule.name
                        seen.add(alert)
                        value = self.measures.value(subject, rule.field)
                        if value is not None:
                            measured.add(rule.name)
                        self.judge(alert, rule, subject, value, now_s, unix)
            self.tell_trouble(unix)
            self.gone(seen, now_s, unix)
            self.unmeasured = sorted(name for name, rule in self.rules.items() if rule.enabled and name not in measured)
            quiet = self.memory.muted
            return {one.id: replace(one, muted_until_unix=quiet.get(one.id)) for one in self.memory.firing.values()}

    def reload(self, now_s: float) -> None:
        """The rules again when their file has changed. One that is no good leaves the shipped ones in force."""
        if now_s < self.rules_due:
            return
        self.rules_due = now_s + RELOAD_EVERY_S
        stamp = stamp_of(self.state.home / FILE)
        if stamp == self.rules_stamp:
            return
        self.rules_stamp, self.trouble = stamp, ""
        try:
            self.rules = load(self.state.home)
        except SpecError as wrong:
            self.trouble, self.rules = str(wrong), shipped()
        except (OSError, UnicodeDecodeError) as wrong:
            self.trouble, self.rules = f"{FILE} cannot be read: {wrong}", shipped()
        self.by_kind = {}
        for rule in self.rules.values():
            self.by_kind.setdefault(rule.kind, []).append(rule)

    def judge(self, alert: str, rule: Rule, subject: Subject, value: Any, now_s: float, unix: float) -> None:
        firing = self.memory.firing.get(alert)
        seen = self.watched.get(alert)
        if seen is None:
            seen = self.watched[alert] = Watched()
        if value is None:
            seen.held_since = seen.good_since = None
            self.unknown(alert, firing, seen, now_s, unix)
            return
        seen.unknown_since = None
        if rule.comparison == "grows":
            value = self.grown(alert, float(value), firing)
        if firing is None:
            seen.held_since = (now_s if seen.held_since is None else seen.held_since) if holds(rule, value) else None
            if seen.held_since is not None and now_s - seen.held_since >= rule.for_s:
                self.raise_one(alert, rule, subject, value, unix)
        elif good(rule, value):
            seen.good_since = now_s if seen.good_since is None else seen.good_since
            if now_s - seen.good_since >= rule.clear_for_s:
                self.clear(alert, f"over: {firing.text}", unix)
        else:
            seen.good_since = None
            self.update(firing, rule, subject, value)

    def grown(self, alert: str, value: float, firing: Alert | None) -> float:
        """How much the counter grew beyond what it was; a counter that was reset begins anew."""
        before = self.memory.counted.setdefault(alert, value)
        if value < before:
            before = self.memory.counted[alert] = value
        if firing is not None and value == self.memory.counted.get(f"{alert} last"):
            return 0.0  # no more of it: this is what lets it clear
        self.memory.counted[f"{alert} last"] = value
        return value - before

    def raise_one(self, alert: str, rule: Rule, subject: Subject, value: Any, unix: float) -> None:
        text, said = self.words(rule, subject, value)
        run = subject.key if subject.kind == "run" else None
        made = Alert(alert, rule.name, rule.severity, text, said, subject.key, run, round(unix, 3), "")
        self.memory.firing[alert] = made
        self.watched[alert] = Watched()
        self.tell(made)
        self.remedies.apply(rule, made, subject.runs, unix)

    def update(self, firing: Alert, rule: Rule, subject: Subject, value: Any) -> None:
        """Its figure now; a counter that goes on growing takes the acknowledgement away, for it is news again."""
        text, said = self.words(rule, subject, value)
        again = rule.comparison == "grows" and said != firing.value
        acked = "" if again else firing.acked_by
        now = replace(firing, text=text, value=said, severity=rule.severity, acked_by=acked)
        self.memory.firing[firing.id] = now
        if again:
            self.tell(now)

    def tell(self, alert: Alert) -> None:
        told = replace(alert, muted_until_unix=self.memory.muted.get(alert.id))
        self.events.add("alert.raised", alert.text, alert.severity, alert.run, asdict(told))

    def words(self, rule: Rule, subject: Subject, value: Any) -> tuple[str, str]:
        said = f"by {value:g}" if rule.comparison == "grows" else wording.figure(value, rule.field)
        expected = self.measures.forecasts.get((subject.kind, subject.key))
        pace = getattr(subject.record, "step_time_s", None)
        more = {"value": said, "forecast": wording.until(expected, pace)}
        return wording.filled(rule.text, wording.Words(subject.record, more)), said

    def unknown(self, alert: str, firing: Alert | None, seen: Watched, now_s: float, unix: float) -> None:
        if firing is None:
            return
        seen.unknown_since = now_s if seen.unknown_since is None else seen.unknown_since
        if now_s - seen.unknown_since >= UNKNOWN_S:
            self.clear(alert, f"not measured any more: {firing.text}", unix)

    def gone(self, seen: set[str], now_s: float, unix: float) -> None:
        """Alerts whose rule or subject is not there any more: a run that ended is over, a card that vanished is not."""
        for alert, firing in list(self.memory.firing.items()):
            if alert in seen or firing.rule == NO_RULES:
                continue
            rule = self.rules.get(firing.rule)
            if firing.run is not None or rule is None or not rule.enabled:
                why = "the run has ended" if firing.run else "its rule is off"
                self.clear(alert, f"{why}: {firing.text}", unix)
            else:
                self.unknown(alert, firing, self.watched.setdefault(alert, Watched()), now_s, unix)
        known = seen | self.memory.firing.keys()
        self.watched = {alert: one for alert, one in self.watched.items() if alert in known}

    def clear(self, alert: str, text: str, unix: float) -> None:
        firing = self.memory.firing.pop(alert)
        self.watched.pop(alert, None)
        if f"{alert} last" in self.memory.counted:
            self.memory.counted[alert] = self.memory.counted.pop(f"{alert} last")
        self.events.add("alert.cleared", text, "info", firing.run, {"id": alert, "rule": firing.rule, "unix": unix})

    def tell_trouble(self, unix: float) -> None:
        """A file of rules that is no good is itself an alert: whoever wrote it must not believe it is in force."""
        firing = self.memory.firing.get(NO_RULES)
        if self.trouble and (firing is None or firing.text != self.trouble):
            made = Alert(NO_RULES, NO_RULES, "warn", self.trouble, since_unix=round(unix, 3))
            self.memory.firing[NO_RULES] = made
            self.tell(made)
        elif not self.trouble and firing is not None:
            self.clear(NO_RULES, f"{FILE} is in force again", unix)

    def acknowledge(self, alert: str, operator: str) -> dict[str, Any]:
        """Raises Refusal when it does not fire."""
        with self.lock:
            firing = self.memory.firing.get(alert)
            if firing is None:
                raise Refusal(f"{alert!r} does not fire on this node", "`tunedeck alerts` lists what fires.")
            self.memory.firing[alert] = replace(firing, acked_by=operator)
            self.events.add(
                "alert.acked", f"{operator} looks after: {firing.text}", "info", None, {"id": alert, "by": operator}
            )
        return {}

    def mute(self, alert: str, seconds: float, operator: str, unix: float) -> dict[str, Any]:
        """Raises Refusal for what is no alert of this node."""
        with self.lock:
            known = alert in self.memory.firing or alert.partition("@")[0] in self.rules or alert in self.memory.muted
            if not known:
                raise Refusal(f"there is no alert {alert!r} on this node", "`tunedeck alerts` lists what fires.")
            until = round(unix + min(seconds, LONGEST_MUTE_S), 3) if seconds > 0 else 0.0
            self.memory.mute(alert, until)
            how = f"muted for {wording.duration(min(seconds, LONGEST_MUTE_S))}" if until else "heard again"
            data = {"id": alert, "by": operator, "until_unix": until}
            self.events.add("alert.muted", f"{alert} {how} by {operator}", "info", None, data)
        return {"until_unix": until or None}

    def listing(self, limit: int) -> dict[str, Any]:
        with self.lock:
            told = [event for event in self.events.kept if event.kind.startswith("alert.")][-max(1, limit) :]
            muted, unmeasured = dict(self.memory.muted), list(self.unmeasured)
        history = [{**asdict(event), "data": {"id": event.data.get("id")}} for event in reversed(told)]
        return {"history": history, "not_measured": unmeasured, "muted": muted}

    def save(self) -> None:
        """After the events are on disk. Raises OSError."""
        with self.lock:
            if self.events.queue:
                return
            self.memory.stream, self.memory.seq = self.events.stream, self.events.last_seq
            now = self.memory.to_json()
        told = {key: value for key, value in now.items() if key != "seq"}
        lean = [{**one, "text": "", "value": ""} for one in told["firing"]]
        before = [{**one, "text": "", "value": ""} for one in self.saved["firing"]]
        same = all(told[key] == self.saved[key] for key in told if key != "firing") and lean == before
        if not same or now["seq"] - self.saved["seq"] > 500:
            durable.write_json(self.path, now)
            self.saved = now


def applies(rule: Rule, subject: Subject, hostname: str) -> bool:
    def fits(patterns: tuple[str, ...], names: tuple[str, ...]) -> bool:
        return not patterns or any(fnmatchcase(name, pattern) for name in names for pattern in patterns)

    if not rule.scope and not rule.hosts:
        return rule.enabled
    return rule.enabled and fits(rule.scope, subject.names) and fits(rule.hosts, (hostname,))


def stamp_of(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino
