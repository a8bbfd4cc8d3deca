"""A node under the word its user has for it, wherever its own names stand: host name, full name, localhost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from agent.formats.event import Event

OWN = "node/"
RECORD = f"{OWN}node.json"
"""Beside what else a node told of itself: see agent/evidence.py"""
LOCAL = "localhost"
HOSTS = ("host", "peer", "a", "b")
"""Details of events that name a machine"""


@dataclass(frozen=True, slots=True)
class Alias:
    """`folder`: where everything lies that this node told and no other; only there is localhost this node."""

    folder: str | None
    hostname: str
    word: str

    def told(self, file: str, part: str = "") -> bool:
        return self.folder is not None and file.startswith(self.folder + part)

    def names(self, name: str, file: str) -> bool:
        own = (self.hostname, LOCAL) if self.told(file) else (self.hostname,)
        return bool(name) and any(name == one or name.startswith(f"{one}.") for one in own if one)


def told(nodes: Iterable[Event]) -> list[Alias]:
    """By `run.node` events. A node of which no console has a word goes by its host name."""
    found = [(e.line.file.removesuffix(RECORD), e) for e in nodes]
    folders = [folder for folder, _ in found]
    return [
        Alias(folder if folders.count(folder) == 1 else None, e.get("hostname"), e.node)
        for folder, e in found
        if e.node
    ]


def word(aliases: Iterable[Alias], name: str | None, file: str) -> str | None:
    """What the user calls the node of that name; the name itself for all others."""
    return next((one.word for one in aliases if name and one.names(name, file)), name)


def renamed(aliases: list[Alias], event: Event) -> Event:
    """What a node told of itself is its own, also where it does not say so."""
    file = event.line.file
    own = next((one.word for one in aliases if one.told(file, OWN)), None)
    named = {key: word(aliases, event.get(key), file) or "" for key in HOSTS if key in event.detail}
    return replace(event, node=word(aliases, event.node, file) or own, detail={**event.detail, **named})
