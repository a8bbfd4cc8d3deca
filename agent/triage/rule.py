"""What a rule gives, how rules register, and the weights by which findings are ordered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from agent.formats.event import Event
from agent.formats.line import Line
from agent.triage.case import Case, quoted

# Order of causes. Evidence of broken hardware comes before what software says about its consequences; a specific
# message comes before a general one; what explains everything only by absence comes last.
HARDWARE = 100  # a kernel or device says that a part failed
KILLED = 95  # the kernel ended a process
CONFIGURED = 85  # one message that has one meaning: a limit, a version, a missing device
REFUSED = 78  # the network or the store refused
FAILED = 72  # one rank failed by itself, earliest
WORKING = 69  # one rank was busy elsewhere
MISMATCHED = 71  # ranks disagree about a collective
SLOW = 60  # nothing failed, something is slower than its links allow
ABSENT = 45  # named only because it is silent
UNKNOWN = 5  # something stopped and nothing says why


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause that a rule found. Places are empty where unknown; ``time_s`` is on the writer's clock."""

    kind: str
    weight: float
    quotes: tuple[Line, ...]
    nodes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    gpus: tuple[int, ...] = ()
    nics: tuple[str, ...] = ()
    why: str = ""
    confidence: float = 0.8
    time_s: float | None = None


Rule = Callable[[Case], Iterator[Finding]]
RULES: list[tuple[Rule, str]] = []


def rule(reason: str) -> Callable[[Rule], Rule]:
    """Register a function as a rule. `reason` says why the conclusion follows; it is printed with the verdict."""

    def keep(function: Rule) -> Rule:
        RULES.append((function, reason))
        return function

    return keep


def finding(
    kind: str,
    weight: float,
    events: Iterable[Event],
    *,
    nodes: Iterable[str | None] = (),
    ranks: Iterable[int | None] = (),
    gpus: Iterable[int | None] = (),
    nics: Iterable[str | None] = (),
    why: str = "",
    confidence: float = 0.8,
) -> Finding:
    """A finding with unknown places dropped, repeats removed, and its first events quoted."""
    kept = list(events)
    times = [e.line.time_s for e in kept if e.line.time_s is not None]
    return Finding(
        kind,
        weight,
        quoted(kept),
        tuple(dict.fromkeys(n for n in nodes if n)),
        tuple(sorted({r for r in ranks if r is not None})),
        tuple(sorted({g for g in gpus if g is not None})),
        tuple(dict.fromkeys(n for n in nics if n)),
        why,
        confidence,
        min(times, default=None),
    )


def minority(groups: dict[object, list[str]]) -> list[str]:
    """Members of all groups but the largest; nobody where two groups are largest."""
    sizes = sorted((len(v) for v in groups.values()), reverse=True)
    if len(sizes) < 2 or sizes[0] == sizes[1]:
        return []
    return [m for v in groups.values() if len(v) < sizes[0] for m in v]


def listed(values: Sequence[object], most: int = 8) -> str:
    """A short list in words."""
    shown = ", ".join(str(v) for v in values[:most])
    return shown + (f" and {len(values) - most} more" if len(values) > most else "")
