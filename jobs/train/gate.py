"""Proof that a published model is the trained one: logits noted when it was saved, compared after a fresh load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from jobs.failure import JobError

NOTE = "tunedeck-check.safetensors"
_LENGTH = 16
# of the largest logit: another device or thread count changes the order of sums, a lost adapter changes everything
_TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 3e-2, torch.float16: 5e-3}


def note(model: Any, folder: Path) -> None:
    """Writes the logits at the last place of a fixed prompt beside the model."""
    ids = torch.arange(1, _LENGTH + 1)
    save_file({"ids": ids, "logits": _logits(model, ids)}, folder / NOTE)


def _logits(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """Shape (vocabulary,), on the CPU. Leaves the model in the mode it was in."""
    training = model.training
    model.eval()
    with torch.inference_mode():
        logits: torch.Tensor = model(input_ids=ids[None].to(model.device)).logits[0, -1]
    model.train(training)
    return logits.to("cpu", copy=True).contiguous()


def compare(model: Any, folder: Path) -> float:
    """Largest difference between noted and present logits. Raises JobError when it is more than rounding."""
    noted = load_file(folder / NOTE)
    there, here = noted["logits"], _logits(model, noted["ids"])
    if there.shape != here.shape:
        raise JobError(f"{folder} has another vocabulary after loading", "The base model has changed.")
    difference = (there.float() - here.float()).abs().max().item()
    allowed = _TOLERANCES.get(there.dtype, 1e-4) * max(1.0, there.float().abs().max().item())
    if not difference <= allowed:  # also catches NaN
        raise JobError(
            f"{folder} does not compute what was trained: logits differ by {difference:.3g}, allowed {allowed:.3g}",
            "Do not use this export; check that the base model is unchanged.",
        )
    return difference
