"""InfiniBand and RoCE: ports, device sets, queue pairs, completions, memory registration, GPUDirect."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from agent.formats.event import Event
from agent.triage.case import Case
from agent.triage.rule import CONFIGURED, HARDWARE, REFUSED, SLOW, Finding, finding, listed, minority, rule

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
    told = [e for e in case.of("port", "port.link", "port.netdev") if e.get("state")]
    told += [e for e in case.of("port.sysfs") if e.get("name") == "state"]
    return [(e, bool(re.search(r"(?i)active|\bup\b", e.get("state") or e.get("value")))) for e in told]


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
            yield finding(kind, HARDWARE - len(by_node) + len(errors) / 1000, [*errors[:2], *active[:1]], nodes=[node],
                          nics=[e.nic for e in errors], why=f"{len(errors)} port errors there, none elsewhere")  # fmt: skip


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
        yield finding("rdma.peer-lost", REFUSED - 3, [*telling[:2], *power[:1]], nodes=common,
                      why=f"{common[0]} is an end of every one of {len(links)} failed pairs", confidence=0.9)  # fmt: skip
    elif len(links) > 2:
        yield finding(
            "rdma.fabric-lossy", REFUSED - 6, named, why="failed pairs have no node in common", confidence=0.7
        )


@rule("RoCE that fails at the first transfer, before any step, addresses its peer by a GID that is not routed.")
def first_write_lost(case: Case) -> Iterator[Finding]:
    lost = [e for e in case.of("nccl.completion") if e.get("status") == RETRY_EXCEEDED]
    roce = any(layer == "RoCE" for nics in hca_sets(case).values() for layer in nics.values()) or case.has("gid")
    both = len(case.nodes(lost)) > 1 or any(not e.get("peer") for e in lost)
    if lost and roce and both and (case.has("gid") or not case.has("app.train", "bench.row")):
        routable = [e for e in case.of("gid") if e.get("version") == "v2" and e.get("addr")]
        yield finding("rdma.gid-index", REFUSED - 2, [*lost[:2], *routable[:2]], nodes=_odd_gid(case),
                      why="the very first RDMA transfer timed out on RoCE", confidence=0.75)  # fmt: skip


def _odd_gid(case: Case) -> list[str]:
    """Nodes whose GID index differs from the rest."""
    groups: dict[object, list[str]] = defaultdict(list)
    for event in case.env("NCCL_IB_GID_INDEX"):
        if event.node and event.node not in groups[event.get("value")]:
            groups[event.get("value")].append(event.node)
    return minority(groups)


@rule("A queue pair that cannot be moved to ready cannot resolve its peer; the error says which way.")
def modify_qp(case: Case) -> Iterator[Finding]:
    failed = [e for e in case.of("nccl.verbs") if "modify_qp" in e.get("call")]
    if not failed:
        return
    errors = " ".join(e.get("error") for e in failed)
    mixed = any(len(set(nics.values())) > 1 for nics in hca_sets(case).values())
    if "No such device" in errors or (mixed and not _losses(case)):
        yield from _wrong_hca(case, failed)
    elif _separate_rails(case, failed):
        yield finding("rdma.rail-isolated", CONFIGURED - 3, [*failed[:1], *_losses(case)[:2], *case.of("nic.address")[:1]],
                      why="the two ends of the queue pair lie on networks without a route between them")  # fmt: skip
    else:
        shown = [*failed[:2], *case.env("NCCL_IB_GID_INDEX")[:1], *case.of("gid")[:1]]
        yield finding("rdma.gid-index", CONFIGURED - 4, shown, nodes=_odd_gid(case),
                      why="the GID of one end cannot be reached from the other")  # fmt: skip


def _losses(case: Case) -> list[Event]:
    return [e for e in case.of("host.loss") if e.get("loss") == "100"]


def _separate_rails(case: Case, failed: list[Event]) -> bool:
    networks = {".".join(e.get("addr").split(".")[:3]) for e in case.of("nic.address")}
    gids = [(e.get("gid"), e.get("remote_gid")) for e in failed if e.get("remote_gid")]
    routed = [(a, b) for a, b in gids if not a.startswith("fe80") and not b.startswith("fe80")]
    timed_out = any(re.search(r"timed out|[Nn]o route|unreachable", e.get("error")) for e in failed)
    many = any(len(nics) > 1 for nics in hca_sets(case).values())
    return timed_out and (
        bool(_losses(case)) or len(networks) > 1 or bool(routed) or (many and not gids and not case.has("gid"))
    )


def _wrong_hca(case: Case, failed: list[Event]) -> Iterator[Finding]:
    down = {e.nic for e, up in port_states(case) if not up}
    sets = hca_sets(case)
    layers = Counter(layer for nics in sets.values() for layer in nics.values())
    common = layers.most_common(1)[0][0] if layers else ""
    odd = [nic for nics in sets.values() for nic, layer in nics.items() if nic in down or layer != common]
    nics = [e.nic for e in failed if e.nic] or odd
    shown = [e for e, up in port_states(case) if not up and e.nic in nics]
    yield finding("rdma.hca-selection", CONFIGURED - 3, [*failed[:1], *case.of("nccl.ib")[:1], *shown[:1]],
                  nodes=case.nodes(failed), nics=nics, why=f"{listed(nics) or 'a device'} has no usable port here")  # fmt: skip


@rule("Nodes that use different sets of devices pair rails wrongly; the node that differs is the odd one.")
def device_sets(case: Case) -> Iterator[Finding]:
    sets = {n: frozenset(nics) for n, nics in hca_sets(case).items() if nics}
    if len(set(sets.values())) < 2 or case.ran():
        return
    rates = {(e.node, e.nic): r for e in case.of("port", "port.sysfs") if (r := rate_gbps(e))}
    best = max(rates.values(), default=0.0)
    slow = [(n, nic) for n, nics in sets.items() for nic in sorted(nics) if rates.get((n, nic), best) < best / 2]
    if slow:
        nodes, nics = [n for n, _ in slow], [nic for _, nic in slow]
    else:
        nodes, nics = _odd_sets(sets)
    shown = [e for e in case.of("port.sysfs", "port") if (e.node, e.nic) in slow]
    lines = [e for e in case.of("nccl.ib") if e.node in nodes]
    yield finding("rdma.nic-set-mismatch", SLOW + 6 if slow else SLOW + 2, [*lines[:1], *shown[:2]], nodes=nodes, nics=nics,
                  why="its devices differ from those of the other nodes", confidence=0.75)  # fmt: skip


@rule("NCCL_IB_HCA matches by prefix: mlx5_1 also takes mlx5_10 to mlx5_19, unless it begins with =.")
def prefix_match(case: Case) -> Iterator[Finding]:
    for event in case.env("NCCL_IB_HCA"):
        names = [n.partition(":")[0] for n in event.get("value").split(",") if n[:1] not in ("=", "^")]
        used = hca_sets(case).get(event.node or "", {})
        more = [nic for nic in used if nic not in names and any(nic.startswith(n) for n in names)]
        if more and names and names[0] in used and (case.stopped() or case.hung_in_init()):
            lines = [e for e in case.of("nccl.ib") if e.node == event.node]
            yield finding("rdma.hca-selection", SLOW + 3, [event, *lines[:1]], nodes=[event.node], nics=more,
                          why=f"{listed(names)} also matches {listed(more)}", confidence=0.7)  # fmt: skip
            return


def _odd_sets(sets: dict[str, frozenset[str]]) -> tuple[list[str], list[str]]:
    groups: dict[object, list[str]] = defaultdict(list)
    for node, nics in sets.items():
        groups[nics].append(node)
    usual: frozenset[str] = max(sets.values(), key=lambda s: (len(groups[s]), len(s)))
    odd = minority(groups) or [n for n, nics in sets.items() if nics != usual]
    return odd, sorted({nic for n in odd for nic in sets[n] ^ usual})


@rule("The two ends of a RoCE connection need the same MTU; the lower or rarer one is odd.")
def mtu(case: Case) -> Iterator[Finding]:
    values: dict[str, dict[str, Event]] = defaultdict(dict)
    for event in case.of("port"):
        if event.get("mtu") and event.node:
            values[event.node].setdefault(event.get("mtu").split()[0], event)
    groups: dict[object, list[str]] = defaultdict(list)
    for node, seen in values.items():
        groups[min(seen, key=int)].append(node)
    if len(groups) < 2 or not (case.stopped() or case.has("nccl.async", "nccl.verbs")):
        return
    odd = minority(groups) or groups[min(groups, key=lambda g: int(str(g)))]
    shown = [min(values[n].items(), key=lambda kv: int(kv[0]))[1] for n in odd]
    errors = case.of("nccl.async")[:1] + [e for e in case.of("nccl.completion") if e.get("status") == LOCAL_LENGTH][:1]
    yield finding("rdma.mtu-mismatch", CONFIGURED + 1, [*shown[:2], *errors], nodes=odd,
                  why=f"active_mtu {listed(sorted(map(str, groups)))} on different nodes", confidence=0.9)  # fmt: skip


@rule("Without MTU figures, a local length or access violation (1) at the receiver still points at differing MTUs.")
def local_length(case: Case) -> Iterator[Finding]:
    wrong = [e for e in case.of("nccl.completion") if e.get("status") == LOCAL_LENGTH]
    wrong += [e for e in case.of("nccl.async") if "local access violation" in e.get("what")]
    if wrong:
        yield finding("rdma.mtu-mismatch", SLOW, wrong, nodes=case.nodes(wrong), confidence=0.5,
                      why="the receiver got more than its buffer holds")  # fmt: skip


@rule(
    "Memory that cannot be registered: out of locked memory by limit, out of queue pairs by device, or not registrable."
)
def verbs_resources(case: Case) -> Iterator[Finding]:
    failed = [
        e for e in case.of("nccl.verbs") if re.search(r"reg_mr|create_qp|create_cq|alloc_pd|reg_dmabuf", e.get("call"))
    ]
    if not failed:
        return
    no_memory = [e for e in failed if re.search(r"Cannot allocate|ENOMEM", e.get("error")) or not e.get("error")]
    unlimited = any(e.get("value") == "unlimited" for e in case.of("limit.memlock"))
    small = [e for e in case.of("limit.memlock") if e.get("value") != "unlimited"]
    device = case.of("kernel.verbs_limit") + case.of("verbs.resources")
    queue = [e for e in no_memory if "reg_mr" not in e.get("call")]
    if not no_memory:
        yield finding("gdr.register-failed", CONFIGURED, [*failed[:2], *case.env("NCCL_NET_GDR_LEVEL")[:1]],
                      nodes=case.nodes(failed), why="GPU memory cannot be registered with the adapter")  # fmt: skip
    elif device or (unlimited and not small) or (queue and not small and len(queue) == len(no_memory)):
        nics = [e.nic for e in [*case.of("verbs.resources"), *no_memory] if e.nic]
        yield finding("rdma.resource-limit", CONFIGURED, [*case.of("kernel.verbs_limit")[:1], *no_memory[:1], *device[-1:]],
                      nodes=case.nodes(no_memory), nics=nics[:1], why="the adapter refuses further queue pairs")  # fmt: skip
    else:
        yield finding("rdma.memlock", CONFIGURED, [*no_memory[:1], *small[:1]], nodes=case.nodes(no_memory),
                      why="the locked-memory limit is too low", confidence=0.9)  # fmt: skip


@rule("A device that cannot be opened is not mounted into the container; NCCL then falls back to TCP in silence.")
def device_hidden(case: Case) -> Iterator[Finding]:
    closed = case.of("nccl.open_device") + [e for e in case.of("nccl.verbs") if "open_device" in e.get("call")]
    if closed:
        sockets = [e for e in case.of("nccl.network") if e.get("network").startswith("Socket")]
        yield finding("rdma.device-not-in-container", CONFIGURED, [*closed[:1], *sockets[:1]], nodes=case.nodes(closed),
                      nics=[e.nic for e in closed], why="the RDMA device files are not accessible", confidence=0.9)  # fmt: skip


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
