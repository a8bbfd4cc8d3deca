"""GPUs, NVLink and NVSwitch, PCIe, drivers: what the kernel log, nvidia-smi and CUDA errors say."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from statistics import median

from agent.formats.event import Event
from agent.formats.kernel import short_bus
from agent.triage.case import Case
from agent.triage.rule import FAILED, HARDWARE, SLOW, Finding, finding, listed, rule

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
