"""Collectives: who is missing, who called another one, who only waits."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator

from agent.formats.event import Event
from agent.triage.case import ENDS_ONLY, Case
from agent.triage.rule import (
    ABSENT,
    FAILED,
    MISMATCHED,
    REFUSED,
    UNKNOWN,
    Finding,
    finding,
    listed,
    rule,
)  # fmt: skip

NUMBERS = re.compile(r"\d+")


def _nodes(case: Case, ranks: list[int]) -> list[str | None]:
    return [case.layout.node(r) for r in ranks]


def smaller(groups: dict[tuple[str, ...], list[int]]) -> list[int]:
    """Ranks outside the largest group; nobody where two are largest."""
    ordered = sorted(groups.values(), key=len, reverse=True)
    if len(ordered) < 2 or len(ordered[0]) == len(ordered[1]):
        return []
    return sorted(r for ranks in ordered[1:] for r in ranks)


@rule("Collectives are compared at the call: the rank whose fingerprint differs from the others' is odd.")
def fingerprint(case: Case) -> Iterator[Finding]:
    told = case.of("c10d.fingerprint")
    if not told:
        return
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for event in told:
        for rank, text in ((event.rank, event.get("print")), (event.get("other"), event.get("other_print"))):
            key = (re.sub(r"\s+|\).*$", "", text),)
            if rank not in (None, "") and text and int(rank) not in groups[key]:
                groups[key].append(int(rank))
    odd = smaller(groups) or sorted({e.rank for e in told if e.rank is not None})[:1]
    yield finding("nccl.collective-mismatch", REFUSED, told, ranks=odd, nodes=_nodes(case, odd),
                  why=f"rank {listed(odd)} runs another collective", confidence=0.9)  # fmt: skip


@rule("NCCL's own check names the rank around which the calls differ.")
def named_by_nccl(case: Case) -> Iterator[Finding]:
    around = case.of("nccl.around")
    if not around:
        return
    calls = [e for e in case.of("nccl.call") if e.rank is not None]
    odd = _odd_call(calls) or sorted({e.rank for e in around if e.rank is not None})
    shown = [*around[:1], *[e for e in calls if e.rank in odd][-1:], *[e for e in calls if e.rank not in odd][-1:]]
    yield finding("nccl.collective-mismatch", REFUSED, shown, ranks=odd, nodes=_nodes(case, odd),
                  why=f"rank {listed(odd)} calls another collective", confidence=0.9)  # fmt: skip


def _odd_call(calls: list[Event]) -> list[int]:
    """Ranks whose call at one count differs from most others'."""
    by_count: dict[str, dict[tuple[str, ...], list[int]]] = defaultdict(lambda: defaultdict(list))
    for event in calls:
        group = by_count[event.get("seq")][(event.get("op"), event.get("count"))]
        if event.rank is not None and event.rank not in group:
            group.append(event.rank)
    return next((odd for groups in by_count.values() if (odd := smaller(groups))), [])


@rule("Ranks that never joined a collective are what the others wait for, not those who time out.")
def missing_ranks(case: Case) -> Iterator[Finding]:
    told = case.of("flight.missing", "flight.culprit")
    if not told:
        return
    ranks = sorted({int(n) for e in told for n in NUMBERS.findall(e.get("ranks"))})
    answered = {e.rank for e in case.of("c10d.alive", "c10d.enqueued", "flight.last")}
    loaded = [int(e.get("count")) for e in case.of("flight.loaded")]
    world = [int(e.get("world")) for e in case.of("flight.world")]
    alive = bool(set(ranks) & answered) or (loaded and world and loaded[0] >= world[0])
    kind = "nccl.collective-mismatch" if alive else "app.rank-hung"
    lagging = [e for e in case.of("c10d.enqueued", "c10d.alive") if e.rank in ranks]
    yield finding(kind, MISMATCHED + 2, [*told[:1], *lagging[:1]], ranks=ranks, nodes=_nodes(case, ranks),
                  why=f"rank {listed(ranks)} never entered the collective", confidence=0.9)  # fmt: skip


