"""The arithmetic of a forecast: sums, directions, and what each method, optimiser and sharding holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.plan import catalogue, fit, hardware, knobs, memory, speed, state, template, weights
from jobs.plan.correction import Correction
from jobs.plan.form import PlanForm
from jobs.plan.lengths import Lengths
from jobs.plan.workload import Workload

LLAMA = catalogue.named("Llama-3.1-8B")
QWEN = catalogue.named("Qwen2.5-7B")
A100 = hardware.named("A100 80GB")
KNOBS = st.fixed_dictionaries(
    {
        "micro_batch": st.sampled_from((1, 2, 8)),
        "seq_len": st.sampled_from((256, 2048, 16384)),
        "checkpointing": st.sampled_from(("none", "selective", "full")),
        "attention": st.sampled_from(("sdpa", "eager")),
        "loss": st.sampled_from(("unfused", "chunked", "fused")),
        "kernels": st.sampled_from(("plain", "fused")),
        "optimizer": st.sampled_from(("adamw", "adamw-fp32", "adamw-8bit", "paged-adamw-8bit", "adafactor", "sgd")),
        "rank": st.sampled_from((4, 64)),
        "save_embeddings": st.booleans(),
    }
)
METHODS = st.sampled_from(
    (("full", "bf16"), ("full", "fp32"), ("lora", "bf16"), ("dora", "bf16"), ("qlora", "nf4"), ("qlora", "gptq-int4"))
)
SHARDING = st.sampled_from((("none", 1), ("ddp", 4), ("zero1", 4), ("zero2", 8), ("zero3", 8), ("fsdp", 2)))


def device(work: Workload) -> float:
    return memory.forecast(LLAMA, work).device_bytes


@settings(deadline=None, max_examples=150)
@given(METHODS, SHARDING, KNOBS)
def test_components_sum_to_the_figures(
    method: tuple[str, str], spread: tuple[str, int], given_knobs: dict[str, Any]
) -> None:
    work = Workload(method=method[0], weight_format=method[1], sharding=spread[0], cards=spread[1], **given_knobs)
    found = memory.forecast(QWEN, work)
    assert sum(c.bytes for c in found.components) == pytest.approx(found.device_bytes)
    assert all(c.bytes >= 0 for c in found.components)
    assert found.allocated_bytes <= found.reserved_bytes <= found.device_bytes
    assert 0 <= found.low_bytes < found.device_bytes < found.high_bytes
    assert found.allocated_bytes == max(found.moments.values())


@settings(deadline=None, max_examples=60)
@given(METHODS, KNOBS)
def test_more_tokens_never_need_less(method: tuple[str, str], given_knobs: dict[str, Any]) -> None:
    work = Workload(method=method[0], weight_format=method[1], **given_knobs)
    assert device(replace(work, seq_len=work.seq_len * 2)) >= device(work)
    assert device(replace(work, micro_batch=work.micro_batch * 2)) >= device(work)
    assert device(replace(work, loss="fused")) <= device(replace(work, loss="unfused"))


@pytest.mark.parametrize(
    ("fmt", "per_weight"),
    [("bf16", 2), ("nf4", 0.5625), ("nf4-dq", 0.5 + 1 / 64 + 4 / 16384), ("int8", 1), ("fp32", 4)],
)
def test_only_layer_matrices_are_compressed(fmt: str, per_weight: float) -> None:
    work = Workload(method="qlora" if fmt.startswith(("nf4", "int8")) else "full", weight_format=fmt)
    other = LLAMA.parameters - LLAMA.linear_weights
    assert weights.total(LLAMA, work) == LLAMA.linear_weights * per_weight + other * (4 if fmt == "fp32" else 2)
    upcast = replace(work, upcast_unquantized=True)
    assert weights.total(LLAMA, upcast) - weights.total(LLAMA, work) == (other * 2 if work.quantized else 0)


@pytest.mark.parametrize(
    ("optimizer", "sharding", "moments"),
    [
        ("adamw", "none", 4),
        ("adamw-fp32", "none", 8),
        ("adamw-8bit", "none", 2 + 1 / 32),
        ("sgd", "none", 0),
        ("adamw", "zero2", 12),
    ],
)
def test_optimiser_values_per_parameter(optimizer: str, sharding: str, moments: float) -> None:
    work = Workload(method="full", optimizer=optimizer, sharding=sharding, cards=1 if sharding == "none" else 4)
    (group,) = state.groups(LLAMA, work)
    assert group.optimizer_bytes == moments


def test_zero_divides_what_it_says() -> None:
    def parts(sharding: str, cards: int) -> memory.Parts:
        return memory.parts(LLAMA, Workload(method="full", sharding=sharding, cards=cards))

    whole = parts("zero1", 1)
    one, two, three = (parts(f"zero{stage}", 8) for stage in (1, 2, 3))
    assert one.optimizer == two.optimizer == three.optimizer == whole.optimizer / 8
    assert (one.gradients, two.gradients) == (whole.gradients, whole.gradients / 8)
    assert (two.weights, three.weights) == (whole.weights, whole.weights / 8)


def test_offload_moves_bytes_to_the_host() -> None:
    work = Workload(method="full", sharding="zero3", cards=8)
    before, after = memory.forecast(LLAMA, work), memory.forecast(LLAMA, replace(work, offload="optimizer"))
    assert before.host_bytes == 0
    assert after.host_bytes == before.by_name["optimizer"]
    assert "optimizer" not in after.by_name


def test_double_quantisation_saves_what_its_paper_says() -> None:
    """0.37 bits per parameter (Dettmers et al. 2023)."""
    saved = weights.total(LLAMA, Workload(method="qlora", weight_format="nf4")) - weights.total(
        LLAMA, Workload(method="qlora", weight_format="nf4-dq")
    )
    assert 8 * saved / LLAMA.linear_weights == pytest.approx(0.373, abs=0.001)


def test_capped_scores_are_kept() -> None:
    gemma = catalogue.named("Gemma-2-9B")
    uncapped = replace(gemma, score_cap=False)
    work = Workload(checkpointing="none", seq_len=4096)
    more = memory.forecast(gemma, work).allocated_bytes - memory.forecast(uncapped, work).allocated_bytes
    assert more >= 7 * gemma.heads * 4096 * 4096 * gemma.layers


def test_making_it_fit_takes_no_step_too_many() -> None:
    work = Workload(micro_batch=8, seq_len=2048, checkpointing="none")
    card = hardware.named("RTX 4090")
    found = fit.make_it_fit(LLAMA, work, card.memory_bytes)
    assert found
    assert fit.judge(LLAMA, found[-1].work, card.memory_bytes).answer == "yes"
    assert found[-1].work.method == "lora" and found[-1].work.seq_len == 2048
    assert fit.make_it_fit(LLAMA, replace(work, micro_batch=1, checkpointing="full"), A100.memory_bytes) == []
    assert fit.make_it_fit(catalogue.named("Llama-3.1-405B"), work, card.memory_bytes) is None


def test_global_batch_survives_making_it_fit() -> None:
    work = Workload(micro_batch=32, accumulation=2, seq_len=4096)
    found = fit.make_it_fit(LLAMA, work, hardware.named("RTX 4090").memory_bytes)
    assert found
    assert found[-1].work.micro_batch * (found[-1].work.accumulation or 1) == 64


def test_minimum_hardware() -> None:
    full = fit.minimum(LLAMA, Workload(method="full"))
    light = fit.minimum(LLAMA, Workload(method="qlora", weight_format="nf4-dq", loss="chunked", seq_len=512))
    assert full and light
    assert light[0] == 1 and light[1].memory_bytes < 17e9
    assert full[0] * full[1].memory_bytes > 8 * LLAMA.parameters


def test_knobs_say_what_they_move() -> None:
    work = Workload(micro_batch=4, checkpointing="none")
    moved = {move.text: move for move in knobs.moves(LLAMA, work)}
    one = moved["activation checkpointing"]
    assert one.saved_bytes == pytest.approx(device(work) - device(replace(work, checkpointing="full")))
    assert [m.saved_bytes for m in knobs.moves(LLAMA, work)] == sorted(
        (m.saved_bytes for m in moved.values()), reverse=True
    )


@pytest.mark.parametrize(
    ("model", "cards", "name"),
    [
        ("Llama-3.2-1B", 4, "zero1"),
        ("Qwen2.5-14B", 8, "zero2"),
        ("Qwen2.5-32B", 16, "zero3"),
        ("Llama-3.1-70B", 8, "zero3-offload"),
    ],
)
def test_a_template_is_chosen_with_its_reason(model: str, cards: int, name: str) -> None:
    chosen = template.choose(
        catalogue.named(model), Workload(method="full", cards=cards, sharding="zero1"), A100.memory_bytes
    )
    assert chosen.name == name
    assert chosen.path.is_file() and len(chosen.reason) > 40


def test_speed_follows_the_hardware() -> None:
    work = Workload(seq_len=4096, micro_batch=4)
    h100 = speed.pace(LLAMA, work, hardware.named("H100 SXM")).tokens_per_s_per_card
    a100 = speed.pace(LLAMA, work, A100).tokens_per_s_per_card
    assert 1.5 < h100 / a100 < 3.2
    short = speed.pace(LLAMA, replace(work, seq_len=64, micro_batch=1), A100)
    assert short.limit == "kernel launches"
    nvlink = speed.pace(LLAMA, Workload(method="full", sharding="zero3", cards=8), A100)
    plain = speed.pace(LLAMA, Workload(method="full", sharding="zero3", cards=8), replace(A100, nvlink_bytes_per_s=0.0))
    assert plain.tokens_per_s_per_card < 0.5 * nvlink.tokens_per_s_per_card


def test_padding_from_real_lengths() -> None:
    lengths = Lengths((10, 20, 30, 40))
    assert lengths.useful_share(1) == 1
    # the longer of two drawn from four: (1*10 + 3*20 + 5*30 + 7*40) / 16
    assert lengths.padded_mean(2) == pytest.approx(31.25)
    assert lengths.cut(25).tokens == (10, 20, 25, 25)


def test_a_machine_teaches_a_factor() -> None:
    learnt = Correction().learn(11e9, 10e9).learn(12e9, 10e9)
    assert learnt.factor == pytest.approx(1.15)
    assert "1.15" in learnt.text and "2 runs" in learnt.text
    assert learnt.learn(90e9, 10e9) == learnt  # nonsense teaches nothing
    assert Correction.from_json(learnt.to_json()) == learnt
    assert Correction().text == ""
    work = Workload()
    assert fit.judge(LLAMA, work, device(work) * 1.05).fits
    assert not fit.judge(LLAMA, work, device(work) * 1.05, learnt.factor).fits


def test_a_form_turns_knobs_and_keeps_contradictions_as_problems() -> None:
    form = PlanForm(LLAMA, hardware.named("RTX 4090"))
    bigger = form.turn("micro_batch", 3)
    assert bigger.work.micro_batch == 8
    assert form.turn("micro_batch", -5).work.micro_batch == 1
    verdict = bigger.result().verdict
    assert verdict and not verdict.fits
    fitted = bigger.fitted()
    assert fitted and fitted[0].result().verdict
    wrong = form.set("offload", "all")
    assert "offload" in wrong.result().problem and wrong.value("offload") == "all"
    mended = wrong.set("sharding", "zero3").set("cards", 4)
    assert mended.result().verdict and mended.work.offload == "all"
    assert sum(share for _, share, _ in form.bars()) == pytest.approx(device(form.work) / form.card.memory_bytes)
