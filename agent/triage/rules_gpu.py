"""GPUs, NVLink and NVSwitch, PCIe, drivers: what the kernel log, nvidia-smi and CUDA errors say."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from statistics import median

from agent.formats.event import Event
from agent.formats.kernel import short_bus
from agent.triage.case import Case
from agent.triage.rule import CONFIGURED, FAILED, HARDWARE, SLOW, Finding, finding, listed, rule

# NVIDIA's Xid catalogue (docs.nvidia.com/deploy/xid-errors): number → what it means for a run.
XIDS = {
    **dict.fromkeys((79,), "gpu.fell-off-bus"),
    **dict.fromkeys((48, 64, 92, 94, 95, 140, 171, 172), "gpu.ecc-uncorrectable"),
    **dict.fromkeys((74, 144, 145, 146, 147, 148, 149, 150), "gpu.nvlink-error"),
    **dict.fromkeys((119, 120), "gpu.gsp-timeout"),
    **dict.fromkeys((13, 31, 32, 69), "gpu.app-fault"),
    **dict.fromkeys((61, 62, 110, 121, 136, 143), "gpu.hardware"),
}
ORDER = (
    "gpu.fell-off-bus",
    "gpu.ecc-uncorrectable",
    "gpu.nvlink-error",
    "gpu.gsp-timeout",
    "gpu.hardware",
    "gpu.app-fault",
)
STALE_S = 86_400.0  # a kernel message a day before the job is context: its clock cannot be a time zone off by that much
THROTTLED = 0.85  # of the usual clock of the other GPUs


def _stale(case: Case, event: Event) -> bool:
    at = case.time(event)
    job = [
        t
        for e in case.of("c10d.timeout", "app.train", "c10d.async", "app.exception", "nccl.init")
        if (t := case.time(e))
    ]
    return at is not None and bool(job) and abs(at) > 1e8 and at < min(job) - STALE_S


def _xids(case: Case) -> dict[tuple[str | None, str], list[Event]]:
    """Xids that mean something, by node and bus, without those older than the job."""
    groups: dict[tuple[str | None, str], list[Event]] = defaultdict(list)
    for event in case.of("kernel.xid"):
        if int(event.get("xid")) in XIDS and not _stale(case, event):
            groups[(case.node(event), short_bus(event.get("bus")))].append(event)
    return groups


@rule("An Xid names a GPU by its bus; NCCL's init lines say which rank that is. Xid 43 and 45 are consequences.")
def xid(case: Case) -> Iterator[Finding]:
    switches = case.of("kernel.sxid")
    groups = _xids(case)
    for position, ((node, bus), events) in enumerate(groups.items()):
        kind = min((XIDS[int(e.get("xid"))] for e in events), key=ORDER.index)
        telling = [e for e in events if XIDS[int(e.get("xid"))] == kind]
        rank, gpu = _seat(case, node, bus, len(groups))
        shown = [*(switches[:1] if kind == "gpu.nvlink-error" else []), *telling[:2], *_own_cuda(case, rank)]
        weight = HARDWARE - position / 100 if kind != "gpu.app-fault" else FAILED + 4
        yield finding(kind, weight, shown, nodes=[node or case.layout.node(rank)], ranks=[rank], gpus=[gpu],
                      why=f"Xid {telling[0].get('xid')} on bus {bus}", confidence=0.95)  # fmt: skip


def _own_cuda(case: Case, rank: int | None) -> list[Event]:
    return [e for e in case.of("app.cuda") if rank is not None and e.rank == rank][:1]


def _seat(case: Case, node: str | None, bus: str, groups: int) -> tuple[int | None, int | None]:
    """Rank and GPU index behind a bus: by NCCL's init lines, else by the one rank whose CUDA calls failed."""
    layout = case.layout
    rank = layout.rank_at(node, bus)
    if rank is not None:
        return rank, layout.gpu(rank)
    gpu = layout.gpu_at(node, bus)
    hit = _hit_ranks(case)
    if len(hit) == 1 and groups == 1:
        return hit[0], gpu if gpu is not None else layout.gpu(hit[0])
    at = [
        r for r in sorted(layout.ranks) if gpu is not None and layout.gpu(r) == gpu and layout.node(r) in (node, None)
    ]
    return (at[0] if len(at) == 1 else None), gpu


