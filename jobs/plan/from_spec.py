"""From a run spec to what it asks of the cards, as ``jobs.train`` will run it."""

from __future__ import annotations

from pathlib import Path

from jobs.plan import catalogue, families
from jobs.plan.architecture import Architecture
from jobs.plan.workload import Workload
from jobs.settings import ALL_LINEAR
from jobs.spec import Spec


def architecture(spec: Spec, home: Path) -> Architecture:
    """The model of the spec: its config.json where the folder is here, else the public model of that name. Raises
    PlanError.
    """
    folder = spec.model_folder(home)
    if folder is not None and (folder / "config.json").is_file():
        return families.read(folder)
    return catalogue.named(spec.model)


def workload(spec: Spec, cuda: bool = True) -> Workload:
    """The workload of one rank. What trains keeps fp32 weights; a frozen base is bf16 where it computes in 16 bits.

    The longest example counts: data.max_length.
    """
    narrow = spec.train.precision == "bf16" or (spec.train.precision == "auto" and cuda)
    frozen = spec.method != "full"
    words = spec.lora.targets
    targets = words if words == ALL_LINEAR else (words,) if isinstance(words, str) else words
    return Workload(
        method=spec.method,
        weight_format="nf4-dq" if spec.method == "qlora" else "bf16" if narrow and frozen else "fp32",
        compute="16-bit" if narrow else "fp32",
        optimizer="adamw",
        rank=spec.lora.rank,
        targets=targets,
        adapter_bytes=4,
        micro_batch=spec.train.batch_size,
        seq_len=spec.data.max_length,
        accumulation=spec.train.accumulation,
        checkpointing="full" if spec.train.gradient_checkpointing else "none",
        attention="eager" if spec.train.attention == "eager" else "sdpa",
        sharding="ddp" if spec.hardware.processes > 1 else "none",
        cards=spec.hardware.processes,
        varying_lengths=True,
    )
