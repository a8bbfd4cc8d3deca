"""What arithmetic says to a seller's claim, given in plain words: ``70B LoRA on 4 x RTX 3090``."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from jobs.plan import architecture, catalogue, fit, hardware, memory, offers
from jobs.plan.architecture import Architecture
from jobs.plan.hardware import Card
from jobs.plan.offers import Finding
from jobs.plan.refusal import PlanError
from jobs.plan.workload import Workload

GB = 1e9
# what "a 7B" means: models of that size with a small and with a large vocabulary, where both exist
MODELS = {
    7: ("Llama-2-7B", "Qwen2.5-7B"), 8: ("Llama-3.1-8B",), 13: ("Llama-2-13B",), 14: ("Qwen2.5-14B",),
    32: ("Qwen2.5-32B",),
    34: ("Yi-34B",), 65: ("Llama-65B",), 70: ("Llama-3.1-70B",), 72: ("Qwen2.5-72B",), 180: ("Falcon-180B",),
    405: ("Llama-3.1-405B",),
}  # fmt: skip
CARD = re.compile(
    r"(?:(\d+)\s*(?:[x×*]|cards? of)\s*)?"
    r"\b((?:RTX\s*)?(?:A6000|A5000|6000\s*Ada|A10G?|L20|L40S|T4|V100S?|[AH][18]00|H200|B200|[345]0[89]0)(?!\w))"
    r"((?:\s*(?:SXM|PCIe))?\s*(?:\d+\s*G(?:i?B)?\b)?)",
    re.IGNORECASE,
)
SIZE = re.compile(r"\b(\d+(?:\.\d+)?)(?:\s*(?:-|to|and|/)\s*(\d+(?:\.\d+)?))?\s*B\b(?!\w)")
AMOUNT = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)\s*(GB|GiB|TB|G)\b", re.IGNORECASE)
NEEDS = re.compile(r"\b(need|require|minimum|at least|over)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Words:
    """What a claim names."""

    sizes: tuple[float, ...]
    method: str
    cards: tuple[tuple[int, Card], ...]
    amounts: tuple[float, ...]  # bytes
    batch: int
    context: int
    needs: bool


def examine(text: str) -> Finding:
    """What arithmetic says. Raises PlanError where the claim names nothing that can be computed."""
    for look in offers.EXAMINERS:
        found = look(text)
        if found:
            return found
    words = read(text)
    for judge in (_comparison, _card_memory, _training):
        found = judge(text, words)
        if found:
            return found
    raise PlanError(
        f"nothing to compute in {text!r}", "name a model size and method with cards or GB: '70B LoRA on 4 x RTX 3090'"
    )


def read(text: str) -> Words:
    """The numbers and names of a claim."""
    cards = []
    for count, name, variant in CARD.findall(text):
        card = hardware.find(f"{name} {variant}")
        if card:
            cards.append((int(count or 1), card))
    plain = CARD.sub(" ", text)
    scale = {"tb": 1e12, "gib": memory.GIB}
    amounts = tuple(float(v) * scale.get(unit.lower(), GB) for v, unit in AMOUNT.findall(plain))
    sizes = tuple(float(part) for found in SIZE.findall(plain) for part in found if part)
    return Words(
        sizes, _method(text), tuple(cards), amounts,
        _last(r"batch(?:es)?(?: of| size)?\s*(?:\d+\s*-\s*)?(\d+)", plain, 1),
        _last(r"(?:context|seq\w*|length)\s*(?:of\s*)?(\d{3,7})|[x×]\s*(\d{3,7})\b", plain, 2048),
        bool(NEEDS.search(text)),
    )  # fmt: skip


def _last(pattern: str, text: str, default: int) -> int:
    found = re.search(pattern, text, re.IGNORECASE)
    return int(next(g for g in found.groups() if g)) if found else default


def _method(text: str) -> str:
    low = text.lower()
    if "qlora" in low or "4-bit" in low or "4bit" in low:
        return "qlora"
    return "lora" if "lora" in low or "low-rank" in low or "adapter" in low else "full" if "full" in low else ""


def _comparison(text: str, words: Words) -> Finding | None:
    """``4 x A100 40G is 60-70 % of 8 x H100``: the ratio of peaks."""
    share = re.search(r"(\d+)\s*(?:-|to)?\s*(\d+)?\s*%", text)
    if len(words.cards) != 2 or not share or words.sizes:
        return None
    (n, a), (m, b) = words.cards
    ratio = n * a.matmul_flops / (m * b.matmul_flops)
    claimed = float(share.group(1)) / 100
    peaks = [f"{k} x {c.name} = {k * c.matmul_flops / 1e12:,.0f} TFLOPS dense" for k, c in words.cards]
    close = abs(ratio - claimed) < 0.25 * claimed
    return Finding("holds" if close else "contradicted", text, (*peaks, f"that is {ratio:.0%} of the peak"))


def _card_memory(text: str, words: Words) -> Finding | None:
    """``L20 24 GB``: against NVML's total."""
    if words.sizes or len(words.cards) != 1:
        return None
    named = re.search(r"(\d+)\s*G", CARD.search(text).group(3) or "")  # type: ignore[union-attr]
    claimed = float(named.group(1)) * GB if named else words.amounts[0] if words.amounts else 0.0
    if not claimed:
        return None
    card = words.cards[0][1]
    real = card.memory_bytes
    fair = abs(real / claimed - 1) < 0.12  # GB against GiB and reserved memory make up to a tenth
    return Finding(
        "holds" if fair else "contradicted", text,
        (f"{card.name}: NVML shows {real / hardware.MIB:,.0f} MiB = {real / memory.GIB:.1f} GiB",),
    )  # fmt: skip


