"""What a line means: a kind, the line itself, and where it happened. Patterns are tables; matching them is one function."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

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

    def at(self, **where: object) -> Event:
        """The same event with a place filled in."""
        return replace(self, **where)  # type: ignore[arg-type]


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


def _whole(said: Mapping[str, str], name: str) -> int | None:
    value = said.get(name, "")
    return int(value) if value.isdecimal() else None


def make(kind: str, line: Line, said: Mapping[str, str]) -> Event:
    """An event from named groups; `host`, `rank`, `dev`, `gpu` and `nic` become its place, the line fills the rest."""
    rank = _whole(said, "rank")
    gpu = _whole(said, "gpu")
    return Event(
        kind,
        line,
        said.get("host") or line.node,
        line.rank if rank is None else rank,
        _whole(said, "dev") if gpu is None else gpu,
        said.get("nic") or None,
        said,
    )


def match(patterns: Iterable[Pattern], line: Line, text: str, before: Mapping[str, str] = EMPTY) -> Iterator[Event]:
    """Every pattern found in `text` (a part of `line`); `before` holds what the part before it already said."""
    for each in patterns:
        if each.literal in text:
            m = each.expression.search(text)
            if m is not None:
                yield make(each.kind, line, {**before, **{k: v for k, v in m.groupdict().items() if v is not None}})
