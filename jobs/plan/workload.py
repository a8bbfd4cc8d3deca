"""What is asked of the cards: method, formats, lengths, sharding. Every default is a stated choice."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.plan.refusal import PlanError

METHODS = ("full", "lora", "dora", "qlora")
WEIGHT_FORMATS = ("fp32", "bf16", "fp16", "fp8", "int8", "nf4", "nf4-dq", "gptq-int8", "gptq-int4", "awq-int4")
OPTIMIZERS = ("adamw", "adamw-fp32", "adamw-bf16", "adamw-8bit", "paged-adamw-8bit", "paged-adamw", "adafactor", "sgd")
CHECKPOINTING = ("none", "selective", "full")
ATTENTION = ("flash", "sdpa", "eager")
LOSSES = ("unfused", "chunked", "fused")
SHARDINGS = ("none", "ddp", "zero1", "zero2", "zero3", "fsdp")
KERNELS = ("plain", "fused")
OFFLOADS = ("none", "optimizer", "all")
ATTENTION_QKV = ("q_proj", "k_proj", "v_proj")


@dataclass(frozen=True, slots=True)
class Workload:
    """One training configuration on identical cards. ``seq_len`` is the longest sequence, padded or packed, in
    tokens.
    """

    method: str = "lora"
    weight_format: str = "bf16"
    optimizer: str = "adamw"
    rank: int = 16
    targets: tuple[str, ...] | str = "all-linear"
    adapt_head: bool = False  # an adapter on the output head too
    save_embeddings: bool = False  # modules_to_save: embedding and head trained whole
    adapter_bytes: int = 4  # PEFT keeps adapters in fp32 (autocast_adapter_dtype); 2 where all is bf16
    micro_batch: int = 1
    seq_len: int = 2048
    accumulation: int | None = None
    checkpointing: str = "full"
    attention: str = "sdpa"
    loss: str = "unfused"
    sharding: str = "none"
    cards: int = 1
    nodes: int = 1
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    context_parallel: int = 1
    offload: str = "none"
    offload_activations: bool = False
    in_backward: bool = False  # the optimiser steps as each gradient appears
    compute: str = "16-bit"  # what activations are stored in; "fp32" on a CPU or with precision: fp32
    upcast_unquantized: bool = False  # prepare_model_for_kbit_training: embedding, head and norms to fp32
    varying_lengths: bool = False  # batches differ in length, so the allocator fragments
    float8_compute: bool = False
    kernels: str = "plain"  # "fused": norms, rotations, gated MLP and adapters in fused kernels (Unsloth, Liger)
    expandable_segments: bool = False  # PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: hardly any fragmentation

    def __post_init__(self) -> None:
        for field, known in CHOICES.items():
            if getattr(self, field) not in known:
                raise PlanError(f"{field} {getattr(self, field)!r} is not known", f"choose one of {', '.join(known)}")
        for field, most in LIMITS.items():
            value = getattr(self, field)
            if value is not None and not 1 <= value <= most:
                raise PlanError(f"{field} is {value}", f"it must lie between 1 and {most:,}")
        _check_together(self)

    @property
    def tokens(self) -> int:
        """Tokens of one micro-batch on one card."""
        return self.micro_batch * max(1, self.seq_len // self.context_parallel)

    @property
    def adapters(self) -> bool:
        return self.method != "full"

    @property
    def quantized(self) -> bool:
        return self.weight_format in ("int8", "nf4", "nf4-dq", "gptq-int8", "gptq-int4", "awq-int4")

    @property
    def deepspeed(self) -> bool:
        return self.sharding.startswith("zero")

    @property
    def shards(self) -> int:
        """Cards among which parameters, gradients or states are split."""
        return max(1, self.cards // (self.tensor_parallel * self.pipeline_parallel))


def _check_together(work: Workload) -> None:
    """Contradictory settings."""
    if work.method == "full" and work.quantized:
        raise PlanError(
            f"full fine-tuning of {work.weight_format} weights", "compressed weights cannot train: use qlora, or bf16"
        )
    if work.method == "qlora" and not work.quantized:
        raise PlanError(
            f"qlora with {work.weight_format} weights",
            "qlora needs nf4, nf4-dq, int8, gptq or awq weights; else use lora",
        )
    if work.cards % (work.tensor_parallel * work.pipeline_parallel):
        raise PlanError(
            f"{work.cards} cards cannot be split into {work.tensor_parallel} x {work.pipeline_parallel}",
            "cards must be a multiple of tensor x pipeline parallel",
        )
    if work.offload != "none" and work.sharding in ("none", "ddp"):
        raise PlanError(f"offload {work.offload} without sharding", "offload needs zero2, zero3 or fsdp")


CHOICES = {
    "method": METHODS, "weight_format": WEIGHT_FORMATS, "optimizer": OPTIMIZERS, "checkpointing": CHECKPOINTING,
    "attention": ATTENTION, "loss": LOSSES, "sharding": SHARDINGS, "offload": OFFLOADS, "kernels": KERNELS,
    "compute": ("16-bit", "fp32"),
}  # fmt: skip
LIMITS = {
    "rank": 65536, "micro_batch": 65536, "seq_len": 16_777_216, "accumulation": 1_000_000, "cards": 1_000_000,
    "nodes": 100_000, "tensor_parallel": 1024, "pipeline_parallel": 1024, "context_parallel": 1024,
}  # fmt: skip
