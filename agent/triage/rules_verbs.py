"""Queue pairs, device sets, MTU and memory registration: what verbs refuse, and why."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator

from agent.formats.event import Event
from agent.triage.case import Case
from agent.triage.rule import CONFIGURED, REFUSED, SLOW, Finding, finding, listed, minority, rule
from agent.triage.rules_rdma import LOCAL_LENGTH, RETRY_EXCEEDED, hca_sets, port_states, rate_gbps


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
        shown = [*failed[:1], *_losses(case)[:2], *case.of("nic.address")[:1]]
        yield finding("rdma.rail-isolated", CONFIGURED - 3, shown,
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
    yield finding(
        "rdma.hca-selection",
        CONFIGURED - 3,
        [*failed[:1], *case.of("nccl.ib")[:1], *shown[:1]],
        nodes=case.nodes(failed),
        nics=nics,
        why=(f"{listed(nics) or 'a device'} has no usable port here"),
    )


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
    yield finding("rdma.nic-set-mismatch", SLOW + 6 if slow else SLOW + 2, [*lines[:1], *shown[:2]],
                  nodes=nodes, nics=nics,
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
        yield finding(
            "rdma.resource-limit",
            CONFIGURED,
            [*case.of("kernel.verbs_limit")[:1], *no_memory[:1], *device[-1:]],
            nodes=case.nodes(no_memory),
            nics=nics[:1],
            why=("the adapter refuses further queue pairs"),
        )
    else:
        yield finding("rdma.memlock", CONFIGURED, [*no_memory[:1], *small[:1]], nodes=case.nodes(no_memory),
                      why="the locked-memory limit is too low", confidence=0.9)  # fmt: skip


@rule("A device that cannot be opened is not mounted into the container; NCCL then falls back to TCP in silence.")
def device_hidden(case: Case) -> Iterator[Finding]:
    closed = case.of("nccl.open_device") + [e for e in case.of("nccl.verbs") if "open_device" in e.get("call")]
    if closed:
        sockets = [e for e in case.of("nccl.network") if e.get("network").startswith("Socket")]
        yield finding(
            "rdma.device-not-in-container",
            CONFIGURED,
            [*closed[:1], *sockets[:1]],
            nodes=case.nodes(closed),
            nics=[e.nic for e in closed],
            why=("the RDMA device files are not accessible"),
            confidence=0.9,
        )
