"""Nothing failed, but something is slower than its links allow: benchmarks, pairs, rates, bindings."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from statistics import median

from agent.formats.event import Event
from agent.triage.case import Case
from agent.triage.rule import SLOW, Finding, finding, listed, rule
from agent.triage.rules_rdma import hca_sets, port_states, rate_gbps

SLOW_PAIR = 0.75  # of the usual pair
GIB = 1 << 30
# All-reduce bus bandwidth in GB/s of one 8-GPU node below which it is at fault.
# Sources: AzNHC thresholds for ND H100 v5, H200 and NDm A100 v4; ml-engineering's tables; 20 % below for the rest.
FLOORS = (
    (r"H200", 431.0),
    (r"H100.*HBM3|H100.*SXM", 430.0),
    (r"B200", 592.0),
    (r"A100-SXM", 205.0),
    (r"V100-SXM", 104.0),
)


def peaks(case: Case) -> dict[str, tuple[float, Event]]:
    """Per file, the best bus bandwidth of rows of 1 GiB and more (all rows where none is), and its line."""
    best: dict[str, tuple[float, Event]] = {}
    rows = case.of("bench.row")
    large = {e.line.file for e in rows if (e.number("size") or 0) >= GIB}
    for event in rows:
        if event.line.file in large and (event.number("size") or 0) < GIB:
            continue
        value = event.number("busbw") or 0.0
        if value > best.get(event.line.file, (-1.0, event))[0]:
            best[event.line.file] = (value, event)
    return best


@rule("One slow node makes all its pairs slow; slow pairs without a node in common are the fabric's.")
def slow_pairs(case: Case) -> Iterator[Finding]:
    speeds = [(frozenset((e.get("a"), e.get("b"))), e.number("busbw") or 0.0, e) for e in case.of("pair")]
    if len({p for p, _, _ in speeds}) < 3:
        return
    values = sorted(v for _, v, _ in speeds)
    usual = median(values[len(values) // 2 :])
    slow = {p for p, v, _ in speeds if v < SLOW_PAIR * usual}
    nodes = {n for p, _, _ in speeds for n in p}
    culprits = [n for n in sorted(nodes) if all(p in slow for p, _, _ in speeds if n in p)]
    shown = [e for p, _, e in speeds if p in slow]
    if not slow:
        return
    if culprits and all(p & set(culprits) for p in slow):
        yield finding("perf.node-slow", SLOW + 4, [*_heads(shown), *shown[-3:]], nodes=culprits, confidence=0.9,
                      why=f"every pair with {listed(culprits)} is slow, all others are not")  # fmt: skip
    else:
        named = listed([" and ".join(sorted(p)) for p in sorted(slow, key=sorted)])
        yield finding("perf.fabric-collision", SLOW + 4, [*_titles(case), *shown[:3]], confidence=0.8,
                      why=f"only the pairs {named} are slow, and each node is fast with another")  # fmt: skip


def _heads(events: list[Event]) -> list[Event]:
    return events[:1]


def _titles(case: Case) -> list[Event]:
    return case.of("signature.pair-title")[:1]


@rule("One adapter in use where the node has several limits the job to that adapter's rate.")
def single_nic(case: Case) -> Iterator[Finding]:
    sets = hca_sets(case)
    if len(sets) < 2 or any(len(nics) > 1 for nics in sets.values()):
        return
    up = {e.nic for e, active in port_states(case) if active}
    chosen = [e for e in case.env("NCCL_IB_HCA") if not e.get("value").startswith("^") and "," not in e.get("value")]
    listings = [e for e in case.of("host.listing") if len(_devices(e)) >= 1]
    few = [e for e in listings if e.get("path").startswith("/dev") and len(_devices(e)) == 1]
    many = any(len(_devices(e)) > 1 for e in listings if e.get("path").startswith("/sys"))
    if len(up) > 1 or many or (chosen and case.has("bench.row")):
        average = case.of("bench.end")[:1]
        shown = [*chosen[:1], *few[:1], *case.of("nccl.ib")[:1], *average]
        yield finding(
            "perf.single-nic", SLOW + 5, shown, nodes=sets, why="NCCL uses one adapter of several", confidence=0.9
        )


def _devices(event: Event) -> list[str]:
    return [w for w in event.get("names").split() if re.match(r"uverbs\d|mlx\d_|ib|rdmap|bnxt_re|irdma", w)]


@rule("A ring runs at its slowest rail: an adapter that negotiated a lower rate than its equals is it.")
def slow_rate(case: Case) -> Iterator[Finding]:
    used = {nic for nics in hca_sets(case).values() for nic in nics}
    rates = [(e, r) for e in case.of("port", "port.sysfs") if (r := rate_gbps(e)) and (not used or e.nic in used)]
    down = {(e.node, e.nic) for e, up in port_states(case) if not up}
    rates = [(e, r) for e, r in rates if (e.node, e.nic) not in down]
    usual = max((r for _, r in rates), default=0.0)
    slow = [e for e, r in rates if r < 0.8 * usual]
    if slow and len(slow) * 2 <= len(rates) and case.has("bench.row", "app.train", "nccl.ib"):
        yield finding("perf.nic-rate-asymmetric", SLOW + 3, slow, nodes=case.nodes(slow), nics=[e.nic for e in slow],
                      why=f"{listed([e.nic for e in slow])} below {usual:.0f} Gb/s", confidence=0.9)  # fmt: skip


@rule("Ranks pinned to single cores, all on one socket, starve NCCL's proxy threads.")
def binding(case: Case) -> Iterator[Finding]:
    bound = case.of("host.binding")
    sockets = {m[1] for e in bound if (m := re.match(r"(?:socket|package)\[? ?(\d+)", e.get("where")))}
    narrow = [e for e in bound if e.get("where").count("core") == 1 or _one_bit(e.get("where"))]
    values = sorted(v for v, _ in peaks(case).values())
    slower = len(values) > 1 and values[0] < 0.7 * values[-1]
    if len(narrow) > 1 and len(narrow) == len(bound) and (slower or len(sockets) == 1):
        yield finding("topo.numa-binding", SLOW + 4, bound[-1:], nodes=case.nodes(bound),
                      why="every rank is pinned to one core", confidence=0.85)  # fmt: skip


def _one_bit(mask: str) -> bool:
    return bool(re.fullmatch(r"0x0*[1248]0*|\d+", mask))


@rule("The same benchmark on one node after another: a node far below the others is the slow one.")
def node_by_node(case: Case) -> Iterator[Finding]:
    alone: dict[str, tuple[float, Event]] = {}
    for file, best in peaks(case).items():
        nodes = {e.node for e in case.of("bench.rank") if e.line.file == file and e.node}
        if len(nodes) == 1:
            alone[nodes.pop()] = best
    usual = median([v for v, _ in alone.values()]) if len(alone) > 2 else 0.0
    slow = {n: e for n, (v, e) in alone.items() if v < 0.8 * usual}
    if slow and len(slow) * 2 < len(alone):
        yield finding("perf.node-slow", SLOW - 2, slow.values(), nodes=slow, confidence=0.85,
                      why=f"below the usual {usual:.0f} GB/s of the other nodes")  # fmt: skip


@rule("An adapter whose own bandwidth test is below that of its equals.")
def adapter_tests(case: Case) -> Iterator[Finding]:
    tests = [(e, v) for e in case.of("perftest.row") if (v := e.number("gbps"))]
    usual = median([v for _, v in tests]) if len(tests) > 2 else 0.0
    slow = [e for e, v in tests if v < 0.8 * usual]
    if slow and len(slow) * 2 < len(tests):
        yield finding("perf.nic-rate-asymmetric", SLOW - 1, slow, nodes=case.nodes(slow), nics=[e.nic for e in slow],
                      why=f"below the usual {usual:.0f} Gb/s", confidence=0.8)  # fmt: skip


@rule("Bandwidth that falls away as messages grow is loss and retransmission, not a limit.")
def collapse(case: Case) -> Iterator[Finding]:
    by_file: dict[str, list[Event]] = defaultdict(list)
    for event in case.of("bench.row"):
        by_file[event.line.file].append(event)
    for rows in by_file.values():
        ordered = sorted(rows, key=lambda e: e.number("size") or 0)
        best = max(e.number("busbw") or 0 for e in ordered)
        if best > 1 and (ordered[-1].number("busbw") or 0) < 0.25 * best and len(case.layout.nodes) > 1:
            yield finding("rdma.fabric-lossy", SLOW - 6, [ordered[-1]], why="bandwidth collapses for large messages",
                          confidence=0.5)  # fmt: skip


@rule("A node far below what its GPUs and links give elsewhere is at fault, though the benchmark does not say where.")
def below_floor(case: Case) -> Iterator[Finding]:
    for file, (value, event) in peaks(case).items():
        ranks = [e for e in case.of("bench.rank") if e.line.file == file]
        nodes = list(dict.fromkeys(e.node for e in ranks))
        floor = next((f for name, f in FLOORS if ranks and re.search(name, ranks[0].get("name"))), None)
        if floor and len(nodes) == 1 and len(ranks) == 8 and value < floor * 0.93:
            yield finding("perf.below-expected", SLOW - 12, [event], nodes=nodes, confidence=0.5,
                          why=f"{value:.0f} GB/s where {floor:.0f} is the least expected")  # fmt: skip
