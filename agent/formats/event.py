"""What a line means: a kind, the line itself, and where it happened. Patterns are tables, matching is one function."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from agent.formats.line import Line

EMPTY: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Event:
    """One reading. ``gpu`` is the index on its node, ``detail`` holds the named groups of the pattern as text."""

    kind: str
    line: Line
    node: str | None = None
    rank: int | None = None
    gpu: int | None = None
    nic: str | None = None
    detail: Mapping[str, str] = field(default_factory=dict)

    def get(self, name: str) -> str:
        """A detail, or an empty string."""
        return self.detail.get(name, "")

    def number(self, name: str) -> float | None:
        """A detail as a number, or None where it is absent or not one."""
        try:
            return float(self.detail[name])
        except (KeyError, ValueError):
            return None

    def at(self, node: str | None, rank: int | None = None) -> Event:
        """The same event on a node, and with a rank where one is given."""
        return Event(self.kind, self.line, node, self.rank if rank is None else rank, self.gpu, self.nic, self.detail)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A kind of event, a literal every such line contains, and the expression that reads it.

    The literal makes the search over gigabytes cheap: a line without it is never given to the expression.
    """

    kind: str
    literal: str
    expression: re.Pattern[str]


def pattern(kind: str, literal: str, expression: str) -> Pattern:
    return Pattern(kind, literal, re.compile(expression))


def said(m: re.Match[str]) -> dict[str, str]:
    """The named groups that took part in a match."""
    return {k: v for k, v in m.groupdict().items() if v is not None}


def _whole(groups: Mapping[str, str], name: str) -> int | None:
    value = groups.get(name, "")
    return int(value) if value.isdecimal() else None


def make(kind: str, line: Line, groups: Mapping[str, str]) -> Event:
    """An event from named groups; `host`, `rank`, `dev`, `gpu` and `nic` become its place, the line fills the rest."""
    rank = _whole(groups, "rank")
    gpu = _whole(groups, "gpu")
    return Event(
        kind,
        line,
        groups.get("host") or line.node,
        line.rank if rank is None else rank,
        _whole(groups, "dev") if gpu is None else gpu,
        groups.get("nic") or None,
        groups,
    )


def match(patterns: Iterable[Pattern], line: Line, text: str, before: Mapping[str, str] = EMPTY) -> Iterator[Event]:
    """Every pattern found in `text` (a part of `line`); `before` holds what the part before it already said."""
    for each in patterns:
        if each.literal in text and (m := each.expression.search(text)) is not None:
            yield make(each.kind, line, {**before, **said(m)})
