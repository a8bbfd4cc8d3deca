"""Everything shipped as data, behind one loader.

Works the same from a checkout, from an installed wheel and from the bundle on a node: the files lie beside this module.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).resolve().parent
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's where Python has it: ten times as fast, and reading tables is what takes a short command its time."""


def path(name: str) -> Path:
    """Path of a shipped file, for example ``path("examples/faults.jsonl")``. Raises FileNotFoundError if absent."""
    found = FOLDER / name
    if not found.exists():
        raise FileNotFoundError(f"configs/{name} is not part of this installation; install tunedeck again")
    return found


@lru_cache(maxsize=64)
def load(name: str) -> Any:
    """The parsed content of a shipped YAML file. Treat it as read-only: every caller gets the same object."""
    return yaml.load(path(name).read_text(encoding="utf-8"), Loader=LOADER)
