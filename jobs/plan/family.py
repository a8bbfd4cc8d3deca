"""What config.json does not say: gates, biases, norms and module names of each model family of transformers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Family:
    """What a family of models adds to its config.json."""

    gated: bool = True
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    norms: int = 2  # of width hidden, per layer
    norm_bias: bool = False  # LayerNorm with a bias; else RMSNorm, or LayerNorm without one
    rms_norm: bool = True
    qk_norm: str = "none"  # "head": one norm of head_dim for q and k each; "full": of their whole width
    tied: bool = False  # default of tie_word_embeddings
    qkv: str = ""  # name of the fused q, k, v product, if fused
    gate_up: str = ""  # name of the fused gate and up product, if fused
    names: tuple[str, str, str, str] = ("o_proj", "gate_proj", "up_proj", "down_proj")
    positions: int = 0  # learned position table: 1 = max_position_embeddings rows, 2 = two more (OPT)
    sinks: bool = False  # one learned value per head (gpt-oss)
    scalars: int = 0  # single learned values per layer (Apertus' activation)
    embedding_norm: bool = False


LLAMA = Family()
NEOX = Family(
    gated=False, qkv_bias=True, out_bias=True, mlp_bias=True, norm_bias=True, rms_norm=False, qkv="query_key_value",
    names=("dense", "", "dense_h_to_4h", "dense_4h_to_h"),
)  # fmt: skip
FAMILIES = {
    "llama": LLAMA,
    "mistral": LLAMA,
    "mixtral": LLAMA,
    "granite": LLAMA,
    "yi": LLAMA,
    "internlm2": Family(qkv="wqkv", names=("wo", "w1", "w3", "w2")),
    "baichuan": Family(qkv="W_pack"),
    "qwen": Family(qkv_bias=True, qkv="c_attn", names=("c_proj", "w2", "w1", "c_proj")),
    "qwen2": Family(qkv_bias=True),
    "qwen2_moe": Family(qkv_bias=True),
    "qwen3": Family(qk_norm="head"),
    "qwen3_moe": Family(qk_norm="head"),
    "olmo2": Family(qk_norm="full"),
    "olmo3": Family(qk_norm="full"),
    "olmoe": Family(qk_norm="full"),
    "gemma": Family(tied=True),
    "gemma2": Family(tied=True, norms=4),
    "gemma3_text": Family(tied=True, norms=4, qk_norm="head"),
    "phi3": Family(qkv="qkv_proj", gate_up="gate_up_proj"),
    "phi": Family(
        gated=False, qkv_bias=True, out_bias=True, mlp_bias=True, head_bias=True, norms=1, norm_bias=True,
        rms_norm=False,
        names=("dense", "", "fc1", "fc2"),
    ),
    "starcoder2": Family(
        gated=False, qkv_bias=True, out_bias=True, mlp_bias=True, norm_bias=True, rms_norm=False, tied=True,
        names=("o_proj", "", "c_fc", "c_proj"),
    ),
    "gpt_neox": NEOX,
    "falcon": Family(
        gated=False, norms=1, norm_bias=True, rms_norm=False, tied=True, qkv="query_key_value",
        names=("dense", "", "dense_h_to_4h", "dense_4h_to_h"),
    ),
    "bloom": Family(
        gated=False, qkv_bias=True, out_bias=True, mlp_bias=True, norm_bias=True, rms_norm=False, tied=True,
        qkv="query_key_value", names=("dense", "", "dense_h_to_4h", "dense_4h_to_h"), embedding_norm=True,
    ),
    "mpt": Family(
        gated=False, rms_norm=False, tied=True, qkv="Wqkv", names=("out_proj", "", "up_proj", "down_proj"),
    ),
    "gpt2": Family(
        gated=False, qkv_bias=True, out_bias=True, mlp_bias=True, norm_bias=True, rms_norm=False, tied=True,
        qkv="c_attn", names=("c_proj", "", "c_fc", "c_proj"), positions=1,
    ),
    "opt": Family(
        gated=False, qkv_bias=True, out_bias=True, mlp_bias=True, norm_bias=True, rms_norm=False, tied=True,
        names=("out_proj", "", "fc1", "fc2"), positions=2,
    ),
    "stablelm": Family(norm_bias=True, rms_norm=False),
    "chatglm": Family(
        qkv_bias=True, qkv="query_key_value", gate_up="dense_h_to_4h", names=("dense", "", "", "dense_4h_to_h"),
    ),
    "apertus": Family(gated=False, qk_norm="head", scalars=2),
    "cohere": Family(norms=1, rms_norm=False, tied=True),
    "smollm3": LLAMA,
    "deepseek_v2": LLAMA,
    "deepseek_v3": LLAMA,
    "seed_oss": Family(qkv_bias=True),
    "gpt_oss": Family(qkv_bias=True, out_bias=True, mlp_bias=True, sinks=True),
}  # fmt: skip
