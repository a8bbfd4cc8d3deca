"""Tokens per second and hours, from operations, traffic and links.

Time of one micro-step = compute + what of the communication is not hidden behind it, and never less than the time in
which the host can launch the kernels. Operations per token and parameter: forward 2, backward 4 (2 where weights are
frozen), recomputation 2 more; causal attention s q L per token for each of the two products (Korthikanti et al. 2022,
halved by the causal mask).
"""

from __future__ import annotations

from dataclasses import dataclass

from jobs.plan import activation, adapter, weights
from jobs.plan.architecture import Architecture
from jobs.plan.hardware import Card
from jobs.plan.workload import Workload

# Share of the dense peak that large matrix products reach inside a training step, by generation. Public readings: A100
# 0.70-0.80, H100 0.65-0.80 (power-limited), consumer and workstation cards about 0.6
MATMUL_SHARE = {"Volta": 0.55, "Turing": 0.50, "Ampere": 0.75, "Ada": 0.65, "Hopper": 0.68, "Blackwell": 0.60}
GEFORCE_ADA_SHARE = 0.90  # its rate with fp32 accumulation is half the silicon's: 160-166 of 165 TFLOPS measured
# the same for causal flash attention, forward and backward together: v2 on A100 about 0.5, v1 0.35; v2 on H100 about
# 0.3
ATTENTION_SHARE = {"Volta": 0.15, "Turing": 0.15, "Ampere": 0.42, "Ada": 0.40, "Hopper": 0.22, "Blackwell": 0.25}
# how often each byte kept for backward moves, per pass: unfused norms, rotations, activations, dropouts and residuals
TRAFFIC = 6.0
FLOAT8_GAIN = 1.2  # over bf16, whole step (torchao and llm-foundry report 1.15-1.5)
LAUNCH_S = 1.3e-3  # per layer and pass: the host launches a layer's kernels no faster (eager PyTorch)
ADAPTER_LAUNCH = 1.35  # adapters add kernels
ZERO3_LAUNCH = 2.8  # gather and release hooks per module
LINK_SHARE = 0.6  # of the nominal one-direction rate that collectives reach
HIDDEN = 0.7  # share of communication that can run behind compute
# per card between nodes where the network is not stated: 200 Gbit/s ports with Ampere, 400 with Hopper and later
NETWORK_BYTES_PER_S = {"Volta": 12.5e9, "Turing": 3e9, "Ampere": 25e9, "Ada": 12.5e9, "Hopper": 50e9, "Blackwell": 50e9}
CARDS_PER_NODE = 8
# bytes moved to expand one 4- or 8-bit element: bitsandbytes' kernel reads half a byte and writes two, which the
# product reads; GPTQ's PyTorch path unpacks through 32-bit integers
EXPAND_BYTES = {"nf4": 5.0, "nf4-dq": 5.5, "int8": 4.0, "gptq-int4": 25.0, "gptq-int8": 20.0, "awq-int4": 10.0}


@dataclass(frozen=True, slots=True)
class Pace:
    """Forecast speed. ``share`` is the achieved share of the card's dense peak without counting recomputation."""

    tokens_per_s_per_card: float
    low: float
    high: float
    step_s: float  # one micro-step
    compute_s: float
    expand_s: float
    communication_s: float
    launch_s: float
    share: float
    limit: str


def flops_per_token(shape: Architecture, work: Workload) -> tuple[float, float, float]:
    """Operations per token: useful ones (without recomputation), executed in matrices, executed in causal attention."""
    linear, head = shape.active_linear_weights, shape.vocab * shape.hidden
    passes = 4.0 if work.adapters else 6.0
    again = {"full": 2.0, "selective": 0.4}.get(work.checkpointing, 0.0)
    scores = 2.0 * work.seq_len * shape.query_width * shape.layers  # both products, half masked
    attention = 3.5 + (1.0 if work.checkpointing == "full" else 0.0)  # backward of flash attention: 2.5 forwards
    useful = passes * (linear + head) + 3.0 * scores
    return useful, passes * (linear + head) + again * linear, attention * scores


