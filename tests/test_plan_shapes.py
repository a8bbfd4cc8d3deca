"""Shapes against transformers itself: every parameter of every known family is counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import configs
from jobs.plan import adapter, architecture, catalogue, families, table
from jobs.plan.refusal import PlanError
from jobs.plan.workload import Workload

H: dict[str, Any] = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 128, "intermediate_size": 96,
}  # fmt: skip
GROUPED = {**H, "num_key_value_heads": 2}
NARROW = {k: v for k, v in H.items() if k != "intermediate_size"}
TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
FAMILIES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("llama", GROUPED),
    ("llama", {**GROUPED, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    ("mistral", GROUPED),
    ("mixtral", {**GROUPED, "num_local_experts": 4}),
    ("qwen2", GROUPED),
    ("qwen3", {**GROUPED, "head_dim": 32}),
    ("qwen2_moe", {**GROUPED, "num_experts": 4, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 48}),
    ("qwen3_moe", {**GROUPED, "num_experts": 4, "moe_intermediate_size": 32, "head_dim": 16}),
    ("gemma", {**H, "num_key_value_heads": 1, "head_dim": 32}),
    ("gemma2", {**GROUPED, "head_dim": 32}),
    ("gemma3_text", {**GROUPED, "head_dim": 32}),
    ("phi", H),
    ("phi3", GROUPED),
    ("starcoder2", GROUPED),
    ("gpt_neox", H),
    ("falcon", {**NARROW, "multi_query": True, "new_decoder_architecture": False}),
    ("falcon", {**NARROW, "num_kv_heads": 2, "new_decoder_architecture": True}),
    ("bloom", {"hidden_size": 64, "n_layer": 2, "n_head": 4, "vocab_size": 128}),
    ("mpt", {"d_model": 64, "n_heads": 4, "n_layers": 2, "vocab_size": 128, "no_bias": True}),
    ("gpt2", {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 128, "n_positions": 64}),
    ("opt", {**NARROW, "ffn_dim": 96, "word_embed_proj_dim": 64, "max_position_embeddings": 64}),
    ("stablelm", GROUPED),
    ("olmo2", GROUPED),
    ("olmo3", GROUPED),
    ("olmoe", {**GROUPED, "num_experts": 4}),
    ("granite", GROUPED),
    ("cohere", GROUPED),
    ("smollm3", GROUPED),
    ("seed_oss", {**GROUPED, "head_dim": 16}),
    ("gpt_oss", {**GROUPED, "head_dim": 16, "num_local_experts": 4}),
    (
        "deepseek_v3",
        {
            **H, "n_routed_experts": 4, "moe_intermediate_size": 32, "n_shared_experts": 1, "first_k_dense_replace": 0,
            "q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
            "n_group": 1, "topk_group": 1,
        },
    ),
)  # fmt: skip


@pytest.mark.parametrize(("kind", "config"), FAMILIES, ids=[f"{kind}-{i}" for i, (kind, _) in enumerate(FAMILIES)])
def test_every_parameter_of_a_family_is_counted(kind: str, config: dict[str, Any]) -> None:
    import torch
    import transformers

    made = transformers.AutoConfig.for_model(kind, **{**config, **TOKENS})
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(made)
    real = sum({id(p): p.numel() for p in model.parameters()}.values())
    shape = families.of(made.to_dict(), kind)
    assert shape.parameters == real
    assert shape.assumptions == ()


def test_catalogued_models_have_the_size_their_name_says() -> None:
    off = {}
    for name, config in yaml.safe_load(configs.path("models.yaml").read_text(encoding="utf-8")).items():
        shape, stated = families.of(config, name), catalogue.size(name)
        assert shape.assumptions == (), name
        # names are marketing: an embedding may weigh a fifth more than the name counts
        if stated and not 0.8 < shape.parameters / stated < 1.32:
            off[name] = shape.parameters
    assert off == {}


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "Llama-3.1-8B"),
        ("Qwen/Qwen2.5-7B-Instruct", "Qwen2.5-7B"),
        ("llama-2-13b-chat-hf", "Llama-2-13B"),
        ("unsloth/gemma-2-9b-it-bnb-4bit", "Gemma-2-9B"),
    ],
)
def test_names_meet_their_model(asked: str, found: str) -> None:
    assert catalogue.named(asked).name == found


@pytest.mark.parametrize("name", ["Llama-2-7B", "Qwen2.5-0.5B", "Gemma-7B", "Falcon-7B", "Phi-2", "Mixtral-8x7B"])
def test_a_layout_is_read_off_the_parameter_count(name: str) -> None:
    """A table row states sizes and a parameter count, but neither gates, nor tying, nor head size, nor experts."""
    real = catalogue.named(name)
    guess = architecture.from_counts(
        "row", real.hidden, real.layers, real.heads, real.kv_heads, real.intermediate, real.vocab, real.parameters
    )
    assert guess.parameters == pytest.approx(real.parameters, rel=0.002)
    assert (guess.gated, guess.tied, guess.head_dim, guess.experts) == (
        real.gated,
        real.tied,
        real.head_dim,
        real.experts,
    )


def test_text_parts_of_wrapped_models_are_found(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "some_vlm", "text_config": {"model_type": "llama", **H}})
    )
    assert families.read(tmp_path).hidden == 64


def test_a_size_without_a_shape_is_assumed_and_said() -> None:
    shape = catalogue.named("somebody/Unheard-9B")
    assert shape.parameters == pytest.approx(9e9, rel=0.2)
    assert "only the size is known" in shape.assumptions[0]
    with pytest.raises(PlanError, match="is not known"):
        catalogue.named("somebody/Unheard")


@pytest.mark.parametrize("name", sorted(yaml.safe_load(configs.path("models.yaml").read_text(encoding="utf-8"))))
def test_usual_target_names_reach_every_catalogued_model(name: str) -> None:
    shape = catalogue.named(name)
    attention = list(adapter.targets(shape, Workload(targets=("q", "v"))))
    assert attention and all(linear.role == "qkv" for linear in attention)
    if not shape.experts:
        every = list(adapter.targets(shape, Workload(targets=("q", "k", "v", "o", "gate", "up", "down"))))
        assert every == list(shape.adapted())


def test_a_stack_that_unties_the_head_holds_it_twice() -> None:
    row = {"model": "Gemma-2-9B", "method": "lora", "source": "Lightning-AI/litgpt README"}
    apart, shared = table.shape(row), table.shape({**row, "source": "somebody"})
    assert apart.head_parameters == shared.vocab * shared.hidden and shared.head_parameters == 0
    assert table.shape({**row, "model": "Llama-2-7B"}) == table.shape({"model": "Llama-2-7B"})
