"""InfiniBand and RoCE: ports, device sets, queue pairs, completions, memory registration, GPUDirect."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from agent.formats.event import Event
from agent.triage.case import Case
from agent.triage.rule import HARDWARE, REFUSED, SLOW, Finding, finding, rule

HCA = re.compile(r"\[\d+\](?P<nic>[\w-]+):\d+/(?P<layer>\w+)")
RATE = re.compile(r"(\d+(?:\.\d+)?)")
LOSS_COUNTERS = re.compile(r"packet_seq_err|local_ack_timeout_err|out_of_sequence|roce_adp_retrans|transport_retries")
LOSSY = 10_000  # retransmissions in one reading; a lossless fabric shows tens
RETRY_EXCEEDED, FLUSHED, REMOTE_ACCESS, LOCAL_LENGTH = "12", "5", "10", "1"


def hca_sets(case: Case) -> dict[str, dict[str, str]]:
    """Per node, the devices NCCL uses and their link layer."""
    sets: dict[str, dict[str, str]] = defaultdict(dict)
    for event in case.of("nccl.ib"):
        if event.node:
            sets[event.node].update({m["nic"]: m["layer"] for m in HCA.finditer(event.get("hcas"))})
    return sets


def port_states(case: Case) -> list[tuple[Event, bool]]:
    """Every port that a tool describes, and whether it is up."""
    told = [(e, e.get("state") or e.get("physical")) for e in case.of("port", "port.link", "port.netdev")]
    told += [(e, e.get("value")) for e in case.of("port.sysfs") if e.get("name") == "state"]
    return [(e, bool(re.search(r"(?i)active|\bup\b|link_?up", state))) for e, state in told if state]


def rate_gbps(event: Event) -> float | None:
    """The rate of a port in Gbit/s."""
    m = RATE.search(event.get("rate") or (event.get("value") if event.get("name") == "rate" else ""))
    return float(m[1]) if m else None


def rdma_trouble(case: Case) -> bool:
    return case.has("nccl.completion", "nccl.async", "nccl.verbs", "bench.row") or case.hung_in_init()


@rule("A port that the other nodes use and that is down here is the failed part; a port nobody uses is not.")
def port_down(case: Case) -> Iterator[Finding]:
    used = {nic for nics in hca_sets(case).values() for nic in nics}
    up_elsewhere = {e.nic for e, up in port_states(case) if up}
    for event, up in port_states(case):
        wanted = event.nic in used if used else event.nic in up_elsewhere and rdma_trouble(case)
        own = hca_sets(case).get(event.node or "", {})
        if up or not wanted or event.kind == "port.netdev" or (event.nic in own and not rdma_trouble(case)):
            continue
        shorter = [e for e in case.of("nccl.ib") if e.node == event.node][:1]
        yield finding("rdma.port-down", HARDWARE, [event, *shorter], nodes=[event.node or case.layout.sole_node()],
                      nics=[event.nic], why=f"{event.nic} is {event.get('state')} {event.get('physical')}".strip(),
                      confidence=0.95)  # fmt: skip


@rule("The kernel reports links going down: once means down, more often means flapping.")
def kernel_port(case: Case) -> Iterator[Finding]:
    used = {nic for nics in hca_sets(case).values() for nic in nics}
    changes: dict[tuple[str | None, str], list[Event]] = defaultdict(list)
    for event in case.of("kernel.port"):
        if event.nic and (not used or event.nic in used):
            changes[(case.node(event), event.nic)].append(event)
    for (node, nic), events in changes.items():
        downs = [e for e in events if e.get("state").lower() == "down"]
        if not downs or (len(downs) == 1 and events[-1] is not downs[-1] and not rdma_trouble(case)):
            continue
        kind = "rdma.port-flap" if len(downs) > 1 else "rdma.port-down"
        weight = HARDWARE if case.has("nccl.completion", "nccl.async") or not case.stopped() else SLOW
        yield finding(
            kind, weight, downs[:2], nodes=[node], nics=[nic], why=f"the kernel saw {nic} go down {len(downs)}×"
        )


@rule("Asynchronous port events name their own node; errors followed by 'active' again mean that the link flaps.")
def async_port(case: Case) -> Iterator[Finding]:
    by_node: dict[str | None, list[Event]] = defaultdict(list)
    for event in case.of("nccl.async"):
        if "port" in event.get("what"):
            by_node[case.node(event)].append(event)
    for node, events in by_node.items():
        errors = [e for e in events if re.search(r"port (?:error|down)", e.get("what"))]
        active = [e for e in events if "port active" in e.get("what")]
        if errors:
            kind = "rdma.port-flap" if active or len(errors) > 2 else "rdma.port-down"
            yield finding(
                kind,
                HARDWARE - len(by_node) + len(errors) / 1000,
                [*errors[:2], *active[:1]],
                nodes=[node],
                nics=[e.nic for e in errors],
                why=(f"{len(errors)} port errors there, none elsewhere"),
            )


@rule("A link that was lost again and again counts in link_downed.")
def counted_flaps(case: Case) -> Iterator[Finding]:
    lost = [e for e in case.of("counter") if e.get("name") == "link_downed" and _grew(e) >= 2]
    if lost and case.stopped():
        yield finding("rdma.port-flap", HARDWARE - 2, lost, nodes=case.nodes(lost), nics=[e.nic for e in lost],
                      why="link_downed has grown")  # fmt: skip


def _grew(event: Event) -> float:
    first, last = event.number("first") or 0.0, event.number("last")
    return first if last is None else last - first


@rule("Retry exceeded (12) names a pair, not a culprit: the endpoint common to all pairs is it.")
def endpoint_vote(case: Case) -> Iterator[Finding]:
    named = [e for e in case.of("nccl.completion") if e.get("status") in (RETRY_EXCEEDED, "13") and e.get("peer")]
    pairs = {(case.node(e), case.layout.resolve(e.get("peer"))) for e in named}
    votes = Counter(node for pair in pairs for node in set(pair) if node)
    if not votes:
        return
    links = {frozenset(p) for p in pairs}
    common = [n for n in votes if all(n in link for link in links)]
    if len(common) > 1:  # one pair only: whoever is silent
        speaking = {case.node(e) for e in named}
        common = [n for n in common if n not in speaking]
    power = [e for e in case.of("host.power") if case.node(e) in common] + case.of("exit.nodefail", "exit.notready")
    if len(common) == 1:
        telling = [e for e in named if case.layout.resolve(e.get("peer")) == common[0]] or named
        yield finding(
            "rdma.peer-lost",
            REFUSED - 3,
            [*telling[:2], *power[:1]],
            nodes=common,
            why=(f"{common[0]} is an end of every one of {len(links)} failed pairs"),
            confidence=0.9,
        )
    elif len(links) > 2:
        yield finding(
            "rdma.fabric-lossy", REFUSED - 6, named, why="failed pairs have no node in common", confidence=0.7
        )


@rule("Retransmissions in the tens of thousands mean that the fabric drops packets.")
def fabric_lossy(case: Case) -> Iterator[Finding]:
    grown = [e for e in case.of("counter") if LOSS_COUNTERS.search(e.get("name")) and _grew(e) > LOSSY]
    if not grown or not (case.stopped() or case.has("bench.row")):
        return
    flow = [e for e in case.of("counter") if re.search(r"pause|cnp", e.get("name")) and _grew(e) == 0]
    yield finding("rdma.fabric-lossy", REFUSED - 5, [*grown[:2], *flow[-1:]], nodes=_far_ahead(grown),
                  why="packets are lost and retransmitted", confidence=0.85)  # fmt: skip


def _far_ahead(grown: Iterable[Event]) -> list[str]:
    """A node whose counters are ten times those of each of at least two others."""
    sums: Counter[str] = Counter()
    for event in grown:
        if event.node:
            sums[event.node] += int(_grew(event))
    top = sums.most_common(2)
    return [top[0][0]] if len(sums) > 2 and top[0][1] > 10 * top[1][1] else []
