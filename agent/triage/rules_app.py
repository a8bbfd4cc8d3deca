"""The program and its ranks: exceptions, memory, work that one rank does while the others wait."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from agent.formats.event import Event
from agent.triage.case import Case
from agent.triage.rule import CONFIGURED, FAILED, HARDWARE, KILLED, MISMATCHED, WORKING, Finding, finding, listed, rule

LOADING = re.compile(
    r"(?i)checkpoint shards|load(?:ing|ed)? (?:safetensors|weight|model|pipeline)|\bload weight|加载(?:模型|权重)"
)
PYTHON = re.compile(r"(?i)python|torch|pt_main|pt_data|ray|train|deepspeed|vllm|sglang|\[?rank")


def _nodes(case: Case, ranks: Iterable[int | None]) -> list[str | None]:
    return [case.layout.node(r) for r in ranks if r is not None]


@rule("Out of GPU memory on one rank ends that rank; the others only wait for it.")
def out_of_memory(case: Case) -> Iterator[Finding]:
    hit = case.of("app.oom")
    if not hit:
        return
    own = [e for e in hit if e.rank is not None] or hit
    first = _earliest(case, own)
    ranks = list(dict.fromkeys(e.rank for e in own))
    shown = ranks if len(ranks) > (case.layout.size() or 2) // 2 else [first.rank]
    gpus = [_gpu(case, e) for e in own if e.rank in shown]
    nodes = [case.node(e) for e in own if e.rank in shown]
    yield finding("app.rank-oom", FAILED + 1, [first, *own[:2]], nodes=nodes, ranks=shown, gpus=gpus,
                  why="CUDA out of memory there first", confidence=0.9)  # fmt: skip


def _gpu(case: Case, event: Event) -> int | None:
    """Its index by NCCL's init lines; else the one in the message, unless every rank sees only one GPU."""
    if event.rank in case.layout.gpu_of:
        return case.layout.gpu_of[event.rank]
    implied = case.layout.gpu(event.rank)
    return event.gpu if event.gpu not in (None, 0) or implied is None else implied


def _earliest(case: Case, events: list[Event]) -> Event:
    """The first by time where all are dated on one clock, else the first in the order read."""
    dated = [(t, e) for e in events if (t := case.time(e)) is not None]
    return min(dated, key=lambda pair: pair[0])[1] if len(dated) == len(events) and dated else events[0]


@rule("The kernel ended a process for memory; the process id says which rank it was.")
def host_memory(case: Case) -> Iterator[Finding]:
    kills = [e for e in case.of("kernel.oom") if _is_ours(case, e)]
    told = case.of("exit.killed", "exit.ray_oom")
    if kills:
        victims = [v for e in kills if (v := _by_pid(case, e.get("pid")))]
        ranks = [rank for rank, _ in victims]
        nodes: list[str | None] = [*case.nodes(kills)] or [case.layout.node(r) for r in ranks]
        exits = [e for _, e in victims]
        weight = KILLED if case.stopped() else KILLED - 50
        yield finding("app.host-oom-kill", weight, [*kills[:1], *exits[:1]], nodes=nodes[:1] or [None], ranks=ranks,
                      why="the kernel's OOM killer ended it", confidence=0.95)  # fmt: skip
    elif told:
        killed = [e for e in case.of("exit.slurm") if "Killed" in e.get("what") or "Out Of Memory" in e.get("what")]
        yield finding("app.host-oom-kill", KILLED - 5, [*told[:2], *killed[:1]], nodes=case.nodes([*killed, *told])[:1],
                      ranks=_ranks_killed(case), why="its memory limit was reached", confidence=0.85)  # fmt: skip


def _is_ours(case: Case, kill: Event) -> bool:
    """By its pid; by its name only where nobody wrote down which processes the run had, or one of them was killed."""
    if _by_pid(case, kill.get("pid")):
        return True
    recorded = {e.get("pid") for e in case.of("run.rank")}
    if kill.get("pid") in recorded:
        return True
    # a worker of a data loader is no rank, but its end shows in one
    felt = not recorded or any(e.get("code") in ("-9", "137") for e in case.of("exit.elastic", "exit.report"))
    return bool(PYTHON.search(kill.get("name"))) and (felt or case.has("app.bus_error"))


def _ranks_killed(case: Case) -> list[int | None]:
    codes = [e.rank for e in case.of("exit.report") if e.get("code") in ("-9", "137")]
    tasks = [
        int(e.get("tasks")) for e in case.of("exit.slurm") if e.get("tasks").isdecimal() and "Kill" in e.get("what")
    ]
    return [*codes, *tasks]


