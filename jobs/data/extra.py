"""Libraries that only some files need: loaded where they are used, with one sentence when they are absent."""

from __future__ import annotations

import importlib
from typing import Any

from jobs.failure import JobError


def library(module: str, purpose: str) -> Any:
    """The module. Raises JobError that names the extra to install."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name != module.partition(".")[0]:
            raise
        raise JobError(
            f"{purpose} needs {missing.name}, which is not installed", "Run: pip install 'tunedeck[data]'"
        ) from None
