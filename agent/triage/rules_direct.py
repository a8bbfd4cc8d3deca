"""Messages that have one meaning: the signatures of the catalogue, the user's own among them."""

from __future__ import annotations

from collections import defaultdict

from agent.formats.event import Event
from agent.triage.case import Case
from agent.triage.catalogue import Catalogue, Signature
from agent.triage.rule import Finding, finding

REASON = "The message has one meaning; whoever prints it has the fault."


def direct(case: Case, catalogue: Catalogue) -> list[Finding]:
    """One finding for every kind of which a signature was met."""
    met: dict[str, list[tuple[Signature, Event]]] = defaultdict(list)
    for name, signature in catalogue.direct.items():
        for event in case.of(name):
            met[signature.kind].append((signature, event))
    return [_finding(case, kind, pairs) for kind, pairs in met.items()]


def _finding(case: Case, kind: str, pairs: list[tuple[Signature, Event]]) -> Finding:
    best = max(pairs, key=lambda pair: pair[0].weight)[0]
    events = [e for s, e in pairs if s is best]
    shown = [*events[:2], *case.env(best.variable)[:1]]
    if best.names == "none":
        return finding(kind, best.weight, shown, why=_text(events))
    ranks = [e.rank for e in events] if best.names == "rank" else []
    gpus = [e.gpu if e.gpu is not None else case.layout.gpu(e.rank) for e in events] if ranks else []
    return finding(kind, best.weight, shown, nodes=case.nodes(events), ranks=ranks, gpus=gpus, why=_text(events))


def _text(events: list[Event]) -> str:
    return events[0].line.body.strip()[:160]
