"""One line of whatever an operator has, freed of colour, launcher prefixes and clocks, with what those said kept."""

from __future__ import annotations

import re
from dataclasses import dataclass

from agent.formats.clock import stamp

ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-Z\\-_]")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
LONGEST_LINE = 4096  # characters kept of one line; the longest true message (a c10d fingerprint) is under 1,500


@dataclass(frozen=True, slots=True)
class Line:
    """A line and what its prefixes say."""

    file: str
    number: int
    text: str
    body: str
    node: str | None = None
    rank: int | None = None
    kernel: bool = False

    @property
    def time_s(self) -> float | None:
        """Seconds since the epoch on the writer's own clock, read when asked for: most lines never are."""
        return stamp(self.text)


@dataclass(frozen=True, slots=True)
class Document:
    """The lines of one file, or of one part of a merged file. ``node`` is the host the file name speaks of."""

    name: str
    lines: tuple[Line, ...]
    node: str | None = None


def clean(text: str) -> str:
    """The line as a person reads it: no colour codes, carriage returns or control characters."""
    if "\r" in text:
        text = text.rstrip("\r").rpartition("\r")[2]
    if "\x1b" in text:
        text = ANSI.sub("", text)
    if not text.isprintable():
        text = CONTROL.sub("", text)
    return text[:LONGEST_LINE]


def decode(raw: bytes) -> str:
    """UTF-8, else GB18030 (which contains GBK), else UTF-8 with replacement marks."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        pass
    try:
        return raw.decode("gb18030")
    except UnicodeDecodeError:
        return raw.decode("utf-8", "replace")
