"""What the planner says against what PyTorch really holds, on this machine's CPU: bytes exactly, host peak within
the band.

`python -m tests.bench.plan_host` prints the table; `--bar` exits 1 when a count differs or a peak leaves the band;
`--one N` measures configuration N in this process and prints JSON (each needs a process of its own: the peak is RSS).
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.plan import families, memory, state, weights
from jobs.plan.workload import Workload

TINY = {
    "model_type": "llama", "hidden_size": 256, "num_hidden_layers": 6, "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "intermediate_size": 704, "vocab_size": 4096, "max_position_embeddings": 2048, "tie_word_embeddings": False,
}  # fmt: skip
TINY_QWEN = {**TINY, "model_type": "qwen2", "tie_word_embeddings": True}
SMOL = {
    "model_type": "llama", "hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "intermediate_size": 1536, "vocab_size": 49152, "max_position_embeddings": 2048, "tie_word_embeddings": True,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """One configuration: a model and what is done to it."""

    config: dict[str, Any]
    work: Workload

    @property
    def name(self) -> str:
        w = self.work
        size = "135M" if self.config is SMOL else "tiny " + self.config["model_type"]
        rank = f" r{w.rank} {'+'.join(w.targets) if w.targets != 'all-linear' else 'all'}" if w.adapters else ""
        extra = " + embeddings" if w.save_embeddings else ""
        batch = f"{w.micro_batch}x{w.seq_len}"
        return f"{size} {w.method}{rank}{extra} {w.weight_format} {batch} ckpt {w.checkpointing} {w.sharding}"


def _work(method: str, **more: Any) -> Workload:
    given: dict[str, Any] = {
        "weight_format": "fp32", "compute": "fp32", "rank": 8, "micro_batch": 4, "seq_len": 256,
        "checkpointing": "none", **more,
    }  # fmt: skip
    return Workload(method=method, **given)


QV = ("q_proj", "v_proj")
CASES = (
    Case(TINY, _work("full")),
    Case(TINY, _work("full", checkpointing="full")),
    Case(TINY_QWEN, _work("full", micro_batch=2)),
    Case(TINY, _work("lora")),
    Case(TINY, _work("lora", targets=QV, rank=32)),
    Case(TINY_QWEN, _work("lora", checkpointing="full")),
    Case(TINY, _work("lora", save_embeddings=True)),
    Case(TINY, _work("dora")),
    Case(TINY_QWEN, _work("dora", targets=QV, rank=16)),
    Case(TINY, _work("qlora", weight_format="nf4")),
    Case(TINY, _work("qlora", weight_format="nf4-dq", targets=QV)),
    Case(TINY_QWEN, _work("qlora", weight_format="nf4-dq", checkpointing="full")),
    Case(SMOL, _work("full", micro_batch=1, seq_len=128)),
    Case(SMOL, _work("full", micro_batch=2, checkpointing="full")),
    Case(SMOL, _work("lora", micro_batch=1)),
    Case(SMOL, _work("lora", micro_batch=2, checkpointing="full", rank=64)),
    Case(SMOL, _work("dora", micro_batch=1, seq_len=128)),
    Case(SMOL, _work("qlora", weight_format="nf4-dq", micro_batch=1)),
    Case(TINY, _work("full", sharding="zero2", cards=2, weight_format="bf16", compute="16-bit", accumulation=1)),
    Case(TINY, _work("full", sharding="zero3", cards=2, weight_format="bf16", compute="16-bit", accumulation=1)),
)


@dataclass(frozen=True, slots=True)
class Said:
    """The planner's byte counts for one configuration, of one rank."""

    weights: float
    trained: float
    gradients: float
    optimizer: float
    low: float
    high: float


def said(case: Case) -> Said:
    shape, work = families.of(case.config), case.work
    groups = list(state.groups(shape, work))
    forecast = memory.forecast(shape, work)
    return Said(
        weights=weights.total(shape, work),
        trained=sum(g.count * (g.parameter_bytes or 4.0) for g in groups),
        gradients=sum(g.count * g.gradient_bytes for g in groups),
        optimizer=sum(g.count * g.optimizer_bytes for g in groups) / work.shards,
        low=forecast.allocated_low_bytes,
        high=forecast.allocated_high_bytes,
    )


def saved(case: Case, folder: str) -> None:
    """For a compressed base: the uncompressed model on disk, since only loading compresses."""
    import transformers

    if case.work.method == "qlora":
        config = transformers.AutoConfig.for_model(**case.config)
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)