@rule("Dumps of all ranks are compared: whose newest collective is older, or of another kind, is behind.")
def compared_dumps(case: Case) -> Iterator[Finding]:
    by_group: dict[str, list[Event]] = defaultdict(list)
    for event in case.of("flight.last"):
        if "calls" in event.detail:
            continue  # torch's own dumps say more: see rules_run
        by_group[event.get("group")].append(event)
    for events in by_group.values():
        newest = max(int(e.get("seq")) for e in events)
        behind = [e for e in events if int(e.get("seq")) < newest]
        groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for e in events:
            if e.rank is not None and int(e.get("seq")) == newest:
                groups[(e.get("op"), e.get("sizes"))].append(e.rank)
        odd = sorted({e.rank for e in behind if e.rank is not None}) or smaller(groups)
        if odd and len(odd) < len(events):
            shown = [e for e in events if e.rank in odd][:2] + [e for e in events if e.rank not in odd][:1]
            yield finding("nccl.collective-mismatch", MISMATCHED + 1, shown, ranks=odd, nodes=_nodes(case, odd),
                          why=f"rank {listed(odd)} did not enter collective {newest} as the others did")  # fmt: skip


@rule("Timeouts of one job name one collective; ranks at another number, or in another operation, are out of step.")
def out_of_step(case: Case) -> Iterator[Finding]:
    late = {r: e for r, e in case.timed_out().items() if e.get("seq")}
    numbers: dict[tuple[str, ...], list[int]] = defaultdict(list)
    calls: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for rank, event in late.items():
        numbers[(event.get("seq"),)].append(rank)
        if event.get("op") and (event.get("numel") or event.get("op") == "BARRIER"):
            calls[(event.get("op"), event.get("numel"))].append(rank)
    odd = smaller(numbers) or smaller(calls)
    if odd and len(odd) * 2 < len(late) + 1:
        keys = [e for e in case.of("app.keys") if e.rank in odd]
        shown = [*keys[:1], *[late[r] for r in odd][:2], *[e for r, e in late.items() if r not in odd][:1]]
        yield finding("nccl.collective-mismatch", MISMATCHED, shown, ranks=odd, nodes=_nodes(case, odd),
                      why=f"rank {listed(odd)} is in another collective than the others", confidence=0.85)  # fmt: skip


@rule("Ranks that log different keys with synchronisation make different numbers of collectives.")
def other_keys(case: Case) -> Iterator[Finding]:
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for event in case.of("app.keys"):
        if event.rank is not None and event.rank not in groups[(event.get("keys"),)]:
            groups[(event.get("keys"),)].append(event.rank)
    odd = smaller(groups)
    if odd and case.timed_out():
        shown = [e for e in case.of("app.keys") if e.rank in odd]
        yield finding("nccl.collective-mismatch", MISMATCHED - 2, shown, ranks=odd, nodes=_nodes(case, odd),
                      why=f"rank {listed(odd)} logs other keys", confidence=0.8)  # fmt: skip


@rule("A rank whose last enqueued collective is older than the others' never called the one they wait in.")
def lower_enqueued(case: Case) -> Iterator[Finding]:
    newest: dict[int, Event] = {}
    for event in case.of("c10d.enqueued"):
        if event.rank is not None:
            newest[event.rank] = event
    marks = {r: int(e.get("enqueued")) for r, e in newest.items()}
    waited = [int(n) for e in case.timed_out().values() if (n := e.get("seq"))]
    top = max([*marks.values(), *waited], default=0)
    odd = sorted(r for r, m in marks.items() if m < top and r not in case.timed_out())
    if odd:
        shown = [newest[r] for r in odd][:2] + list(case.timed_out().values())[:1]
        yield finding("nccl.collective-mismatch", MISMATCHED - 1, shown, ranks=odd, nodes=_nodes(case, odd),
                      why=f"rank {listed(odd)} stopped before collective {top}", confidence=0.8)  # fmt: skip


@rule("A rank whose watchdog itself stops first hangs outside NCCL, in Python, in CUDA or in an extension.")
def stuck_rank(case: Case) -> Iterator[Finding]:
    stuck = {e.rank: e for e in reversed(case.of("c10d.heartbeat")) if e.rank is not None}
    others = (set(case.timed_out()) | case.layout.ranks) - set(stuck)
    if stuck and len(stuck) <= len(others) and not set(stuck) & set(case.timed_out()):
        ranks = sorted(stuck)
        held = [e for e in case.of("c10d.gil") if e.rank in stuck]
        why = "holds Python's global lock" if held else "its watchdog stopped before the others timed out"
        yield finding("app.rank-hung", FAILED + 3, [*[stuck[r] for r in ranks][:2], *held[:1]], ranks=ranks,
                      nodes=_nodes(case, ranks), why=why, confidence=0.9)  # fmt: skip


