"""Evidence → verdict: run the rules, order what they found, drop what something stronger explains."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from agent.formats.line import Line
from agent.triage import (
    rules_app,
    rules_board,
    rules_direct,
    rules_gdr,
    rules_gloo,
    rules_gpu,
    rules_hang,
    rules_net,
    rules_pace,
    rules_perf,
    rules_ports,
    rules_rdma,
    rules_run,
    rules_setup,
    rules_verbs,
)
from agent.triage.case import Case
from agent.triage.catalogue import Catalogue, Kind
from agent.triage.rule import FAILED, HARDWARE, RULES, SLOW, Finding, listed
from agent.triage.verdict import FAULT, HEALTHY, UNDETERMINED, Aside, Culprit, Fault, Quote, Verdict

# Imported for their rules; naming them keeps the import from looking unused.
FAMILIES = (
    rules_app,
    rules_board,
    rules_gdr,
    rules_gloo,
    rules_gpu,
    rules_hang,
    rules_net,
    rules_pace,
    rules_perf,
    rules_ports,
    rules_rdma,
    rules_run,
    rules_setup,
    rules_verbs,
)
MOST_FAULTS = 6
INDEPENDENT = HARDWARE - 12  # findings of this weight are told even beside a stronger one: they are no consequence
SYMPTOMS = (
    ("c10d.timeout", "watchdog timeouts", "a timeout names who waited; it began as many minutes earlier as it ran"),
    ("c10d.async", "asynchronous NCCL errors", "a rank reports what its peers' end did to it"),
    ("c10d.heartbeat", "heartbeat monitor messages", "a rank that cannot make progress is ended by its monitor"),
    ("c10d.store_lost", "store errors", "the store is gone once rank 0 has ended"),
    ("nccl.completion", "failed RDMA completions", "12 names a pair, 5 (249) is the flush after it"),
    ("nccl.closed", "closed connections", "the other end closed after its own error"),
    ("exit.sigterm", "SIGTERM from the launcher", "the launcher ends the siblings of a failed rank"),
    ("exit.report", "exit reports", "the first failure that a launcher observes is often a victim"),
    ("exit.slurm", "task exits", "the scheduler ends the step after the first failure"),
)


def judge(case: Case, catalogue: Catalogue) -> Verdict:
    """The verdict on a settled case."""
    found = _ordered(_found(case, catalogue))
    causes = [(f, r) for f, r in found if f.kind != "undetermined"]
    kept = _independent(causes)
    if kept:
        faults = tuple(_fault(f, r, catalogue) for f, r in kept)
        following = catalogue.kinds[kept[0][0].kind].following if faults[0].confidence < 0.75 else ()
        return _verdict(case, FAULT, faults, following)
    if found:
        finding, reason = found[0]
        nobody = replace(finding, nodes=(), ranks=(), gpus=(), nics=())
        following = catalogue.kinds["undetermined"].following
        return _verdict(case, UNDETERMINED, (_fault(nobody, reason, catalogue),), following)
    return _verdict(case, HEALTHY, (), ())


def _verdict(case: Case, verdict: str, faults: tuple[Fault, ...], following: tuple[str, ...]) -> Verdict:
    asides = tuple(_asides(case, faults)) if verdict != HEALTHY else ()
    return Verdict(verdict, faults, asides, following, tuple(case.notes), case.lines, len(case.documents))


def _found(case: Case, catalogue: Catalogue) -> list[tuple[Finding, str]]:
    found = [(f, reason) for function, reason in RULES for f in function(case)]
    found += [(f, rules_direct.REASON) for f in rules_direct.direct(case, catalogue)]
    return [(f, reason) for f, reason in found if f.kind in catalogue.kinds]


def _ordered(found: list[tuple[Finding, str]]) -> list[tuple[Finding, str]]:
    """By weight; findings of one kind and place become one, with the quotes of all."""
    merged: dict[tuple[str, tuple[str, ...]], tuple[Finding, str]] = {}
    for finding, reason in sorted(found, key=lambda pair: -pair[0].weight):
        key = (finding.kind, finding.nodes)
        first = merged.get(key)
        if first is None:
            merged[key] = (finding, reason)
        else:
            merged[key] = (_joined(first[0], finding), first[1])
    return sorted(merged.values(), key=lambda pair: -pair[0].weight)


def _joined(first: Finding, second: Finding) -> Finding:
    return replace(
        first,
        quotes=tuple(dict.fromkeys((*first.quotes, *second.quotes)))[:6],
        ranks=first.ranks or second.ranks,
        gpus=first.gpus or second.gpus,
        nics=first.nics or second.nics,
    )


def _independent(causes: list[tuple[Finding, str]]) -> list[tuple[Finding, str]]:
    """The main cause, and others that it does not explain: other hardware, and slow parts beside a failed rank."""
    if not causes:
        return []
    kept = [causes[0]]
    for finding, reason in causes[1:]:
        same = any(f.kind == finding.kind and set(f.nodes) == set(finding.nodes) for f, _ in kept)
        if not same and _own_cause(causes[0][0], finding):
            kept.append((finding, reason))
    return kept[:MOST_FAULTS]


def _own_cause(main: Finding, other: Finding) -> bool:
    if other.kind.partition(".")[0] in ("app", "nccl", "net", "rdzv", "gloo"):
        return False
    if other.weight >= INDEPENDENT:
        return True
    return (
        other.kind.startswith(("rdma.port", "gpu.", "pcie.link", "nvlink", "perf.nic", "shm."))
        and other.weight >= SLOW - 1
        and (main.weight <= FAILED + 4 or main.weight < SLOW + 8)
    )


def _asides(case: Case, faults: tuple[Fault, ...]) -> Iterable[Aside]:
    quoted = {(q.file, q.line) for f in faults for q in f.evidence}
    for kind, what, why in SYMPTOMS:
        events = [e for e in case.of(kind) if (e.line.file, e.line.number) not in quoted]
        if events:
            yield Aside(what, len(events), why, _quote(events[0].line))


def _quote(line: Line) -> Quote:
    return Quote(line.file, line.number, line.text)


def _fault(finding: Finding, reason: str, catalogue: Catalogue) -> Fault:
    kind = catalogue.kinds[finding.kind]
    culprit = Culprit(finding.nodes, finding.ranks, finding.gpus, finding.nics)
    return Fault(finding.kind, kind.title, culprit, _cause(kind, culprit, finding.why), kind.remedy, kind.owner,
                 tuple(_quote(q) for q in finding.quotes), finding.confidence, reason, kind.source)  # fmt: skip


def _cause(kind: Kind, culprit: Culprit, why: str) -> str:
    where = place(culprit)
    return kind.title + (f" on {where}" if where else "") + (f": {why}" if why else "")


def place(culprit: Culprit) -> str:
    """A culprit in words: node, GPU, rank, adapter."""
    parts = [listed(culprit.nodes)] if culprit.nodes else []
    parts += [f"GPU {listed(culprit.gpus)}"] if culprit.gpus else []
    parts += [f"rank {listed(culprit.ranks)}"] if culprit.ranks else []
    parts += [f"adapter {listed(culprit.nics)}"] if culprit.nics else []
    return ", ".join(parts)