def built(case: Case, folder: str) -> Any:
    """The real model with its adapters, random weights."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(**case.config)
    work = case.work
    if work.method == "qlora":
        model = _quantized(folder, work.weight_format == "nf4-dq")
    else:
        model = transformers.AutoModelForCausalLM.from_config(config)
    if work.adapters:
        model = _adapted(model, work)
    model.config.use_cache = False
    if work.checkpointing == "full":
        # renamed in transformers 5
        enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
        enable({"use_reentrant": False})
    return model.train()


def _quantized(folder: str, double: bool) -> Any:
    import torch
    import transformers

    return transformers.AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=torch.float32,
        quantization_config=transformers.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=double,
            bnb_4bit_compute_dtype=torch.float32,
        ),
    )  # fmt: skip


def _adapted(model: Any, work: Workload) -> Any:
    import peft

    config = peft.LoraConfig(
        r=work.rank,
        lora_dropout=0.05,
        target_modules="all-linear" if work.targets == "all-linear" else list(work.targets),
        use_dora=work.method == "dora",
        modules_to_save=["embed_tokens", "lm_head"] if work.save_embeddings else None,
        task_type="CAUSAL_LM",
    )
    return peft.get_peft_model(model, config)


def real_bytes(model: Any, optimizer: Any) -> dict[str, float]:
    """Bytes that torch holds: base weights, trained parameters, gradients, optimiser values (without step counters)."""
    trained = [p for p in model.parameters() if p.requires_grad]
    values = [t for s in optimizer.state.values() for k, t in s.items() if k != "step"]
    return {
        "trained": sum(p.numel() * p.element_size() for p in trained),
        "gradients": sum(p.grad.numel() * p.grad.element_size() for p in trained if p.grad is not None),
        "optimizer": sum(t.numel() * t.element_size() for t in values),
    }


def held(model: Any) -> int:
    """Bytes of all parameters and buffers, shared ones once."""
    tensors = {t.data_ptr(): t.numel() * t.element_size() for t in (*model.parameters(), *model.buffers())}
    return sum(tensors.values())


def trained_once(model: Any, work: Workload, vocab: int) -> Any:
    """Two steps, so that gradients, moments and activations meet as in a run. Gradients of the second are left in
    place.
    """
    import torch

    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, foreach=True)
    for _ in range(2):
        optimizer.zero_grad(set_to_none=True)
        tokens = torch.randint(0, vocab, (work.micro_batch, work.seq_len))
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
    return optimizer


def resident(field: str) -> int:
    """A field of /proc/self/status in bytes."""
    found = re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found
    return int(found.group(1)) * 1024


def measure(case: Case) -> dict[str, float]:
    """Real byte counts, and the peak of resident memory over what an idle, warmed-up process holds."""
    import torch

    torch.set_num_threads(1)
    if case.work.deepspeed:
        return measure_sharded(case)
    warm = Case({**case.config, "num_hidden_layers": 1, "vocab_size": 64}, case.work)
    with tempfile.TemporaryDirectory() as small, tempfile.TemporaryDirectory() as large:
        saved(warm, small)
        saved(case, large)
        trained_once(built(warm, small), warm.work, 64)
        gc.collect()
        before = resident("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
        model = built(case, large)
        if case.work.quantized:
            # loading on a CPU maps and copies the uncompressed file and leaves some of it behind; on a GPU none of that
            # lies on the card, so only the weights themselves count
            gc.collect()
            before = resident("VmRSS") - held(model)
            Path("/proc/self/clear_refs").write_text("5")
        optimizer = trained_once(model, case.work, case.config["vocab_size"])
        return {**real_bytes(model, optimizer), "peak": float(resident("VmHWM") - before)}


def measure_sharded(case: Case) -> dict[str, float]:
    """One rank under DeepSpeed: the bytes of its optimiser values and fp32 master copy, after one step."""
    import deepspeed
    import torch
    import transformers

    deepspeed.init_distributed("gloo")
    stage = int(case.work.sharding[-1])
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**case.config))
    config = {
        "train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": {"stage": stage},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}},
    }  # fmt: skip
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    tokens = torch.randint(0, case.config["vocab_size"], (1, 32))
    engine.backward(engine(input_ids=tokens, labels=tokens).loss)
    engine.step()
    inner = engine.optimizer.optimizer
    values = [t for s in inner.state.values() for t in s.values() if torch.is_tensor(t) and t.numel() > 1]
    masters = (
        engine.optimizer.fp32_partitioned_groups_flat
        if stage == 3
        else engine.optimizer.single_partition_of_fp32_groups
    )
    return {"optimizer": float(sum(t.numel() * t.element_size() for t in (*values, *masters)))}


def measured(index: int) -> dict[str, float]:
    """The same in a process of its own."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "MALLOC_TRIM_THRESHOLD_": "0",
        "MALLOC_MMAP_THRESHOLD_": "65536",
    }
    ranks = CASES[index].work.shards if CASES[index].work.deepspeed else 1
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    argv = [sys.executable, *launcher, "-m", "tests.bench.plan_host", "--one", str(index)]
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, timeout=600, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    found: dict[str, float] = json.loads(lines[-1])
    return found


def judged(index: int) -> tuple[bool, str]:
    """Whether one configuration is as forecast, and a line that says so."""
    case, mib = CASES[index], 2**20
    forecast, real = said(case), measured(index)
    if case.work.deepspeed:  # partitions are padded, each by at most a few elements of 12 bytes
        near = 0 <= real["optimizer"] - forecast.optimizer <= 12 * 64
        return near, f"{case.name:<62} optimiser {real['optimizer']:.0f} bytes, forecast {forecast.optimizer:.0f}"
    exact = all(real[k] == getattr(forecast, k) for k in ("trained", "gradients", "optimizer"))
    inside = forecast.low <= real["peak"] <= forecast.high
    return exact and inside, (
        f"{case.name:<62} exact {'yes' if exact else 'NO '} peak {real['peak'] / mib:7.0f} MiB, "
        f"band {forecast.low / mib:.0f} to {forecast.high / mib:.0f} {'ok' if inside else 'OUT'}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", type=int)
    parser.add_argument("--bar", action="store_true")
    args = parser.parse_args()
    if args.one is not None:
        found = json.dumps(measure(CASES[args.one]))
        if os.environ.get("RANK", "0") == "0":  # two ranks would write into one line
            print(found)
        return 0
    wrong = 0
    for index in range(len(CASES)):
        good, line = judged(index)
        wrong += not good
        print(line, flush=True)
    return 1 if args.bar and wrong else 0


if __name__ == "__main__":
    sys.exit(main())