def _by_pid(case: Case, pid: str) -> tuple[int | None, Event] | None:
    """The rank behind a process id, and the line that says so."""
    for event in case.of("exit.report"):
        if event.get("pid") == pid:
            return event.rank, event
    for event in case.of("exit.elastic"):
        if event.get("pid") == pid:
            return _rank_of_local(case, event), event
    found = [(r, k) for k, r in case.layout.rank_of_pid.items() if k[1] == pid]
    if found:
        start = [e for e in case.of("nccl.init") if e.get("pid") == pid]
        return found[0][0], start[0]
    return None


def _rank_of_local(case: Case, event: Event) -> int | None:
    local = int(event.get("local_rank"))
    node = case.node(event)
    seated = [r for r, n in case.layout.node_of.items() if n == node and case.layout.gpu(r) == local]
    return seated[0] if len(seated) == 1 else local if len(case.layout.nodes) <= 1 else None


@rule(
    "The earliest exception that is not itself a consequence names the rank; torchelastic's "
    "'first failure' may be a victim."
)
def exception(case: Case) -> Iterator[Finding]:
    own = [e for e in case.of("app.exception") if not e.get("symptom") and "OutOfMemory" not in e.get("type")]
    own = [e for e in own if "CUDA error" not in e.get("message") and "CUDA out of memory" not in e.get("message")]
    if not own or case.has("signature.shm-worker"):
        return
    ranked = [e for e in own if e.rank is not None]
    ranks = list(dict.fromkeys(e.rank for e in ranked))
    if not ranked:
        reported = [e for e in case.of("exit.report") if e.get("code") == "1"]
        rank = reported[0].rank if len({e.rank for e in reported}) == 1 else None
        kind = "app.exception-one-rank" if rank is not None else "app.exception"
        yield finding(kind, FAILED - 16, own[-1:], ranks=[rank], nodes=case.nodes(reported)[:1], why=_said(own[-1]),
                      confidence=0.6)  # fmt: skip
    elif len(ranks) > 2 and len(ranks) * 2 > (case.layout.size() or len(ranks)):
        yield finding("app.exception", FAILED - 14, ranked, ranks=ranks, why=_said(ranked[0]), confidence=0.8)
    else:
        first = _earliest(case, ranked)
        last = [e for e in ranked if e.rank == first.rank][-1]
        yield finding("app.exception-one-rank", FAILED, [first, last], ranks=[first.rank], nodes=[case.node(first)],
                      why=_said(first), confidence=0.9)  # fmt: skip


def _said(event: Event) -> str:
    return f"{event.get('type')}: {event.get('message')}"[:160]


@rule("A process that a signal ended, without an exception or a kernel message, died by itself or was killed.")
def dead_process(case: Case) -> Iterator[Finding]:
    signals = {"-9": "SIGKILL", "-11": "SIGSEGV", "-4": "SIGILL", "-8": "SIGFPE", "137": "SIGKILL", "139": "SIGSEGV"}
    exits = [e for e in case.of("exit.report", "exit.elastic") if e.get("code") in signals]
    crashed = case.of("exit.segv")
    if not exits and not crashed:
        return
    ranks = [e.rank if e.rank is not None else _rank_of_local(case, e) for e in exits] or [e.rank for e in crashed]
    why = f"ended by {signals[exits[0].get('code')]}" if exits else "segmentation fault"
    # a run of tunedeck's own: each rank has written down how it ended, and the kernel's log was looked at
    confidence = 0.85 if case.has("run.rank") else 0.6
    yield finding("app.rank-dead", FAILED - 6, [*exits[:2], *crashed[:1]], ranks=ranks[:1], nodes=case.nodes(exits)[:1],
                  why=why, confidence=confidence)  # fmt: skip


@rule("A data worker that dies of a bus error, or shared memory that cannot grow, has filled /dev/shm.")
def shared_memory(case: Case) -> Iterator[Finding]:
    workers = case.of("signature.shm-worker")
    segments = case.of("signature.shm-segment")
    full = [e for e in case.of("host.shm") if (e.number("used") or 0) >= 90]
    bus = [e for e in case.of("exit.report") if e.get("code") == "-7"]
    if workers or segments or (bus and not case.of("kernel.xid")):
        ranks = [e.rank for e in [*workers, *bus]]
        nodes = case.nodes(segments) or case.nodes([*workers, *bus]) or case.nodes(full)
        yield finding("shm.too-small", CONFIGURED - 3, [*segments[-1:], *workers[:1], *full[:1], *bus[:1]], nodes=nodes,
                      ranks=ranks if not segments else (), why="/dev/shm is full", confidence=0.9)  # fmt: skip


