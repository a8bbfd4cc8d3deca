"""Collectives over gloo: who waited, who left, whose call differs. gloo names neighbours, never the culprit."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from agent.formats.event import Event
from agent.triage.case import Case, each_node
from agent.triage.rule import CONFIGURED, FAILED, MISMATCHED, REFUSED, Finding, finding, listed, rule
from agent.triage.rules_hang import smaller


def _by_rank(events: list[Event]) -> dict[int, Event]:
    first: dict[int, Event] = {}
    for event in events:
        if event.rank is not None:
            first.setdefault(event.rank, event)
    return first


def _silent(case: Case, heard: dict[int, Event]) -> list[int]:
    """Ranks that exist and are not among those heard, where they are the fewer."""
    silent = sorted(case.layout.ranks - set(heard))
    return silent if len(silent) <= len(heard) else []


@rule("Ranks whose gloo operation timed out waited; the rank that did not is the one they waited for.")
def waited(case: Case) -> Iterator[Finding]:
    late = _by_rank(case.of("c10d.gloo_timeout"))
    silent = _silent(case, late)
    if late and silent:
        yield finding("app.rank-hung", FAILED - 8, list(late.values())[:3], ranks=silent,
                      nodes=[case.layout.node(r) for r in silent], confidence=0.75,
                      why=f"rank {listed(silent)} reports no timeout, the others wait")  # fmt: skip


@rule("Ranks that see a connection close were still in a collective; the rank that saw none had left.")
def left_early(case: Case) -> Iterator[Finding]:
    cut = _by_rank(case.of("c10d.gloo_reset"))
    own = {e.rank for e in case.of("app.exception") if not e.get("symptom")}
    silent = [r for r in _silent(case, cut) if r not in own]
    if cut and silent and not case.has("kernel.oom", "exit.killed"):
        yield finding("app.uneven-inputs", FAILED - 14, list(cut.values())[:3], ranks=silent,
                      nodes=[case.layout.node(r) for r in silent], confidence=0.6,
                      why=f"rank {listed(silent)} left while the others were in a collective")  # fmt: skip


@rule("The tracebacks of waiting ranks show which collective each had called.")
def other_call(case: Case) -> Iterator[Finding]:
    calls: dict[int, Event] = {}
    for event in case.of("c10d.frame"):
        if event.rank is not None:
            calls.setdefault(event.rank, event)
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for rank, event in calls.items():
        groups[(event.get("op"),)].append(rank)
    odd = smaller(groups)
    if odd and case.has("c10d.gloo_timeout", "c10d.timeout", "c10d.gloo_size"):
        shown = [calls[r] for r in odd][:2] + [e for r, e in calls.items() if r not in odd][:1]
        yield finding("nccl.collective-mismatch", MISMATCHED - 3, shown, ranks=odd,
                      nodes=[case.layout.node(r) for r in odd], confidence=0.85,
                      why=f"rank {listed(odd)} is in {calls[odd[0]].get('op')}, the others are not")  # fmt: skip


@rule("gloo received another size than it waits for: two ranks call different collectives, or with different shapes.")
def other_size(case: Case) -> Iterator[Finding]:
    told = case.of("c10d.gloo_size")
    if told:
        yield finding("nccl.collective-mismatch", MISMATCHED - 6, told, confidence=0.7,
                      why="sizes of one collective differ between ranks")  # fmt: skip


@rule("gloo cannot connect to a port whose host is up: a filter, or the listener's own.")
def cannot_connect(case: Case) -> Iterator[Finding]:
    tries = [
        e for e in case.of("c10d.gloo") if e.get("peer") and not e.get("peer").strip("[").startswith(("127.", "::1"))
    ]
    blocked = [e for e in tries if "No route" in e.line.body or "timed out" in e.line.body.lower()]
    refused = [e for e in blocked if "refused" in e.line.body]
    if blocked and not refused:
        peers = [case.layout.resolve(e.get("peer").rpartition(":")[0] or e.get("peer")) for e in blocked]
        yield finding("net.port-blocked", REFUSED - 2, blocked, nodes=peers, confidence=0.7,
                      why="gloo's connections to it do not get through")  # fmt: skip


@rule(
    "Gloo advertises the address that its name or GLOO_SOCKET_IFNAME gives; loopback cannot be reached from elsewhere."
)
def gloo_interface(case: Case) -> Iterator[Finding]:
    nameless = case.of("signature.gloo-interface")
    away = [] if case.alone() else case.of("c10d.gloo")
    loopback = [e for e in away if re.match(r"127\.|::1|localhost", e.get("peer").strip("["))]
    fallback = case.of("signature.gloo-fallback")
    if nameless or loopback or (fallback and case.has("c10d.gloo")):
        events = [*nameless[:1], *fallback[:1], *loopback[:1], *case.of("c10d.gloo")[:1]]
        nics = [m[1] for e in nameless if (m := re.search(r"(?:address|interface) for: ([\w.-]+)", e.line.body))]
        yield finding("gloo.interface", CONFIGURED, events, nodes=_gloo_nodes(case, events), nics=nics,
                      why="gloo advertises an address that other nodes cannot reach", confidence=0.9)  # fmt: skip


def _gloo_nodes(case: Case, events: list[Event]) -> list[str]:
    return [n for e in each_node(events) if (n := case.node(e))]
