"""Trainable parameters of LoRA and DoRA, counted as PEFT creates them."""

from __future__ import annotations

from collections.abc import Iterator

from jobs.plan.architecture import Architecture, Linear
from jobs.plan.refusal import PlanError
from jobs.plan.workload import Workload

ALIASES = {
    "q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "o_proj", "gate": "gate_proj",
    "up": "up_proj", "down": "down_proj",
}  # fmt: skip
ATTENTION_FUSED = ("qkv_proj", "query_key_value", "Wqkv", "c_attn", "W_pack", "wqkv")
PARTS = {  # where a family names a module otherwise, or fuses it with others
    "q_proj": (*ATTENTION_FUSED, "q_b_proj"), "k_proj": (*ATTENTION_FUSED, "kv_b_proj"),
    "v_proj": (*ATTENTION_FUSED, "kv_b_proj"), "o_proj": ("dense", "out_proj", "wo", "c_proj"),
    "gate_proj": ("gate_up_proj", "w1", "dense_h_to_4h"),
    "up_proj": ("gate_up_proj", "fc1", "w3", "w1", "c_fc", "dense_h_to_4h"),
    "down_proj": ("fc2", "w2", "dense_4h_to_h", "c_proj"),
}  # fmt: skip


def targets(shape: Architecture, work: Workload) -> Iterator[Linear]:
    """The matrices of one layer that carry an adapter. Raises PlanError for a target the model does not have."""
    if isinstance(work.targets, str):
        yield from shape.adapted()
        return
    have = list(shape.adapted())
    names = {linear.name for linear in have}
    chosen: set[str] = set()
    for name in {ALIASES.get(target, target) for target in work.targets}:
        found = next((n for n in (name, *PARTS.get(name, ())) if n in names), None)
        if found is None and not (name == "gate_proj" and not shape.gated):
            raise PlanError(f"{shape.name} has no module {name}", f"its modules are {', '.join(sorted(names))}")
        chosen |= {found} if found else set()
    yield from (linear for linear in have if linear.name in chosen)


def layer_parameters(shape: Architecture, work: Workload) -> int:
    """r (d_in + d_out) per target (Hu et al. 2021); DoRA adds one magnitude per output (Liu et al. 2024)."""
    magnitude = 1 if work.method == "dora" else 0
    return sum(
        linear.count * (work.rank * (linear.inputs + linear.outputs) + magnitude * linear.outputs)
        for linear in targets(shape, work)
    )


def trainable(shape: Architecture, work: Workload) -> int:
    """Parameters that receive a gradient."""
    if not work.adapters:
        return shape.parameters
    count = shape.layers * layer_parameters(shape, work)
    if work.adapt_head:
        count += work.rank * (shape.hidden + shape.vocab)
    return count + saved(shape, work)


def saved(shape: Architecture, work: Workload) -> int:
    """Parameters of the whole modules that PEFT copies and trains (``modules_to_save``): embedding and head.

    Tied weights are copied twice: the copies are separate tensors.
    """
    return 2 * shape.vocab * shape.hidden if work.save_embeddings else 0
