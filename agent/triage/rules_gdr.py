"""GPUDirect RDMA that is off, transports that are not the fast one, EFA."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from agent.formats.event import Event
from agent.triage.case import Case
from agent.triage.rule import CONFIGURED, SLOW, Finding, finding, rule
from agent.triage.rules_rdma import port_states

PEER_MODULES = frozenset({"nvidia_peermem", "nv_peer_mem", "nvidia_peer_memory"})
GDR_OFF = re.compile(r"(?i)LOC|0")


def _without_gdr(case: Case) -> list[Event]:
    """Channels over InfiniBand or RoCE that stage through host memory, on nodes where all do."""
    by_node: dict[str | None, list[Event]] = defaultdict(list)
    for event in case.of("nccl.channel"):
        if event.get("via").startswith("NET/IB"):
            by_node[event.node].append(event)
    return [e for events in by_node.values() if not any("GDRDMA" in x.get("via") for x in events) for e in events]


@rule(
    "GPUDirect is off where a variable says so, where the NIC is across the socket, or where no "
    "peer-memory module is loaded."
)
def gdr_off(case: Case) -> Iterator[Finding]:
    plain, told = _without_gdr(case), case.of("nccl.gdr_off")
    if not plain and (not told or _some_have_gdr(case)):
        return
    nodes = case.nodes([*told, *plain])
    levels = [e for e in case.env("NCCL_NET_GDR_LEVEL") if GDR_OFF.fullmatch(e.get("value"))]
    far = _far_gpus(case)
    refused = case.of("signature.no-peermem")
    modules = case.of("host.module")
    loaded = [e for e in modules if e.get("module") in PEER_MODULES]
    if levels:
        yield finding("gdr.disabled", SLOW + 5, [*levels[:1], *told[:1], *plain[:1]], nodes=nodes, confidence=0.9,
                      why="NCCL_NET_GDR_LEVEL forbids GPUDirect RDMA")  # fmt: skip
    elif told and (far or any(e.get("distance") for e in told)) and not refused:
        yield finding("topo.gpu-nic-distance", SLOW + 5, [*told[:1], *far[:2]], nodes=nodes,
                      why="no NIC is near these GPUs", confidence=0.85)  # fmt: skip
    elif refused or (modules and not loaded and _about_rdma(modules)):
        shown = [e for e in modules if e.get("module") == "ib_core"] or modules
        yield finding("gdr.peermem-missing", SLOW + 5, [*refused[:1], *shown[:1], *plain[:1], *told[:1]], nodes=nodes,
                      why="no peer-memory module is loaded", confidence=0.9)  # fmt: skip
    elif told or _some_have_gdr(case):
        yield finding("gdr.peermem-missing", SLOW - 6, [*told[:1], *plain[:1]], nodes=nodes, confidence=0.6,
                      why="NCCL stages through host memory there")  # fmt: skip


def _some_have_gdr(case: Case) -> bool:
    return any("GDRDMA" in e.get("via") for e in case.of("nccl.channel"))


def _about_rdma(modules: list[Event]) -> bool:
    return any(re.match(r"ib_|mlx|nvidia", e.get("module")) for e in modules)


def _far_gpus(case: Case) -> list[Event]:
    """GPUs without any NIC nearer than the other socket, where other GPUs have one."""
    rows = case.of("topo")
    far = [e for e in rows if e.detail and set(e.detail.values()) <= {"SYS"}]
    return far if (far and len(far) < len(rows)) or (far and rows) else []


@rule("A GPU whose NICs are all across the socket interconnect, on some GPUs or nodes only, is badly placed.")
def far_from_nic(case: Case) -> Iterator[Finding]:
    far = _far_gpus(case)
    if far and case.has("bench.row") and not case.has("nccl.gdr_off"):
        yield finding("topo.gpu-nic-distance", SLOW - 5, far, nodes=case.nodes(far), gpus=[e.gpu for e in far],
                      why="no NIC is near these GPUs", confidence=0.6)  # fmt: skip


@rule("Sockets although the node has RDMA, or a variable that forbids it: the fast network is not used.")
def socket_fallback(case: Case) -> Iterator[Finding]:
    sockets = [e for e in case.of("nccl.network") if e.get("network").startswith("Socket")]
    if not sockets or len(case.layout.nodes) < 2 or case.hung_in_init():
        return
    forbidden = [e for e in case.env("NCCL_IB_DISABLE") if e.get("value") == "1"]
    forbidden += [e for e in case.env("NCCL_NET") if e.get("value").lower() == "socket"]
    active = [e for e, up in port_states(case) if up]
    hidden = [e for e in case.of("host.listing") if e.get("missing")]
    efa = case.of("signature.efa-device")
    if efa and not forbidden:
        yield finding("efa.not-used", CONFIGURED - 3, [*efa[:1], *sockets[:1]], nodes=case.nodes(sockets),
                      why="the instance has EFA, but NCCL uses sockets")  # fmt: skip
    elif forbidden or active or hidden:
        none_found = case.of("nccl.no_ib")
        why = "a variable forbids RDMA" if forbidden else "RDMA is there but NCCL does not see it"
        yield finding("perf.socket-fallback", SLOW + 6, [*forbidden[:1], *hidden[:1], *sockets[:1], *none_found[:1]],
                      nodes=case.nodes([*forbidden, *sockets]), why=why, confidence=0.9)  # fmt: skip


@rule("On EFA, NCCL needs libfabric's efa provider; without it, it falls back to TCP.")
def efa(case: Case) -> Iterator[Finding]:
    missing = case.of("signature.efa-provider")
    groups = case.of("signature.efa-peer") + case.of("signature.security-group")
    sockets = [e for e in case.of("nccl.network") if e.get("network").startswith("Socket")]
    if case.has("signature.efa-peer"):
        yield finding("efa.security-group", CONFIGURED - 2, groups, why="EFA packets between the instances are blocked")
    elif missing:
        yield finding("efa.not-used", CONFIGURED - 2, [*missing[:1], *sockets[:1]], nodes=case.nodes(missing),
                      why="libfabric offers no efa provider")  # fmt: skip
