"""A node under the word its user has for it, wherever its own names stand: host name, full name, localhost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from agent.formats.event import Event

RECORD = "node/node.json"
"""Beside what else a node told of itself: see agent/evidence.py"""
LOCAL = "localhost"


@dataclass(frozen=True, slots=True)
class Alias:
    """`folder`: where everything that this node told lies; only there is localhost this node."""

    folder: str
    hostname: str
    word: str

    def names(self, name: str, file: str) -> bool:
        own = (self.hostname, LOCAL) if file.startswith(self.folder) else (self.hostname,)
        return bool(name) and any(name == one or name.startswith(f"{one}.") for one in own if one)


def told(nodes: Iterable[Event]) -> list[Alias]:
    """Of `run.node` events: those with a word of the user's."""
    named = ((e.line.file.removesuffix(RECORD), e.get("hostname"), e.get("alias")) for e in nodes)
    return [Alias(folder, hostname, word) for folder, hostname, word in named if word]


def word(aliases: Iterable[Alias], name: str | None, file: str) -> str | None:
    """What the user calls the node of that name; the name itself for all others."""
    return next((one.word for one in aliases if name and one.names(name, file)), name)


def renamed(aliases: list[Alias], event: Event) -> Event:
    file = event.line.file
    detail = {key: word(aliases, value, file) or "" for key, value in event.detail.items()}
    return replace(event, node=word(aliases, event.node, file), detail=detail)