def models(size: float) -> tuple[Architecture, ...]:
    """Public models of that size in 1e9 parameters."""
    names = MODELS.get(round(size)) if abs(size - round(size)) < 0.01 else None
    if names:
        return tuple(catalogue.named(name) for name in names)
    return (architecture.from_size(f"{size:g}B", size * 1e9),)


def _training(text: str, words: Words) -> Finding | None:
    """A method for a size, on cards or within an amount of memory."""
    if not words.sizes or not (words.cards or words.amounts):
        return None
    said: list[str] = []
    verdicts: list[str] = []
    for size in words.sizes:
        shapes = models(size)
        said.extend(_state_lines(shapes[0], words.method or "full"))
        budgets: list[tuple[str, int, float]] = [(f"{n} x {c.name}", n, float(c.memory_bytes)) for n, c in words.cards]
        budgets += [(f"{amount / GB:.0f} GB", 1, amount) for amount in words.amounts]
        for label, count, capacity in budgets:
            verdict, lines = _against(shapes, words, label, count, capacity)
            verdicts.append(verdict)
            said.extend(lines)
    worst = next((v for v in ("contradicted", "depends") if v in verdicts), "holds")
    return Finding(worst, text, tuple(dict.fromkeys(said)))


def _state_lines(shape: Architecture, method: str) -> list[str]:
    p = shape.parameters / GB
    base = f"{shape.name}: {p:.1f}B parameters, bf16 weights {2 * p:,.0f} GB"
    if method == "full":
        return [
            f"{base}; with gradients {4 * p:,.0f}; with bf16 AdamW {8 * p:,.0f}; mixed-precision AdamW {16 * p:,.0f} "
            f"(DeepSpeed counts 18 bytes: {18 * p:,.0f}) GB, before activations and logits"
        ]
    nf4 = (shape.linear_weights * 0.516 + 2 * (shape.parameters - shape.linear_weights)) / GB
    return [f"{base}; in NF4 {nf4:,.0f} GB (QLoRA)"]


def _work(words: Words, method: str, count: int) -> Workload:
    sharding = "none" if count == 1 else "zero3" if method != "qlora" else "fsdp"
    weights = "nf4-dq" if method == "qlora" else "bf16"
    return Workload(
        method=method, weight_format=weights, micro_batch=words.batch, seq_len=words.context, cards=count,
        sharding=sharding,
    )  # fmt: skip


Against = Callable[[tuple[Architecture, ...], Words, str, int, float], tuple[str, list[str]]]


def _against(
    shapes: tuple[Architecture, ...], words: Words, label: str, count: int, capacity: float
) -> tuple[str, list[str]]:
    """Verdict on one budget: as stated, with the usual recipe, and with the leanest one."""
    method = words.method or "full"
    work = _work(words, method, count)
    usual = [fit.judge(s, work, capacity) for s in shapes]
    lean = [fit.judge(s, fit.lean(work), capacity) for s in shapes]
    lines = [
        f"{method} of {s.name}, {words.batch} x {words.context} tokens, on {label}: "
        f"{v.forecast.device_bytes / memory.GIB:.1f} GiB per card with checkpointing, "
        f"{w.forecast.device_bytes / memory.GIB:.1f} with fused loss and kernels, of {capacity / memory.GIB:.1f}"
        for s, v, w in zip(shapes, usual, lean, strict=True)
    ]
    if words.needs and words.amounts and not words.cards:
        return _lower_bound(shapes[0], work, capacity, lines)
    if words.needs and count == 1 and method != "full":
        return _smaller_card(shapes[0], work, capacity, lines)
    if all(v.fits for v in usual):
        return "holds", lines
    if any(v.fits for v in lean):
        return "depends", [*lines, "it depends on the vocabulary and on whether the loss is fused or chunked"]
    if method == "lora":
        four_bit = fit.judge(shapes[0], fit.lean(_work(words, "qlora", count)), capacity)
        lines.append(
            f"with 4-bit weights (QLoRA) and a fused loss {'it fits' if four_bit.fits else 'it does not fit either'}"
        )
    return "contradicted", [*lines, "it does not fit"]


def _lower_bound(shape: Architecture, work: Workload, amount: float, lines: list[str]) -> tuple[str, list[str]]:
    """``7B LoRA needs 48 GB``; for full fine-tuning the amount is held against the whole state."""
    if work.method == "full":
        pure, mixed = 8.0 * shape.parameters, 16.0 * shape.parameters
        if amount < 0.9 * pure:
            return "contradicted", [
                f"{amount / GB:,.0f} GB hold less than {pure / GB:,.0f} GB, the smallest AdamW state"
            ]
        if amount < 0.9 * mixed:
            return "depends", [
                f"{amount / GB:,.0f} GB is bf16 AdamW without activations; mixed precision needs {mixed / GB:,.0f}"
            ]
        return "holds", lines
    return _smaller_card(shape, work, amount, lines)


def _smaller_card(shape: Architecture, work: Workload, capacity: float, lines: list[str]) -> tuple[str, list[str]]:
    """Is the stated minimum really one? Looks for a smaller card that holds the same with batch 1 and a chunked
    loss.
    """
    small = replace(work, micro_batch=1, loss="chunked", cards=1, sharding="none")
    enough = next((c for c in hardware.cards() if fit.judge(shape, small, c.memory_bytes).fits), None)
    if enough and enough.memory_bytes < 0.85 * capacity:
        return "contradicted", [*lines, f"{enough.name} is enough with batch 1 and a chunked loss"]
    if enough and enough.memory_bytes > 1.15 * capacity:
        return "contradicted", [*lines, f"it needs {enough.name} at least"]
    return "holds", lines