def _hit_ranks(case: Case) -> list[int]:
    """Ranks whose own CUDA calls failed, else whose watchdog was stuck, in the order met."""
    failed = [e for e in case.of("app.cuda") if "async" not in e.line.body]
    failed += [e for e in case.of("nccl.cuda") if e.rank is not None]
    ranks = list(dict.fromkeys(e.rank for e in failed if e.rank is not None))
    if len(ranks) == 1:
        return ranks
    stuck = list(dict.fromkeys(e.rank for e in case.of("c10d.heartbeat") if e.rank is not None))
    return stuck if len(stuck) == 1 and not ranks else ranks


@rule("A fatal SXid is a fault of the switch or of a link to it.")
def sxid(case: Case) -> Iterator[Finding]:
    fatal = [
        e for e in case.of("kernel.sxid") if not re.search(r"(?i)non-?fatal", e.get("what")) and not _stale(case, e)
    ]
    if fatal:
        yield finding(
            "nvswitch.fault", HARDWARE - 2, fatal, nodes=case.nodes(fatal), why=f"SXid {fatal[0].get('sxid')}"
        )


@rule("nvidia-smi cannot reach a GPU that the bus has lost.")
def lost_gpu(case: Case) -> Iterator[Finding]:
    lost = case.of("kernel.gpu_lost")
    if lost:
        node, bus = case.node(lost[0]), lost[0].get("bus")
        rank, gpu = _seat(case, node, bus, 1) if bus else (None, None)
        yield finding(
            "gpu.fell-off-bus", HARDWARE - 3, lost, nodes=[node], ranks=[rank], gpus=[gpu], why="the GPU is lost"
        )


CUDA_KINDS = (
    ("uncorrectable ECC", "gpu.ecc-uncorrectable", HARDWARE - 8),
    ("uncorrectable NVLink", "gpu.nvlink-error", HARDWARE - 8),
    ("NVLink error", "gpu.nvlink-error", HARDWARE - 8),
    ("illegal memory access", "gpu.app-fault", FAILED - 4),
    ("illegal instruction", "gpu.app-fault", FAILED - 4),
    ("misaligned address", "gpu.app-fault", FAILED - 4),
    ("device-side assert", "gpu.app-fault", FAILED - 4),
    ("unspecified launch failure", "gpu.app-fault", FAILED - 10),
)


@rule("Without a kernel log, the CUDA error of the rank that had it first says what happened.")
def cuda_error(case: Case) -> Iterator[Finding]:
    for text, kind, weight in CUDA_KINDS:
        hit = [e for e in case.of("app.cuda", "nccl.cuda") if text in e.get("error") and e.rank is not None]
        hit = [e for e in hit if "async" not in e.line.body] or hit
        ranks = list(dict.fromkeys(e.rank for e in hit))
        if hit:
            first = ranks[:1] if len(ranks) * 2 <= (case.layout.size() or len(ranks)) else ranks
            yield finding(kind, weight, hit, nodes=[case.layout.node(r) for r in first], ranks=first, why=text,
                          gpus=[case.layout.gpu(r) for r in first], confidence=0.75)  # fmt: skip
            return


def _clock(event: Event) -> float | None:
    return event.number("clocks.sm") or event.number("clocks.current.sm") or event.number("clocks.gr")


def _active(event: Event, word: str) -> bool:
    return any(word in name and value == "Active" for name, value in event.detail.items())


@rule("One GPU slower than its fellows under the same load holds all of them back; its reason bits say why.")
def throttled(case: Case) -> Iterator[Finding]:
    rows = [e for e in case.of("gpu.row") if _clock(e)]
    usual = median([_clock(e) or 0.0 for e in rows]) if rows else 0.0
    for cause, word in (("gpu.thermal-throttle", "thermal"), ("gpu.power-cap", "power")):
        slow = [e for e in rows if (_clock(e) or usual) < THROTTLED * _own_best(e, usual) and _active(e, word)]
        if slow and not (cause == "gpu.power-cap" and any(_active(e, "thermal") for e in slow)):
            power = case.of("host.power") if cause == "gpu.power-cap" else []
            yield finding(cause, SLOW, [*slow[:3], *power[:1]], nodes=case.nodes(slow), gpus=[e.gpu for e in slow],
                          why=f"GPU {listed([e.gpu for e in slow])} at {_clock(slow[0]):.0f} MHz, usual {usual:.0f}",
                          confidence=0.9)  # fmt: skip


