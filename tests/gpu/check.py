"""On a machine with a GPU: forecast against ``torch.cuda.max_memory_*`` for six configurations.

`python -m tests.gpu.check` prints one line each; exit status 1 when a measured peak leaves the band or a forecast is
more than a tenth too low. Needs torch with CUDA, transformers and peft; without bitsandbytes the QLoRA row is left out,
and that is said.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from typing import Any

from jobs.plan import families, memory
from jobs.plan.memory import GIB, Forecast
from jobs.plan.workload import Workload

# about 1.2B parameters with a large vocabulary: big enough that allocator noise is small, and it fits a 24 GB card
MODEL: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 8192, "vocab_size": 128256, "max_position_embeddings": 8192, "tie_word_embeddings": True,
}  # fmt: skip
CASES = (
    Workload(method="full", micro_batch=1, seq_len=1024),
    Workload(method="full", micro_batch=1, seq_len=512, checkpointing="none"),
    Workload(method="lora", micro_batch=2, seq_len=2048),
    Workload(method="lora", micro_batch=1, seq_len=1024, checkpointing="none"),
    Workload(method="qlora", weight_format="nf4", micro_batch=2, seq_len=2048),
    Workload(method="dora", micro_batch=1, seq_len=1024),
)


def name(work: Workload) -> str:
    batch = f"{work.micro_batch} x {work.seq_len}"
    return f"{work.method} {work.weight_format} {batch} checkpointing {work.checkpointing}"


def built(work: Workload) -> Any:
    """The real model on the GPU in bf16, random weights."""
    import peft
    import torch
    import transformers

    config = transformers.AutoConfig.for_model(**MODEL)
    with tempfile.TemporaryDirectory() as folder:
        transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)
        more: dict[str, Any] = {}
        if work.method == "qlora":
            more["quantization_config"] = transformers.BitsAndBytesConfig(
                load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16
            )
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.bfloat16, device_map={"": 0}, attn_implementation="sdpa", **more
        )
    if work.adapters:
        adapter = peft.LoraConfig(
            r=work.rank,
            lora_dropout=0.05,
            target_modules="all-linear",
            use_dora=work.method == "dora",
            task_type="CAUSAL_LM",
        )
        model = peft.get_peft_model(model, adapter)
    model.config.use_cache = False
    if work.checkpointing == "full":
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.enable_input_require_grads()
    return model.train()


def measure(work: Workload) -> dict[str, float]:
    """Peaks of two training steps in this process, in bytes."""
    import torch

    model = built(work)
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, foreach=True)
    for _ in range(2):
        optimizer.zero_grad(set_to_none=True)
        tokens = torch.randint(0, MODEL["vocab_size"], (work.micro_batch, work.seq_len), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
    free, total = torch.cuda.mem_get_info()
    return {
        "allocated": float(torch.cuda.max_memory_allocated()),
        "reserved": float(torch.cuda.max_memory_reserved()),
        "device": float(total - free),
    }


def report(work: Workload, forecast: Forecast, real: dict[str, float]) -> tuple[bool, str]:
    inside = forecast.low_bytes <= real["device"] <= forecast.high_bytes
    low = forecast.allocated_bytes < 0.9 * real["allocated"]
    figures = "  ".join(
        f"{meter} {getattr(forecast, meter + '_bytes') / GIB:6.2f} said {real[meter] / GIB:6.2f} measured"
        for meter in real
    )
    return inside and not low, f"{name(work):<52} {figures}  {'ok' if inside and not low else 'OUT'}"


def main(argv: list[str]) -> int:
    if argv[:1] == ["--one"]:
        print(json.dumps(measure(CASES[int(argv[1])])))
        return 0
    wrong = 0
    for index, work in enumerate(CASES):
        if work.method == "qlora" and importlib.util.find_spec("bitsandbytes") is None:
            print(f"{name(work)}: left out, bitsandbytes is not installed")
            continue
        # a process each: what one leaves in the allocator would count for the next
        argv = [sys.executable, "-m", "tests.gpu.check", "--one", str(index)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False, env=dict(os.environ))
        if done.returncode:
            print(f"{name(work)}: failed\n{done.stderr[-1500:]}")
            wrong += 1
            continue
        real = json.loads(done.stdout.splitlines()[-1])
        forecast = memory.forecast(families.of(MODEL), work)
        good, line = report(work, forecast, real)
        wrong += not good
        print(line, flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
