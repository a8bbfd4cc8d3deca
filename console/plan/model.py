"""The model that a user names: by a public name, by a folder here, or by its size alone."""

from __future__ import annotations

import re
from pathlib import Path

from jobs.plan import catalogue, families
from jobs.plan.architecture import Architecture
from jobs.plan.refusal import PlanError

SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([bBmM])")


def named(text: str, parameters: float | None = None) -> Architecture:
    """From a folder with a config.json, or a name; ``parameters`` where the name says nothing. Raises PlanError."""
    path = Path(text).expanduser()
    if path.exists() or text.startswith(("/", "~", ".")):
        return families.read(path)
    return catalogue.named(text, parameters)


def size(text: str) -> float:
    """Parameters from ``7B`` or ``135M``. Raises PlanError."""
    found = SIZE.fullmatch(text.strip())
    if not found:
        raise PlanError(f"size {text!r}", "write it like 7B or 135M")
    return float(found.group(1)) * (1e9 if found.group(2) in "bB" else 1e6)
