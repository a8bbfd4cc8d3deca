"""Does it fit: on one card, on which cards at least, and what to change when it does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from jobs.plan import hardware, memory
from jobs.plan.architecture import Architecture
from jobs.plan.hardware import Card
from jobs.plan.memory import Forecast
from jobs.plan.workload import Workload

TIGHT_SHARE = 0.10  # less than this left is tight: readings of one configuration differ by that much between stacks
SELLERS_SHARE = 0.30  # the headroom sellers of cards advise
COUNTS = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class Verdict:
    """``answer`` is yes, tight or no. ``left_share`` of the card's NVML total is free at the peak; negative: it is
    short.
    """

    answer: str
    left_share: float
    capacity_bytes: float
    forecast: Forecast

    @property
    def fits(self) -> bool:
        return self.answer != "no"

    @property
    def sellers_rule(self) -> bool:
        """Whether 30 % stays free."""
        return self.left_share >= SELLERS_SHARE


@dataclass(frozen=True, slots=True)
class Change:
    """One proposal: what changes, what it costs, and the workload after it."""

    text: str
    cost: str
    work: Workload


def judge(shape: Architecture, work: Workload, capacity_bytes: float, factor: float = 1.0) -> Verdict:
    """The verdict against a capacity in bytes (NVML's total). ``factor`` is a learned correction of
    measured/forecast.
    """
    forecast = memory.forecast(shape, work)
    left = 1 - forecast.device_bytes * factor / capacity_bytes
    answer = "no" if left < 0 else "tight" if left < TIGHT_SHARE else "yes"
    return Verdict(answer, left, capacity_bytes, forecast)


def without_bf16(card: Card, work: Workload) -> bool:
    """Whether the card has no bf16, so that the same run must use fp16 and loss scaling there (same bytes)."""
    return not card.bf16 and work.compute == "16-bit" and work.weight_format != "fp16"


def on_cards(shape: Architecture, work: Workload) -> list[tuple[Card, Verdict]]:
    """The verdict for every card that is shipped, with as many cards as the workload says."""
    return [(card, judge(shape, work, card.memory_bytes)) for card in hardware.cards()]


def minimum(shape: Architecture, work: Workload) -> tuple[int, Card, Workload] | None:
    """Fewest and then smallest cards on which the method fits, sharding where one card is not enough; None beyond
    64.
    """
    for count in COUNTS:
        tried = work if count == 1 else replace(work, sharding=_sharding(work, count), cards=count)
        if count == 1:
            tried = replace(work, sharding="none", cards=1, offload="none", tensor_parallel=1, pipeline_parallel=1)
        for card in hardware.cards():
            if judge(shape, tried, card.memory_bytes).fits:
                return count, card, tried
    return None


def _sharding(work: Workload, count: int) -> str:
    return work.sharding if work.sharding in ("zero3", "fsdp") and count > 1 else "zero3"


def lean(work: Workload) -> Workload:
    """The leanest public recipe for the same method: fused kernels and loss, activations offloaded, 8-bit Adam,
    16-bit adapters.
    """
    return replace(
        work, kernels="fused", loss="fused", offload_activations=work.checkpointing == "full", optimizer="adamw-8bit",
        adapter_bytes=2, expandable_segments=True, attention="flash",
        weight_format="nf4-dq" if work.weight_format == "nf4" else work.weight_format,
    )  # fmt: skip


def changes(work: Workload) -> Iterator[Change]:
    """Single steps from harmless to harmful; each builds on the ones before it."""
    now = work

    def step(text: str, cost: str, **fields: object) -> Change:
        nonlocal now
        now = replace(now, **fields)  # type: ignore[arg-type]
        return Change(text, cost, now)

    if not now.expandable_segments:
        yield step("expandable allocator segments", "nothing: one environment variable", expandable_segments=True)
    if now.attention == "eager":
        yield step("flash or sdpa attention", "nothing", attention="sdpa")
    if now.loss == "unfused":
        yield step("chunked cross-entropy", "nothing measurable", loss="chunked")
    if now.checkpointing != "full":
        yield step("activation checkpointing", "20-30 % of speed", checkpointing="full")
    while now.micro_batch > 1:
        half = max(1, now.micro_batch // 2)
        more = round((now.accumulation or 1) * now.micro_batch / half)
        yield step(
            f"micro-batch {half}, accumulation {more}",
            "a little speed; the same global batch",
            micro_batch=half,
            accumulation=more,
        )
    if now.loss == "chunked":
        yield step("fused cross-entropy", "a kernel package (Liger or cut-cross-entropy)", loss="fused")
    if now.optimizer.startswith(("adamw", "paged")) and not now.optimizer.endswith("8bit") and not now.deepspeed:
        yield step("8-bit AdamW", "little quality (Dettmers et al. 2022)", optimizer="adamw-8bit")
    if now.cards > 1 and now.sharding in ("none", "ddp", "zero1"):
        yield step("ZeRO-2", "a little communication", sharding="zero2")
    if now.cards > 1 and now.sharding != "fsdp" and now.sharding != "zero3":
        yield step("ZeRO-3", "communication: 1.5x the traffic, slow without NVLink", sharding="zero3")
    if now.kernels == "plain":
        yield step("fused layer kernels", "a kernel package (Unsloth or Liger)", kernels="fused")
    if now.adapters and now.checkpointing == "full" and not now.offload_activations:
        yield step("activations in host memory", "speed: they cross PCIe twice", offload_activations=True)
    if now.method == "lora" and not now.quantized:
        yield step(
            "QLoRA: NF4 base", "1-3 points of quality claimed; 5-100 % step time", method="qlora", weight_format="nf4"
        )
    if now.weight_format == "nf4":
        yield step("double quantisation", "nothing measurable", weight_format="nf4-dq")
    if now.adapters and now.rank > 8:
        yield step("rank 8", "capacity of the adapter", rank=8)
    if now.sharding in ("zero2", "zero3", "fsdp"):
        yield step("optimiser in host memory", "speed: the step runs on the CPU", offload="optimizer")
    if now.sharding in ("zero3", "fsdp"):
        yield step("parameters in host memory", "much speed: weights cross PCIe every step", offload="all")
    while now.seq_len > 512:
        half = max(512, now.seq_len // 2)
        yield step(f"sequences of {half} tokens", "longer samples are cut", seq_len=half)


def make_it_fit(shape: Architecture, work: Workload, capacity_bytes: float) -> list[Change] | None:
    """The least harmful list of changes after which it fits with 10 % left; empty if it does already; None if none
    helps.

    Steps that turn out not to be needed once the last one is taken are left out again.
    """
    if judge(shape, work, capacity_bytes).answer == "yes":
        return []
    taken: list[Change] = []
    for change in changes(work):
        taken.append(change)
        if judge(shape, change.work, capacity_bytes).answer == "yes":
            return _pruned(shape, work, taken, capacity_bytes)
    return None


def _difference(before: Workload, after: Workload) -> dict[str, object]:
    return {f: getattr(after, f) for f in Workload.__slots__ if getattr(after, f) != getattr(before, f)}


def _pruned(shape: Architecture, work: Workload, taken: list[Change], capacity_bytes: float) -> list[Change]:
    """Drops, from the most harmful back, every step without which it still fits."""
    steps = [(c, _difference(work if i == 0 else taken[i - 1].work, c.work)) for i, c in enumerate(taken)]
    index = len(steps) - 2
    while index >= 0:
        rest = steps[:index] + steps[index + 1 :]
        if judge(shape, _applied(work, rest), capacity_bytes).answer == "yes":
            steps = rest
        index -= 1
    return [Change(c.text, c.cost, _applied(work, steps[: i + 1])) for i, (c, _) in enumerate(steps)]


def _applied(work: Workload, steps: list[tuple[Change, dict[str, object]]]) -> Workload:
    fields: dict[str, object] = {}
    for _, difference in steps:
        fields |= difference
    return replace(work, **fields)  # type: ignore[arg-type]


def best_for(shape: Architecture, work: Workload, card: Card, count: int) -> Workload | None:
    """The most faithful workload that fits on ``count`` such cards: full, then LoRA, then QLoRA, each made to fit."""
    for method, weights in (("full", "bf16"), ("lora", "bf16"), ("qlora", "nf4-dq")):
        sharding = "none" if count == 1 else "zero3" if method == "full" else "ddp"
        start = replace(work, method=method, weight_format=weights, cards=count, sharding=sharding, offload="none")
        found = make_it_fit(shape, start, card.memory_bytes)
        if found is None:
            continue
        last = found[-1].work if found else start
        if last.method == method and last.offload == "none" and last.seq_len == work.seq_len:
            return last
    return None