def pace(shape: Architecture, work: Workload, card: Card) -> Pace:
    """Speed of one card of such cards."""
    model = work.tensor_parallel * work.pipeline_parallel
    tokens = work.tokens
    useful, matrices, attention = flops_per_token(shape, work)
    gain = FLOAT8_GAIN if work.float8_compute and card.fp8 else 1.0
    share = GEFORCE_ADA_SHARE if card.geforce and card.generation == "Ada" else MATMUL_SHARE[card.generation]
    seconds_per_token = matrices / (share * gain) + attention / ATTENTION_SHARE[card.generation]
    compute = tokens * seconds_per_token / card.matmul_flops / model + _traffic(shape, work, card) / model
    expand = _expand(shape, work, card)
    launch = _launch(shape, work)
    communication = _communication(shape, work, card)
    busy = max(compute + expand, launch)
    step = busy + max(communication - HIDDEN * busy, (1 - HIDDEN) * communication) + _update(shape, work, card)
    parts = {"arithmetic": compute, "expanding weights": expand, "links": communication, "kernel launches": launch}
    rate = tokens / step / model
    return Pace(
        rate, rate * 0.7, rate * 1.3, step, compute, expand, communication, launch,
        share=useful * rate / card.matmul_flops,
        limit=max(parts, key=lambda name: parts[name]),
    )  # fmt: skip


def _traffic(shape: Architecture, work: Workload, card: Card) -> float:
    """Seconds per micro-step of the operations that memory bandwidth limits."""
    passes = 3 if work.checkpointing == "full" else 2
    return passes * TRAFFIC * work.tokens * shape.layers * activation.per_token(shape, work) / card.memory_bytes_per_s


def _expand(shape: Architecture, work: Workload, card: Card) -> float:
    """Seconds per micro-step to expand compressed weights: forward, backward and, with checkpointing, once more."""
    passes = 3 if work.checkpointing == "full" else 2
    return passes * shape.linear_weights * EXPAND_BYTES.get(work.weight_format, 0.0) / card.memory_bytes_per_s


def _launch(shape: Architecture, work: Workload) -> float:
    passes = 3 if work.checkpointing == "full" else 2
    factor = ADAPTER_LAUNCH if work.adapters else 1.0
    return shape.layers * passes * LAUNCH_S * factor * (ZERO3_LAUNCH if work.sharding == "zero3" else 1.0)


def _communication(shape: Architecture, work: Workload, card: Card) -> float:
    """Seconds per micro-step on the slowest link of a ring."""
    n = work.shards
    if n <= 1 or work.sharding == "none":
        return 0.0
    trained = adapter.trainable(shape, work)
    accumulation = work.accumulation or 1
    gradient = 2.0 * 2.0 * trained / accumulation  # all-reduce moves twice the data
    if work.sharding in ("zero3", "fsdp"):
        gathers = 3 if work.checkpointing == "full" else 2
        stored = weights.total(shape, work) / (2 if work.weight_format == "fp32" else 1)
        gradient = gathers * stored + 2.0 * trained
    return gradient * (n - 1) / n / (link_bytes_per_s(work, card) * LINK_SHARE)


def link_bytes_per_s(work: Workload, card: Card) -> float:
    """Nominal rate at which one card of a ring receives.

    Rings run over every network port of a node at once, so between nodes the ports of a node add up. GeForce cards have
    no peer-to-peer over PCIe in stock drivers: data bounces through host memory, and two such cards usually share the
    lanes.
    """
    inside = card.link_bytes_per_s
    if not card.nvlink_bytes_per_s and card.geforce:
        inside /= 4
    if work.cards <= CARDS_PER_NODE:
        return inside
    port = NETWORK_BYTES_PER_S[card.generation]
    return min(inside, port * CARDS_PER_NODE)


def _update(shape: Architecture, work: Workload, card: Card) -> float:
    """Seconds per micro-step of the optimiser step: each state read and written."""
    split = work.shards if work.sharding in ("zero1", "zero2", "zero3", "fsdp") else 1
    return 28.0 * adapter.trainable(shape, work) / split / card.memory_bytes_per_s / (work.accumulation or 1)
