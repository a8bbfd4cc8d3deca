"""From a transformers ``config.json`` to an Architecture: which matrices each model family has.

A family is what config.json does not say: whether the MLP is gated, which products carry a bias, how many norms a layer
has, how modules are named. Unknown families take the generic path (a Llama layout) and the result says so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jobs.plan.architecture import Architecture, Linear
from jobs.plan.family import FAMILIES, LLAMA, Family
from jobs.plan.refusal import PlanError

KEYS = {
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "layers": ("num_hidden_layers", "num_layers", "n_layer", "n_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "vocab": ("vocab_size", "padded_vocab_size"),
}


def read(path: Path) -> Architecture:
    """The architecture of the model in a folder, or of a config.json. Raises PlanError."""
    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise PlanError(f"{file}: {error.strerror}", "name a model folder or its config.json") from None
    except ValueError as error:
        raise PlanError(f"{file} is not JSON: {error}", "name a transformers config.json") from None
    if not isinstance(config, dict):
        raise PlanError(f"{file} holds no JSON object", "name a transformers config.json")
    return of(config, file.parent.name if file.name == "config.json" else file.stem)


def of(config: Mapping[str, Any], name: str = "model") -> Architecture:
    """The architecture that a parsed config.json describes. Raises PlanError where it lacks a size."""
    inner = config.get("text_config")
    if isinstance(inner, Mapping):  # vision-language wrappers: only the text part is trained by this product
        config = {"tie_word_embeddings": config.get("tie_word_embeddings", False), **inner}
    kind = str(config.get("model_type", ""))
    family = FAMILIES.get(kind, LLAMA)
    notes: tuple[str, ...] = (
        () if kind in FAMILIES else (f"family {kind or 'not named'} is not known: a Llama layout is assumed",)
    )
    if config.get("first_k_dense_replace"):
        notes = (*notes, f"the first {config['first_k_dense_replace']} dense layers are counted like the others")
    sizes = {field: _size(config, name, keys) for field, keys in KEYS.items()}
    hidden, heads = sizes["hidden"], sizes["heads"]
    if not config.get("head_dim") and hidden % heads:
        raise PlanError(
            f"{name}: hidden size {hidden} is not a multiple of {heads} heads", "add head_dim to config.json"
        )
    head_dim = int(config.get("head_dim") or config.get("kv_channels") or hidden // heads)
    kv_heads = _kv_heads(config, heads)
    inter = _intermediate(config, hidden)
    if kind == "qwen":
        inter //= 2  # the first Qwen states gate and up together
    experts, active, linears = _layers(config, family, hidden, heads, kv_heads, head_dim, inter)
    positions = int(config.get("max_position_embeddings") or config.get("n_positions") or 0)
    return Architecture(
        name, hidden, sizes["layers"], heads, kv_heads, head_dim, inter, sizes["vocab"], linears,
        norms=_norms(family, config, hidden, heads, kv_heads, head_dim),
        tied=bool(config.get("tie_word_embeddings", family.tied)),
        gated=family.gated,
        rms_norm=family.rms_norm,
        learned_positions=positions + (2 if family.positions == 2 else 0) if family.positions else 0,
        final_norm=hidden * (2 if family.norm_bias else 1) * (2 if family.embedding_norm else 1),
        head_bias=family.head_bias,
        experts=experts,
        active_experts=active,
        max_positions=positions or None,
        score_cap=bool(config.get("attn_logit_softcapping")),
        logit_cap=bool(config.get("final_logit_softcapping")),
        assumptions=notes,
    )  # fmt: skip


def _size(config: Mapping[str, Any], name: str, keys: tuple[str, ...]) -> int:
    for key in keys:
        value = config.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
        if value is not None:
            raise PlanError(f"{name}: config.json has {key} = {value!r}", "it must be a positive whole number")
    raise PlanError(f"{name}: config.json has no {keys[0]}", f"it must state one of {', '.join(keys)}")


def _kv_heads(config: Mapping[str, Any], heads: int) -> int:
    attn = config.get("attn_config")
    if isinstance(attn, Mapping) and attn.get("kv_n_heads"):
        return int(attn["kv_n_heads"])
    if config.get("multi_query") and not config.get("new_decoder_architecture"):
        return 1
    for key in ("num_key_value_heads", "num_kv_heads", "multi_query_group_num"):
        if config.get(key):
            return int(config[key])
    return heads


def _intermediate(config: Mapping[str, Any], hidden: int) -> int:
    for key in ("intermediate_size", "ffn_hidden_size", "ffn_dim", "n_inner"):
        if config.get(key):
            return int(config[key])
    return hidden * int(config.get("expansion_ratio", 4))


def _norms(family: Family, config: Mapping[str, Any], hidden: int, heads: int, kv_heads: int, head_dim: int) -> int:
    per_norm = hidden * (2 if family.norm_bias else 1)
    count = family.norms + (1 if config.get("new_decoder_architecture") else 0)
    extra = {"none": 0, "head": 2 * head_dim, "full": (heads + kv_heads) * head_dim}[family.qk_norm]
    latent = int(config.get("kv_lora_rank") or 0) + int(config.get("q_lora_rank") or 0)  # each has a norm
    return count * per_norm + extra + (heads if family.sinks else 0) + family.scalars + latent


def _layers(
    config: Mapping[str, Any], family: Family, hidden: int, heads: int, kv_heads: int, head_dim: int, inter: int
) -> tuple[int, int, tuple[Linear, ...]]:
    """Number of experts, active experts, and the matrices of one layer."""
    if config.get("kv_lora_rank"):
        attention = _latent_attention(config, hidden, heads)
    else:
        attention = _attention(config, family, hidden, heads * head_dim, kv_heads * head_dim)
    experts = int(config.get("num_local_experts") or config.get("num_experts") or config.get("n_routed_experts") or 0)
    mlp_bias = bool(config.get("mlp_bias", family.mlp_bias))
    if not experts:
        return 0, 0, (*attention, *_mlp(family, hidden, inter, mlp_bias))
    active = int(config.get("num_experts_per_tok") or config.get("experts_per_token") or 2)
    width = int(config.get("moe_intermediate_size") or inter)
    shared = int(config.get("shared_expert_intermediate_size") or (config.get("n_shared_experts") or 0) * width)
    gate = (Linear("shared_expert_gate", hidden, 1),) if config.get("shared_expert_intermediate_size") else ()
    return experts, active, (
        *attention,
        Linear("router", hidden, experts, bias=family.sinks, expert=True),
        Linear("gate_proj", hidden, width, mlp_bias, experts, expert=True, role="up"),
        Linear("up_proj", hidden, width, mlp_bias, experts, expert=True, shares=True, role="up"),
        Linear("down_proj", width, hidden, mlp_bias, experts, expert=True, role="down"),
        *(_mlp(family, hidden, shared, False) if shared else ()),
        *gate,
    )  # fmt: skip


def _attention(config: Mapping[str, Any], family: Family, hidden: int, query: int, kv: int) -> tuple[Linear, ...]:
    bias = bool(config.get("attention_bias", family.qkv_bias) or config.get("add_qkv_bias"))
    out_bias = bool(config.get("attention_out_bias", config.get("attention_bias", family.out_bias)))
    if family.qkv_bias and not family.out_bias:
        out_bias = False
    out = Linear(family.names[0], query, hidden, out_bias, role="out")
    if family.qkv:
        return Linear(family.qkv, hidden, query + 2 * kv, bias, role="qkv"), out
    return (
        Linear("q_proj", hidden, query, bias, role="qkv"),
        Linear("k_proj", hidden, kv, bias, shares=True, role="qkv"),
        Linear("v_proj", hidden, kv, bias, shares=True, role="qkv"),
        out,
    )


def _latent_attention(config: Mapping[str, Any], hidden: int, heads: int) -> tuple[Linear, ...]:
    """Multi-head latent attention (DeepSeek-V2, 2024): queries and keys/values pass a narrow latent."""
    nope, rope = int(config["qk_nope_head_dim"]), int(config["qk_rope_head_dim"])
    value, latent = int(config["v_head_dim"]), int(config["kv_lora_rank"])
    narrow = config.get("q_lora_rank")
    query = (
        (Linear("q_a_proj", hidden, int(narrow)), Linear("q_b_proj", int(narrow), heads * (nope + rope)))
        if narrow
        else (Linear("q_proj", hidden, heads * (nope + rope)),)
    )
    return (
        *query,
        Linear("kv_a_proj_with_mqa", hidden, latent + rope),
        Linear("kv_b_proj", latent, heads * (nope + value)),
        Linear("o_proj", heads * value, hidden, role="out"),
    )


def _mlp(family: Family, hidden: int, inter: int, bias: bool) -> tuple[Linear, ...]:
    _, gate, up, down = family.names
    if family.gate_up:
        return Linear(family.gate_up, hidden, 2 * inter, bias, role="up"), Linear(
            down, inter, hidden, bias, role="down"
        )
    first = (Linear(gate, hidden, inter, bias, role="up"),) if family.gated else ()
    return (
        *first,
        Linear(up, hidden, inter, bias, shares=family.gated, role="up"),
        Linear(down, inter, hidden, bias, role="down"),
    )
