"""A run of tunedeck's own: what its folder says of ends and stalls, and dumps that torch itself wrote."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator

from agent.formats.event import Event
from agent.formats.run import STATES
from agent.triage.case import Case
from agent.triage.rule import FAILED, KILLED, MISMATCHED, Finding, finding, listed, rule
from agent.triage.rules_hang import smaller

FULL_PERCENT = 99.0
HELD = ("T", "t", "D")
"""States of a process in which it cannot answer, whatever its program does (proc(5))."""


def _nodes(case: Case, ranks: list[int]) -> list[str | None]:
    return [case.layout.node(r) for r in ranks]


def _stood(case: Case, rank: int | None) -> Event | None:
    """Where its main thread stood when it was asked."""
    return next((e for e in reversed(case.of("stack.main")) if e.rank == rank), None)


@rule("A rank that lives and does not say where it stands is stopped, or caught in the kernel or in a library.")
def silent_rank(case: Case) -> Iterator[Finding]:
    asked = case.of("flight.answer")
    mute = [e for e in asked if e.get("alive") and not e.get("answered") and e.rank is not None]
    mute = [e for e in mute if e.get("state") in HELD] or mute
    if mute and len(mute) < max(2, len(asked)):
        ranks = [e.rank for e in mute if e.rank is not None]
        stood = [s for r in ranks if (s := _stood(case, r))]
        why = STATES.get(mute[0].get("state"), "it does not answer")
        yield finding("app.rank-hung", FAILED + 5, [*mute[:2], *stood[:1]], ranks=ranks, nodes=_nodes(case, ranks),
                      why=f"rank {listed(ranks)} is alive and does not answer: {why}", confidence=0.95)  # fmt: skip


@rule("Ranks that were asked in a stall: one whose process is gone is what the others wait for.")
def gone_rank(case: Case) -> Iterator[Finding]:
    gone = [e for e in case.of("flight.answer") if not e.get("alive") and e.rank is not None]
    if gone and case.has("flight.last"):
        ranks = [e.rank for e in gone if e.rank is not None]
        yield finding("app.rank-dead", FAILED + 2, gone[:2], ranks=ranks, nodes=_nodes(case, ranks),
                      why=f"rank {listed(ranks)} was gone when the others stood still", confidence=0.85)  # fmt: skip


@rule("Who has left the last collective that all completed and entered no other is what the others wait for.")
def outside(case: Case) -> Iterator[Finding]:
    if case.has("flight.over"):
        return
    pending = {e.rank for e in _dumps(case) if not e.get("retired")}
    for events in _groups(case).values():
        newest = {e.rank: int(e.get("seq")) for e in events if e.rank is not None}
        low = min(newest.values())
        behind = sorted(r for r, seq in newest.items() if seq == low and r not in pending)
        if behind and len(behind) < len(newest) and low < max(newest.values()):
            stood = [s for r in behind if (s := _stood(case, r))]
            others = [e for e in events if e.rank not in behind and not e.get("retired")]
            where = f" and stands in {stood[0].get('own')}" if stood else ""
            shown = [*stood[:2], *[e for e in events if e.rank in behind][:1], *others[:1]]
            yield finding("app.rank-hung", FAILED + 3, shown, ranks=behind, nodes=_nodes(case, behind), confidence=0.9,
                          why=f"rank {listed(behind)} never entered collective {low + 1}{where}")  # fmt: skip


@rule("Under one number all ranks must call the same collective; whose call differs is odd.")
def differing_call(case: Case) -> Iterator[Finding]:
    if case.has("flight.over"):
        return
    for events in _groups(case).values():
        calls = {e.rank: json.loads(e.get("calls")) for e in events if e.rank is not None}
        shared = sorted(set.intersection(*(set(one) for one in calls.values())), key=int)
        for seq in shared:
            said: dict[tuple[str, ...], list[int]] = defaultdict(list)
            for rank, one in calls.items():
                said[(one[seq],)].append(rank)
            if len(said) < 2:
                continue
            odd = smaller(said)
            stood = [s for r in (odd or list(calls)) if (s := _stood(case, r))]
            words = "; ".join(f"rank {listed(ranks)} calls {call[0]}" for call, ranks in said.items())
            yield finding("nccl.collective-mismatch", MISMATCHED + 4, [*stood[:2], *events[:2]], ranks=odd,
                          nodes=_nodes(case, odd), why=f"at collective {seq} {words}",
                          confidence=0.92 if odd else 0.8)  # fmt: skip
            return


def _dumps(case: Case) -> list[Event]:
    """Those that say what is under way: torch's own. Others are compared by `compared_dumps`."""
    return [e for e in case.of("flight.last") if "calls" in e.detail]