def _own_best(event: Event, usual: float) -> float:
    """The clock to compare with: that of the others; where all are equally low, the card's own maximum."""
    most = event.number("clocks.max.sm") or usual
    return usual if usual > 0.7 * most else most


@rule("A power limit below that of the other GPUs of the same kind caps that GPU.")
def low_limit(case: Case) -> Iterator[Finding]:
    limits = [(e, v) for e in case.of("gpu.row") if (v := e.number("power.limit") or e.number("enforced.power.limit"))]
    usual = median([v for _, v in limits]) if limits else 0.0
    low = [e for e, v in limits if v < 0.9 * usual]
    if low:
        yield finding("gpu.power-cap", SLOW - 1, low, nodes=case.nodes(low), gpus=[e.gpu for e in low],
                      why=f"power limit below the usual {usual:.0f} W")  # fmt: skip


@rule("Uncorrected memory errors counted on one GPU since the driver was loaded.")
def counted_ecc(case: Case) -> Iterator[Finding]:
    hit = [e for e in case.of("gpu.row") for name in e.detail
           if name.startswith("ecc.errors.uncorrected.volatile") and (e.number(name) or 0) > 0]  # fmt: skip
    if hit and (case.stopped() or len(hit) < len(case.of("gpu.row"))):
        yield finding("gpu.ecc-uncorrectable", SLOW + 3, hit, nodes=case.nodes(hit), gpus=[e.gpu for e in hit],
                      why="uncorrected ECC errors are counted")  # fmt: skip


@rule("A slow-down reason that nvidia-smi -q shows as active on one GPU of several.")
def reasons(case: Case) -> Iterator[Finding]:
    for cause, wanted in (("gpu.thermal-throttle", r"Thermal|HW Slowdown"), ("gpu.power-cap", r"Power")):
        hit = [e for e in case.of("gpu.reason") if re.search(wanted, e.get("reason"))]
        buses = {e.get("bus") for e in hit}
        if hit and len(buses) <= 2:
            gpus = [case.layout.gpu_at(case.node(e), e.get("bus")) for e in hit]
            yield finding(cause, SLOW - 4, hit, nodes=case.nodes(hit), gpus=gpus, why=hit[0].get("reason"))
            return


@rule("CUDA on NVSwitch systems starts only where the fabric manager of the driver's version runs.")
def fabric_manager(case: Case) -> Iterator[Finding]:
    refused = case.of("signature.system-not-ready")
    down = [e for e in case.of("host.service") if "fabricmanager" in e.get("unit") and e.get("state") != "active"]
    other = case.of("signature.fabric-manager-version")
    if refused or other or (down and case.stopped()):
        nodes = case.nodes([*down, *other]) or case.nodes(refused)
        yield finding("nvswitch.fabric-manager-down", CONFIGURED + 1, [*refused[:1], *down[:1], *other[:1]], nodes=nodes,
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
    nodes = case.nodes(redirecting) or case.nodes(faults) or list(dict.fromkeys(peers))
    nodes = nodes or case.nodes([*denied, *translating])
    told = bool(faults or redirecting)
    kernel = case.of("signature.iommu-on")[:1] if faults else []
    weight = (
        CONFIGURED - 2 if told and (faults or bench_hung(case) or denied) else SLOW - 2 if told else CONFIGURED - 12
    )
    yield finding("pcie.acs-iommu", weight, [*faults[:1], *redirecting[:1], *denied[:1], *(kernel or translating[:1])], nodes=nodes,
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
        yield finding("pcie.link-degraded", SLOW + 4, narrow, nodes=case.nodes(narrow), gpus=gpus,
                      why=f"x{narrow[0].get('width') or narrow[0].get('pcie.link.width.current')} link", confidence=0.9)  # fmt: skip


def _index(case: Case, links: list[Event], event: Event) -> int | None:
    """The GPU's index: through its bus, else its place among the GPUs listed."""
    known = case.layout.rank_at(case.node(event), event.get("bus"))
    if known is not None:
        return case.layout.gpu(known)
    gpus = [e.get("bus") for e in links if "NVIDIA" in e.get("name") and e.node == event.node]
    return gpus.index(event.get("bus")) if event.get("bus") in gpus else None
