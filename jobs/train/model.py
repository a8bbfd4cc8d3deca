"""The model of a spec, ready to train: loaded, with adapters where the method is LoRA."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from jobs.failure import JobError
from jobs.settings import ALL_LINEAR
from jobs.spec import Spec


@dataclass(frozen=True, slots=True)
class Loaded:
    """`precision` is what computes: "bf16" (autocast) or "fp32"."""

    model: Any
    tokenizer: Any
    device: str
    precision: str

    @property
    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters())

    @property
    def trainable_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters() if parameter.requires_grad)


def load(spec: Spec, home: Path) -> Loaded:
    """Raises JobError for what the user can mend: no GPU, a folder that holds no model, targets that do not exist."""
    device = _device(spec)
    precision = _precision(spec, device)
    source = str(spec.model_folder(home) or spec.model)
    tokenizer, model = _pretrained(spec, source, precision)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.convert_ids_to_tokens(0)
    model.config.use_cache = False
    if spec.method == "lora":
        model = _adapted(spec, model)
    if spec.train.gradient_checkpointing:
        # renamed in transformers 5.2x; the reentrant kind needs inputs that carry gradients, which LoRA's do not
        enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
        enable({"use_reentrant": False})
    return Loaded(model, tokenizer, device, precision)


def load_result(spec: Spec, home: Path, folder: Path) -> Any:
    """What a run published in `folder`, as anyone would load it. Raises JobError."""
    source = str(spec.model_folder(home) or spec.model)
    precision = _precision(spec, _device(spec))
    if spec.method == "full":
        return _pretrained(spec, str(folder), precision)[1]
    from peft import PeftModel

    return PeftModel.from_pretrained(_pretrained(spec, source, precision)[1], str(folder))


def _device(spec: Spec) -> str:
    wanted = spec.hardware.device
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return "cpu"
    found = torch.cuda.device_count()
    if found == 0:
        raise JobError("hardware.device is cuda, but torch sees no GPU", "Check the driver, or use `device: cpu`.")
    if found < spec.hardware.processes:
        raise JobError(
            f"hardware.processes is {spec.hardware.processes}, but torch sees {found} GPUs",
            "Use one process for each GPU.",
        )
    return "cuda"


def _precision(spec: Spec, device: str) -> str:
    if spec.train.precision != "auto":
        return spec.train.precision
    return "bf16" if device == "cuda" and torch.cuda.is_bf16_supported() else "fp32"


def _pretrained(spec: Spec, source: str, precision: str) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    # what trains keeps fp32 weights, so that small updates are not rounded away; a frozen base may be bf16
    dtype = torch.bfloat16 if precision == "bf16" and spec.method == "lora" else torch.float32
    attention = {} if spec.train.attention == "auto" else {"attn_implementation": spec.train.attention}
    try:
        tokenizer = AutoTokenizer.from_pretrained(source)
        model = AutoModelForCausalLM.from_pretrained(source, dtype=dtype, **attention)
    except (OSError, ValueError, KeyError) as wrong:
        reason = " ".join(str(wrong).split())[:300] or type(wrong).__name__
        raise JobError(
            f"the model {source} cannot be loaded: {reason}",
            "Give a whole folder made by save_pretrained (config, weights, tokenizer), or a hub id the node can reach.",
        ) from wrong
    return tokenizer, model


def _adapted(spec: Spec, model: Any) -> Any:
    from peft import LoraConfig, get_peft_model

    lora = spec.lora
    targets = lora.targets if lora.targets == ALL_LINEAR or isinstance(lora.targets, tuple) else (lora.targets,)
    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=targets if isinstance(targets, str) else list(targets),
    )
    return get_peft_model(model, config)
