"""The answer: verdict, faults in order, what was set aside, what to collect. Plain records with a JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FAULT, HEALTHY, UNDETERMINED = "fault", "healthy", "undetermined"


@dataclass(frozen=True, slots=True)
class Quote:
    """A line of the incident: file as given, line number from 1, text without colour codes."""

    file: str
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Culprit:
    """Where the fault is; empty where unknown. ``gpus`` are indexes on their node."""

    nodes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    gpus: tuple[int, ...] = ()
    nics: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.nodes or self.ranks or self.gpus or self.nics)


@dataclass(frozen=True, slots=True)
class Fault:
    """One cause. ``confidence`` is 0…1; ``reason`` is why the conclusion follows from the evidence."""

    kind: str
    title: str
    culprit: Culprit
    cause: str
    remedy: str
    owner: str
    evidence: tuple[Quote, ...]
    confidence: float
    reason: str
    source: str

    def sureness(self) -> str:
        """The confidence in words."""
        return next(word for least, word in ((0.9, "sure"), (0.75, "likely"), (0.5, "possible"), (0.0, "a guess"))
                    if self.confidence >= least)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Aside:
    """Symptoms that were not taken for the cause, how many, and why."""

    what: str
    count: int
    why: str
    example: Quote | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The whole answer. ``notes`` tell what could not be read."""

    verdict: str
    faults: tuple[Fault, ...]
    asides: tuple[Aside, ...]
    following: tuple[str, ...]
    notes: tuple[str, ...]
    lines: int
    files: int

    def as_json(self) -> dict[str, Any]:
        """The form that `tunedeck triage --json` prints."""
        return {
            "verdict": self.verdict,
            "faults": [_fault(f) for f in self.faults],
            "set_aside": [_aside(a) for a in self.asides],
            "next": list(self.following),
            "notes": list(self.notes),
            "read": {"files": self.files, "lines": self.lines},
        }


def _quote(quote: Quote) -> dict[str, Any]:
    return {"file": quote.file, "line": quote.line, "text": quote.text}


def _fault(fault: Fault) -> dict[str, Any]:
    culprit: Mapping[str, list[Any]] = {
        "node": list(fault.culprit.nodes),
        "rank": list(fault.culprit.ranks),
        "gpu": list(fault.culprit.gpus),
        "nic": list(fault.culprit.nics),
    }
    return {
        "kind": fault.kind,
        "title": fault.title,
        "confidence": round(fault.confidence, 2),
        "culprit": culprit,
        "cause": fault.cause,
        "reason": fault.reason,
        "remedy": fault.remedy,
        "owner": fault.owner,
        "source": fault.source,
        "evidence": [_quote(q) for q in fault.evidence],
    }


def _aside(aside: Aside) -> dict[str, Any]:
    example = _quote(aside.example) if aside.example else None
    return {"what": aside.what, "count": aside.count, "why": aside.why, "example": example}
