"""Boards, links, bridges and drivers: fabric manager, NVLS, NVLink, PCIe, IOMMU, CUDA libraries."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from agent.formats.event import Event
from agent.triage.case import Case
from agent.triage.rule import CONFIGURED, FAILED, SLOW, Finding, finding, listed, rule


@rule("CUDA on NVSwitch systems starts only where the fabric manager of the driver's version runs.")
def fabric_manager(case: Case) -> Iterator[Finding]:
    refused = case.of("signature.system-not-ready")
    down = [e for e in case.of("host.service") if "fabricmanager" in e.get("unit") and e.get("state") != "active"]
    other = case.of("signature.fabric-manager-version")
    if refused or other or (down and case.stopped()):
        nodes = case.nodes([*down, *other]) or case.nodes(refused)
        yield finding("nvswitch.fabric-manager-down", CONFIGURED + 1, [*refused[:1], *down[:1], *other[:1]],
                      nodes=nodes,
                      why="the fabric manager is not serving the switches", confidence=0.95)  # fmt: skip


@rule("NVLS binds multicast memory through the fabric manager; a refusal there is its state, not the program's.")
def multicast(case: Case) -> Iterator[Finding]:
    warned = [
        e for e in case.of("nccl.warn") if re.search(r"nvls|NVLS|[Mm]ulticast", f"{e.get('where')} {e.get('message')}")
    ]
    refused = [
        e for e in warned if re.search(r"(?i)cuda (?:failure|error)|failed to bind|CUDA_ERROR", e.get("message"))
    ]
    if refused:
        yield finding("nvswitch.nvls-multicast", CONFIGURED, refused, nodes=case.nodes(refused),
                      why="NVLS multicast memory cannot be set up", confidence=0.9)  # fmt: skip


@rule("Links inactive on one GPU and active on its equals are broken, not absent.")
def inactive_links(case: Case) -> Iterator[Finding]:
    links = case.of("nvlink")
    dead: dict[tuple[str | None, int | None], list[Event]] = defaultdict(list)
    alive = {(e.node, e.gpu) for e in links if "inactive" not in e.get("state")}
    for event in links:
        if "inactive" in event.get("state"):
            dead[(event.node, event.gpu)].append(event)
    odd = {seat: events for seat, events in dead.items() if len(alive - set(dead)) > 0}
    if odd and len(odd) <= max(1, len(alive) // 2):
        shown = [e for events in odd.values() for e in events]
        yield finding("nvlink.link-inactive", SLOW + 3, shown, nodes=case.nodes(shown), gpus=[g for _, g in odd],
                      why=f"link {listed([e.get('link') for e in shown])} inactive", confidence=0.9)  # fmt: skip


@rule("Driver, library and runtime that do not fit each other are refused by CUDA with their own numbers.")
def driver(case: Case) -> Iterator[Finding]:
    refused = case.of("signature.driver-mismatch")
    if refused:
        versions = case.of("smi.driver")[:1]
        yield finding("cuda.driver-mismatch", CONFIGURED + 1, [*refused[:3], *versions], nodes=case.nodes(refused),
                      why="driver and CUDA libraries do not fit", confidence=0.95)  # fmt: skip


@rule("NCCL could not get memory on a GPU that something already fills.")
def nccl_memory(case: Case) -> Iterator[Finding]:
    full = [e for e in case.of("nccl.cuda") if "out of memory" in e.get("error")] + case.of("nccl.alloc")
    if full:
        ranks = [e.rank for e in full]
        gpus = [e.gpu if e.gpu is not None else case.layout.gpu(e.rank) for e in full]
        yield finding("cuda.oom-init", CONFIGURED - 1, full, nodes=case.nodes(full), ranks=ranks, gpus=gpus,
                      why="no GPU memory is left for NCCL's buffers", confidence=0.9)  # fmt: skip


@rule("An address translation fault, or redirected peer traffic on a job that hangs, breaks GPU-to-GPU transfers.")
def translation(case: Case) -> Iterator[Finding]:
    faults = case.of("signature.iommu-fault")
    redirecting = [e for e in case.of("pcie.acs") if e.get("on")]
    denied = [e for e in case.of("nccl.completion") if e.get("status") == "10"]
    hung = bench_hung(case) or case.stopped() or bool(denied)
    translating = case.of("signature.iommu-on") if bench_hung(case) else []
    if not hung or not (faults or redirecting or denied or translating):
        return
    peers = [case.layout.resolve(e.get("peer")) for e in denied if e.get("peer")]
    nodes = case.nodes(redirecting) or case.nodes(faults) or list(dict.fromkeys(n for n in peers if n))
    nodes = nodes or case.nodes([*denied, *translating])
    told = bool(faults or redirecting)
    kernel = case.of("signature.iommu-on")[:1] if faults else []
    weight = (
        CONFIGURED - 2 if told and (faults or bench_hung(case) or denied) else SLOW - 2 if told else CONFIGURED - 12
    )
    yield finding("pcie.acs-iommu", weight, [*faults[:1], *redirecting[:1], *denied[:1], *(kernel or translating[:1])],
                  nodes=nodes,
                  why="PCIe redirects peer-to-peer traffic", confidence=0.9 if told else 0.6)  # fmt: skip


def bench_hung(case: Case) -> bool:
    """A benchmark printed its columns, or its devices, and never a row."""
    started = {e.line.file for e in case.of("bench.columns", "bench.rank")}
    return bool(started - {e.line.file for e in case.of("bench.row")}) and not case.has("bench.row")


@rule("GeForce boards without working peer-to-peer hang where the driver still offers it.")
def consumer(case: Case) -> Iterator[Finding]:
    told = case.of("signature.consumer-p2p")
    names = [
        e
        for e in case.of("bench.rank", "smi.list", "smi.gpu")
        if re.search(r"GeForce|RTX [2345]0[5-9]0", e.get("name"))
    ]
    p2p = case.of("nccl.p2p")
    early = [e for e in case.timed_out().values() if (e.number("seq") or 99) <= 3]
    if told or (names and p2p and (bench_hung(case) or (early and not case.has("app.step")))):
        shown = [*told[:1], *names[:1], *p2p[:1], *case.of("smi.driver")[:1]]
        yield finding("p2p.consumer-gpu", FAILED - 2, shown, nodes=case.nodes([*names, *p2p, *told])[:1],
                      why="peer-to-peer does not work on these boards", confidence=0.8)  # fmt: skip


@rule("A link narrower than the device can do is a slot, riser or contact; a low speed at idle is power saving.")
def narrow_link(case: Case) -> Iterator[Finding]:
    links = [
        e
        for e in case.of("pcie.link")
        if "cap_width" in e.detail and re.search(r"NVIDIA|Mellanox|ConnectX", e.get("name"))
    ]
    narrow = [e for e in links if (e.number("width") or 0) < (e.number("cap_width") or 0)]
    rows = [e for e in case.of("gpu.row") if e.number("pcie.link.width.max")]
    narrow += [e for e in rows if (e.number("pcie.link.width.current") or 99) < (e.number("pcie.link.width.max") or 0)]
    if not narrow and case.has("signature.under-load"):
        full = [e for e in links if e.get("speed") == e.get("cap_speed")]
        narrow = [e for e in links if full and (e.number("speed") or 0) < (e.number("cap_speed") or 0)]
    if narrow:
        gpus = [e.gpu if e.gpu is not None else _index(case, links, e) for e in narrow]
        yield finding(
            "pcie.link-degraded",
            SLOW + 4,
            narrow,
            nodes=case.nodes(narrow),
            gpus=gpus,
            why=(f"x{narrow[0].get('width') or narrow[0].get('pcie.link.width.current')} link"),
            confidence=0.9,
        )


def _index(case: Case, links: list[Event], event: Event) -> int | None:
    """The GPU's index: through its bus, else its place among the GPUs listed."""
    known = case.layout.rank_at(case.node(event), event.get("bus"))
    if known is not None:
        return case.layout.gpu(known)
    gpus = [e.get("bus") for e in links if "NVIDIA" in e.get("name") and e.node == event.node]
    return gpus.index(event.get("bus")) if event.get("bus") in gpus else None