def _busy(case: Case) -> list[Event]:
    """Work of ranks that do not themselves wait in a collective; work without a rank is the main process's."""
    waiting = set(case.timed_out()) | {e.rank for e in case.of("c10d.unique_id")}
    nameless = 0 if not case.has("c10d.barrier") else -1
    work = [e for e in case.of("app.work") if (e.rank if e.rank is not None else nameless) not in waiting]
    return [
        e for e in work if case.layout.size() is None or (e.rank or 0) < (case.layout.size() or 0) or e.rank is None
    ]


@rule("While the others time out, a rank that prepares, loads or saves is the one they wait for.")
def long_work(case: Case) -> Iterator[Finding]:
    late = case.of("c10d.barrier")
    busy = _busy(case)
    if not busy or not (case.timed_out() or late or case.has("c10d.unique_id")):
        return
    ranks: list[int | None] = list(dict.fromkeys(e.rank if e.rank is not None else 0 for e in busy))
    if late:
        ranks = [int(r) for r in late[0].get("ranks").split(",")]
    loading = bool(LOADING.search(busy[-1].line.body)) and (bool(late) or ranks != [0])
    kind = "app.slow-load" if loading else "app.rank0-long-work"
    if kind == "app.rank0-long-work" and 0 in ranks and not late:
        ranks = [0]
    waiters = list(case.timed_out().values())[:1]
    shown = [*late[:1], busy[0], busy[-1], *waiters]
    weight = WORKING + (3 if late else 0)
    yield finding(kind, weight, shown, ranks=ranks, nodes=_seats(case, ranks, busy), confidence=0.85,
                  why=f"rank {listed(ranks)} was still at work while the others waited")  # fmt: skip


def _seats(case: Case, ranks: list[int | None], busy: list[Event]) -> list[str | None]:
    told = [n for r in ranks if r is not None and (n := case.layout.node_of.get(r))]
    return [*(told or case.nodes(busy)[:1])]


@rule("A barrier that names the ranks that did not come.")
def barrier(case: Case) -> Iterator[Finding]:
    late = case.of("c10d.barrier")
    if late:
        ranks: list[int | None] = [int(r) for r in late[0].get("ranks").split(",")]
        yield finding("app.rank-hung", FAILED - 10, late, ranks=ranks, nodes=_nodes(case, ranks),
                      why="they did not reach the barrier", confidence=0.75)  # fmt: skip


@rule("Ranks with fewer batches leave the loop first and wait at its end while the others still reduce.")
def uneven(case: Case) -> Iterator[Finding]:
    totals: dict[int, set[str]] = {}
    for event in case.of("app.step"):
        if event.rank is not None:
            totals.setdefault(event.rank, set()).add(event.get("total"))
    ends = {r: max(map(int, t)) for r, t in totals.items()}
    done = {e.rank for e in case.of("app.finished")} if len(ends) < 2 else set()
    short = [r for r, t in ends.items() if t < max(ends.values())] or [r for r in done if r is not None]
    if short and case.timed_out() and len(short) * 2 <= max(len(ends), case.layout.size() or 0):
        shown = [e for e in case.of("app.finished") if e.rank in short][:1]
        shown += [e for r, e in case.timed_out().items() if r in short][:1]
        shown += [e for e in case.of("app.step") if e.rank in short][-1:]
        yield finding("app.uneven-inputs", MISMATCHED + 3, shown, ranks=short, nodes=_nodes(case, short),
                      why=f"rank {listed(short)} has fewer batches than the others", confidence=0.9)  # fmt: skip


@rule("A disk that is full stops whoever writes to it.")
def disk_full(case: Case) -> Iterator[Finding]:
    full = [e for e in case.of("app.exception") if "No space left on device" in e.get("message")]
    if full and not case.has("c10d.store_lost"):
        yield finding("app.exception-one-rank", FAILED + 1, full, ranks=[full[0].rank], nodes=[case.node(full[0])],
                      why="no space left on its disk", confidence=0.95)  # fmt: skip


@rule("Power lost on a node, or the scheduler's word that it failed, explains everything that names it.")
def node_down(case: Case) -> Iterator[Finding]:
    told = case.of("exit.nodefail")
    if told:
        yield finding(
            "host.node-down", HARDWARE - 30, told, nodes=case.nodes(told)[:1], why="the scheduler lost the node"
        )
