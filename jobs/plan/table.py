"""Rows of a measurement table (CSV columns) → architecture and workload. An empty cell is "not known": a default is
stated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from jobs.plan import adapter, architecture, catalogue
from jobs.plan.architecture import Architecture
from jobs.plan.refusal import PlanError
from jobs.plan.workload import ATTENTION_QKV, Workload

Row = Mapping[str, str]
FORMATS = {
    "int4": "gptq-int4",
    "bnb": "nf4",
    "nf4_dq": "nf4-dq",
    "int8": "int8",
    "amp_bf16": "fp32",
    "float16": "fp16",
    "4bit": "nf4",
}
METHODS = {"qdora": "qlora", "sft": "full", "pretraining": "full", "lora": "lora"}
DEFAULT_SEQUENCE = 512  # tokens of an instruction sample where only the cap or nothing is known


def number(row: Row, field: str) -> float | None:
    """The cell as a number, None where empty. Raises PlanError where it is neither."""
    text = (row.get(field) or "").strip()
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise PlanError(f"row {row.get('id', '?')}: {field} is {text!r}", "it must be a number or empty") from None


def whole(row: Row, field: str, default: int) -> int:
    value = number(row, field)
    return default if value is None else int(value)


def shape(row: Row) -> Architecture:
    """The catalogued model where the row's own columns agree with it, else the shape that the columns make.

    litgpt's model has an output head of its own and fills it from a shared embedding (its convert_hf_checkpoint.py).
    """
    found = _shape(row)
    return found.untied() if _litgpt(row) else found


def _litgpt(row: Row) -> bool:
    return "litgpt" in (row.get("source") or "")


def _shape(row: Row) -> Architecture:
    name = row.get("model") or "model"
    size = number(row, "params_b")
    known = catalogue.find(name)
    if known and _agrees(known, row):
        return known
    hidden, layers, heads = (number(row, f) for f in ("hidden", "layers", "heads"))
    if not (hidden and layers and heads):
        return catalogue.named(name, size * 1e9 if size else None)
    return architecture.from_counts(
        name, int(hidden), int(layers), int(heads), whole(row, "kv_heads", int(heads)),
        whole(row, "intermediate", 4 * int(hidden)), whole(row, "vocab", 32000), size * 1e9 if size else None,
    )  # fmt: skip


def _agrees(known: Architecture, row: Row) -> bool:
    pairs = (
        ("hidden", known.hidden),
        ("layers", known.layers),
        ("heads", known.heads),
        ("intermediate", known.intermediate),
        ("vocab", known.vocab),
    )
    same = all(number(row, field) in (None, float(value)) for field, value in pairs)
    size = number(row, "params_b")
    return same and (size is None or abs(known.parameters / 1e9 / size - 1) < 0.03)


def workload(row: Row) -> Workload:
    """The workload of a memory, throughput or fit row. Raises PlanError on a word it does not know."""
    targets = (row.get("lora_targets") or "").lower()
    optimizer = (row.get("optimizer") or "").lower()
    method = METHODS.get((row.get("method") or "lora").lower(), (row.get("method") or "").lower())
    checkpointed = (row.get("grad_ckpt") or "").strip().lower()
    return Workload(
        method=method,
        weight_format=_format(row, method),
        optimizer=_optimizer(optimizer),
        rank=whole(row, "lora_rank", 16),
        targets=_targets(targets),
        adapt_head=("lm_head" in targets or "output" in targets) and "trainable" not in targets,
        save_embeddings="modules_to_save" in targets or "trainable embeddings" in targets,
        micro_batch=whole(row, "micro_batch", 1),
        adapter_bytes=2 if _litgpt(row) else 4,  # its adapters take the model's dtype, PEFT's are fp32
        seq_len=whole(row, "seq_len", DEFAULT_SEQUENCE),
        accumulation=whole(row, "grad_accum", 1),
        checkpointing={"no": "none", "selective": "selective"}.get(checkpointed, "full"),
        offload_activations="offload" in checkpointed,
        attention="sdpa",
        sharding=_sharding((row.get("sharding") or "none").lower()),
        cards=whole(row, "gpus", 1),
        tensor_parallel=whole(row, "tp", 1),
        pipeline_parallel=whole(row, "pp", 1),
        context_parallel=whole(row, "cp", 1),
        offload="all" if "offload" in optimizer else "none",
        in_backward="backward" in optimizer,
        float8_compute="float8" in (row.get("weight_dtype") or "") or "fp8" in (row.get("precision") or ""),
    )


def _sharding(text: str) -> str:
    """The last word counts where a cell names two ("none/zero2")."""
    text = text.replace("hsdp", "fsdp")
    return next((word for word in ("zero3", "zero2", "zero1", "fsdp", "ddp") if word in text), "none")


def _format(row: Row, method: str) -> str:
    text = (row.get("weight_dtype") or row.get("precision") or "").lower()
    if text.startswith(("fp32", "amp_")):
        return "fp32"
    text = FORMATS.get(text, text)
    compressed = ("nf4", "nf4-dq", "int8", "gptq-int4", "gptq-int8", "awq-int4")
    if text in compressed and method != "full":
        return text
    return "nf4" if method == "qlora" else "fp16" if text == "fp16" else "bf16"


def _optimizer(text: str) -> str:
    for word, name in (("adafactor", "adafactor"), ("sgd", "sgd"), ("fp32", "adamw-fp32"), ("bf16", "adamw-bf16")):
        if word in text:
            return name
    return "adamw-8bit" if "8bit" in text else "adamw"


def _targets(text: str) -> tuple[str, ...] | str:
    """Module names in short form; a cell that names none of them is taken for all linear layers."""
    if not text or "all-linear" in text:
        return "all-linear"
    if "qkv" in text:
        return ATTENTION_QKV
    words = re.split(r"[,+\s]+", text.replace("mlp", "gate,up,down").replace("_proj", ""))
    return tuple(word for word in words if word in adapter.ALIASES) or "all-linear"