def _groups(case: Case) -> dict[str, list[Event]]:
    found: dict[str, list[Event]] = defaultdict(list)
    for event in _dumps(case):
        found[event.get("group")].append(event)
    return {group: events for group, events in found.items() if len({e.rank for e in events}) > 1}


@rule("No rank is in a collective and none moves: all stand in the program, or in what feeds it.")
def all_outside(case: Case) -> Iterator[Finding]:
    asked, stood = case.of("flight.answer"), case.of("stack.main")
    inside = [e for e in _dumps(case) if not e.get("retired")]
    if asked and stood and not inside and all(e.get("answered") for e in asked):
        ranks = [e.rank for e in stood if e.rank is not None]
        why = f"no rank is in a collective; rank {stood[0].rank} stands in {stood[0].get('own')}"
        yield finding("app.rank-hung", FAILED - 12, stood[:3], ranks=ranks, nodes=_nodes(case, ranks), why=why,
                      confidence=0.7)  # fmt: skip


@rule("Each rank writes down how it ended; the earliest that failed by itself is the cause, the others lost it.")
def recorded(case: Case) -> Iterator[Finding]:
    ranks = [e for e in case.of("run.rank") if e.rank is not None]
    failed = [e for e in ranks if e.get("outcome") == "failed" and not e.get("secondary")]
    failed.sort(key=lambda e: e.number("ended_unix") or 0.0)
    if not failed:
        return
    first = failed[0]
    told = [e for e in case.of("run.error") if e.rank == first.rank and not e.get("secondary")]
    why = first.get("message")[:200]
    if "disk is full" in why or "No space left" in why:
        yield finding("host.disk-full", FAILED + 2, [first, *told[:1]], ranks=[first.rank], nodes=[case.node(first)],
                      why=why, confidence=0.95)  # fmt: skip
    elif len(failed) == len(ranks) > 1:
        yield finding("app.exception", FAILED - 3, [first, *told[:1]], ranks=[e.rank for e in failed], why=why)
    else:
        kind = "app.rank-oom" if why.startswith("out of memory") else "app.exception-one-rank"
        yield finding(kind, FAILED - 1, [first, *told[:1]], ranks=[first.rank], nodes=[case.node(first)],
                      why=why, confidence=0.9)  # fmt: skip


@rule("A limit on memory that was reached, told by the group the run was in.")
def group_memory(case: Case) -> Iterator[Finding]:
    told = [e for e in case.of("exit.killed") if e.line.file.endswith("memory.events.txt")]
    dead = [e for e in case.of("exit.elastic", "exit.report") if e.get("code") in ("-9", "137")]
    if told and dead and not case.has("kernel.oom"):
        ranks = sorted({int(e.get("local_rank")) for e in dead if e.get("local_rank").isdecimal()})
        yield finding("app.host-oom-kill", KILLED - 2, [*told[:1], *dead[:2]], ranks=ranks, nodes=_nodes(case, ranks),
                      why="its memory limit was reached and the kernel ended it", confidence=0.9)  # fmt: skip


@rule("A full disk stops whoever writes, and often leaves no room to say so.")
def full_disk(case: Case) -> Iterator[Finding]:
    full = [e for e in case.of("host.disk") if (e.number("used") or 0.0) >= FULL_PERCENT]
    full = [e for e in full if e.line.file.endswith("disks.txt")]
    hurt = [e for e in case.of("run.state") if e.get("reason") in ("failed", "lost") or e.get("phase") != "ended"]
    if full and hurt:
        yield finding("host.disk-full", FAILED - 4, [*full[:1], *hurt[:1]], nodes=[case.node(full[0])],
                      why=f"{full[0].get('mount')} has no room left", confidence=0.75)  # fmt: skip


@rule("The launcher keeps the store where ranks meet; a signal that ends it ends them.")
def launcher_gone(case: Case) -> Iterator[Finding]:
    ended = [e for e in case.of("run.state") if e.get("reason") in ("failed", "lost")]
    ended = [e for e in ended if e.get("signal").isdecimal()]
    if ended and not any(e.get("outcome") == "failed" for e in case.of("run.rank")):
        yield finding("app.store-lost", FAILED - 6, ended[:1], nodes=case.nodes(case.of("run.node"))[:1],
                      why=f"the launcher, which keeps it, was ended by signal {ended[0].get('signal')}",
                      confidence=0.8)  # fmt: skip
