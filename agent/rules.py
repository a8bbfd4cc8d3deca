"""Alert rules: what is shipped, with what the user's file changes or adds. One clear error for anything wrong in it."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import yaml

import configs
from agent import wire
from agent.refusal import Refusal
from jobs import durable
from jobs.section import Section, SpecError

SCOPES = ("gpu", "host", "run", "disk", "port", "node")
SEVERITIES = ("warn", "critical")
ACTIONS = ("snapshot", "pause", "stop")
COMPARISONS = ("above", "below", "is", "has", "grows")
DERIVED = {
    "gpu": (
        *("memory_used_percent", "temperature_margin_c", "oom_in_s"),
        *("utilisation_in_run_percent", "utilisation_unused_percent"),
    ),
    "host": ("ram_available_percent",),
    "disk": ("free_percent",),
    "run": ("oom_in_s", "loss_bad", "loss_spike"),
}
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,47}")
LONGEST_S = 30 * 86400.0
HUGE = 1e18
FILE = "alerts.yaml"


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    metric: str
    """SCOPE.FIELD"""
    comparison: str
    threshold: float = 0.0
    words: tuple[str, ...] = ()
    for_s: float = 0.0
    clear: float | None = None
    clear_for_s: float = 5.0
    severity: str = "warn"
    scope: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    text: str = ""
    actions: tuple[str, ...] = ()
    enabled: bool = True

    @property
    def kind(self) -> str:
        return self.metric.partition(".")[0]

    @property
    def field(self) -> str:
        return self.metric.partition(".")[2]


def shipped() -> dict[str, Rule]:
    return parsed(configs.path(FILE).read_text(encoding="utf-8"), f"configs/{FILE}", {})


def load(home: Path) -> dict[str, Rule]:
    """The rules in force on this node. Raises SpecError for the user's file, OSError when it cannot be read."""
    try:
        text = (home / FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return shipped()
    return parsed(text, FILE, shipped())


def replace_own(home: Path, text: str) -> int:
    """The user's file, checked before. How many rules are in force then. Raises Refusal (with its line), OSError."""
    try:
        found = parsed(text, FILE, shipped())
    except SpecError as wrong:
        raise Refusal(f"{FILE}:{wrong.line}: {wrong.message}", wrong.hint) from wrong
    if text.strip():
        durable.write_bytes(home / FILE, text.encode())
    else:
        (home / FILE).unlink(missing_ok=True)
    return sum(rule.enabled for rule in found.values())


def parsed(text: str, file: str, before: dict[str, Rule]) -> dict[str, Rule]:
    """`before` with what `text` says. Raises SpecError."""
    if not text.strip():
        return dict(before)
    found = dict(before)
    for name, section in sections(text, file):
        found[name] = read(name, section, file, before.get(name))
        section.close()
    return found


def sections(text: str, file: str) -> Iterator[tuple[str, Section]]:
    """Each rule's mapping by its name."""
    top = Section.parse(text, file)
    top.part("rules")
    top.close()
    whole = yaml.compose(text, Loader=yaml.SafeLoader)
    for _key, body in whole.value if whole is not None else ():
        for key, value in body.value if isinstance(body, yaml.MappingNode) else ():
            name, line = str(key.value), key.start_mark.line + 1
            if not NAME.fullmatch(name):
                raise SpecError(f"{name!r} is no name for a rule", file, line, "Use a-z, 0-9 and -, up to 48 of them.")
            if not isinstance(value, yaml.MappingNode):
                raise SpecError(f"rule {name} is not a mapping", file, line, "Write `metric:`, `above:` … below it.")
            yield name, Section(value, file, name, line)


def read(name: str, part: Section, file: str, old: Rule | None) -> Rule:
    metric = part.text("metric", old.metric if old else None)
    if metric is None:
        raise part.wrong("metric", "is missing", "Name one, for example `metric: gpu.memory_used_percent`.")
    check_metric(part, metric, own=file == FILE)
    comparison, threshold, words = compared(part, old)
    return Rule(
        name=name,
        metric=metric,
        comparison=comparison,
        threshold=threshold,
        words=words,
        for_s=part.real("for", old.for_s if old else 0.0, 0.0, LONGEST_S),
        clear=cleared(part, comparison, threshold, old),
        clear_for_s=part.real("clear_for", old.clear_for_s if old else 5.0, 0.0, LONGEST_S),
        severity=part.choice("severity", old.severity if old else "warn", SEVERITIES),
        scope=part.listed("scope") or (old.scope if old else ()),
        hosts=part.listed("hosts") or (old.hosts if old else ()),
        text=worded(part, old.text if old else f"{metric} is {{value}}"),
        actions=acted(part) or (old.actions if old else ()),
        enabled=part.flag("enabled", old.enabled if old else True),
    )


def check_metric(part: Section, metric: str, own: bool) -> None:
    """A user's rule must name what there is; a shipped one may be ahead of what this agent measures."""
    kind, _dot, name = metric.partition(".")
    if kind not in SCOPES:
        raise part.wrong("metric", f"is {metric!r}", f"Begin it with one of: {'. '.join(SCOPES)}.")
    if own and known(kind) and name not in known(kind):
        raise part.wrong("metric", f"is {metric!r}, which is not measured", f"Known: {', '.join(known(kind))}.")


def known(kind: str) -> list[str]:
    """Fields of the records of that kind; empty for one this version has no record of."""
    record = {"gpu": "Gpu", "host": "Host", "run": "RunState", "disk": "Disk", "port": "Port", "node": "NodeState"}
    made = getattr(wire, record[kind], None)
    return sorted([*(f.name for f in fields(made)), *DERIVED.get(kind, ())]) if made is not None else []


def compared(part: Section, old: Rule | None) -> tuple[str, float, tuple[str, ...]]:
    given = [key for key in COMPARISONS if part.has(key)]
    if len(given) > 1:
        raise part.wrong(given[1], f"stands beside {given[0]}", "A rule compares in one way; write two rules.")
    if not given:
        if old is None:
            raise part.wrong("above", "is missing", f"Give one of: {', '.join(COMPARISONS)}.")
        return old.comparison, old.threshold, old.words
    if given[0] in ("is", "has"):
        return given[0], 0.0, part.listed(given[0])
    return given[0], part.real(given[0], 0.0, -HUGE, HUGE), ()


def cleared(part: Section, comparison: str, threshold: float, old: Rule | None) -> float | None:
    if not part.has("clear"):
        kept = old.clear if old is not None and old.comparison == comparison else None
        return kept if kept is not None and beyond(comparison, kept, threshold) else None
    value = part.real("clear", threshold, -HUGE, HUGE)
    if comparison not in ("above", "below"):
        raise part.wrong("clear", f"means nothing beside {comparison}", "Remove it.")
    if not beyond(comparison, value, threshold):
        hint = f"Give a value {'not above' if comparison == 'above' else 'not below'} {threshold:g}."
        raise part.wrong("clear", f"is {value:g}, which is on the alarming side of {threshold:g}", hint)
    return value


def beyond(comparison: str, clear: float, threshold: float) -> bool:
    return clear <= threshold if comparison == "above" else clear >= threshold


def worded(part: Section, default: str) -> str:
    text = part.text("text", default) or default
    try:
        list(string.Formatter().parse(text))
    except ValueError as wrong:
        raise part.wrong(
            "text", f"has a brace too many: {wrong}", "Write {value}, and {{ for a brace itself."
        ) from wrong
    return text


def acted(part: Section) -> tuple[str, ...]:
    words = part.listed("action")
    for word in words:
        if word not in ACTIONS:
            raise part.wrong("action", f"is {word!r}", f"Choose of: {', '.join(ACTIONS)}.")
    return words
