"""Shipped tables, read by libyaml where Python has it: a plan must answer at once, and the tables are its slowest
part.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import yaml

import configs

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@lru_cache(maxsize=16)
def load(name: str) -> Any:
    """The content of ``configs/name``. Treat it as read-only: every caller gets the same object."""
    return yaml.load(configs.path(name).read_text(encoding="utf-8"), Loader=LOADER)