@rule("A rank that RAS cannot reach is dead or cut off.")
def unreachable(case: Case) -> Iterator[Finding]:
    missing, process = case.of("ras.missing"), case.of("ras.process")
    if not missing and not process:
        return
    ranks = sorted({int(n) for e in missing for n in NUMBERS.findall(e.get("ranks"))})
    gpus = [int(n) for e in process for n in NUMBERS.findall(e.get("gpus"))] or [
        e.gpu for e in missing if e.gpu is not None
    ]
    nodes = case.nodes(process) or [n for e in missing if (n := e.node)] or _nodes(case, ranks)
    yield finding("app.rank-hung", FAILED + 4, [*missing[:1], *process[:1], *case.of("ras.dead")[:1]], ranks=ranks,
                  nodes=nodes, gpus=gpus, why="RAS gets no answer from it", confidence=0.9)  # fmt: skip


@rule("RAS counts differ for a moment in a healthy job; a difference that stays names those who are behind.")
def lasting_mismatch(case: Case) -> Iterator[Finding]:
    states = [e.get("state") for e in case.of("ras.status")]
    counts = case.of("ras.count")
    lasting = len(states) > 1 and all(s == "MISMATCH" for s in states)
    if not counts or "OK" in states[-1:] or not (lasting or case.timed_out()):
        return
    file = counts[-1].line.file
    last = [e for e in counts if e.line.file == file][-2:]
    behind = min(last, key=lambda e: int(e.get("op")))
    fewer = min(last, key=lambda e: int(e.get("count")))
    told = sorted({e.rank for e in case.of("ras.rank") if e.rank is not None and e.line.file == file})
    ranks = told if behind is fewer else []
    kind = "app.rank-hung" if ranks and len(ranks) == int(behind.get("count")) else "nccl.collective-mismatch"
    yield finding(kind, FAILED - 6, [behind, *case.of("ras.rank")[:2]], ranks=ranks, nodes=_nodes(case, ranks),
                  why=f"{behind.get('count')} ranks stay at operation {behind.get('op')}", confidence=0.75)  # fmt: skip


@rule("Absent ranks before complaining ranks: who does not report a timeout is whom the others wait for.")
def absent(case: Case) -> Iterator[Finding]:
    late, world = case.timed_out(), case.layout.size()
    heard = {e.rank for e in case.of("c10d.heartbeat", "c10d.async", "app.exception", "c10d.store_lost")}
    silent = [r for r in range(world or 0) if r not in late and r not in heard]
    elsewhere = not set(silent) & case.layout.ranks and _whole_nodes(case, silent)
    few = len(late) > 2 and silent and len(silent) * 4 <= len(late) + len(silent)
    if few and not elsewhere and not _holes(case, world or 0, silent):
        yield finding("app.rank-hung", ABSENT, list(late.values())[:2], ranks=silent, nodes=_nodes(case, silent),
                      why=f"rank {listed(silent)} alone reports no timeout", confidence=0.5)  # fmt: skip


def _holes(case: Case, world: int, silent: list[int]) -> bool:
    """Whether lines of the logs were lost: then one that is missing says nothing.

    What nearly every rank says equally often, some other rank says less often.
    """
    for kind, events in case.events.items():
        said = Counter(e.rank for e in events if e.rank is not None and e.rank < world)
        usual, by = Counter(said.values()).most_common(1)[0] if said and kind not in ENDS_ONLY else (0, 0)
        if by * 4 >= world * 3 and any(said[r] < usual for r in range(world) if r not in silent):
            return True
    return False


def _whole_nodes(case: Case, silent: list[int]) -> bool:
    """Whether the silent ranks are all ranks of some nodes, whose logs may just not be here."""
    size = case.layout.block() or 1
    blocks = [set(range(r // size * size, r // size * size + size)) for r in silent]
    return size > 1 and all(block <= set(silent) for block in blocks)


@rule("Something stopped the job, and nothing here tells ranks, nodes or links apart.")
def undetermined(case: Case) -> Iterator[Finding]:
    ended = case.of("run.state")
    if ended and all(e.get("reason") in ("completed", "stopped", "killed") for e in ended):
        return  # as asked
    late = list(case.timed_out().values())
    shown = late or case.of("c10d.heartbeat", "c10d.async", "nccl.completion", "exit.report", "exit.elastic",
                            "exit.slurm", "exit.mpi", "exit.deepspeed", "app.exception", "c10d.store_lost")  # fmt: skip
    sizes = Counter(e.get("seq") for e in late)
    why = f"{len(late)} ranks time out alike at collective {sizes.most_common(1)[0][0]}" if late else "it ended early"
    if shown and case.stopped():
        yield finding("undetermined", UNKNOWN, shown[:3], why=why, confidence=0.2)
