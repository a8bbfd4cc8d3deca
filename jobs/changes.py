"""What differs between two descriptions of a training, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """One for each value that is another; nested names are joined by dots. A name on one side only counts as None."""
    old, new = flat(before), flat(now)
    return [f"{key} {old.get(key)} → {new.get(key)}" for key in sorted(old | new) if old.get(key) != new.get(key)]


def flat(value: Mapping[str, Any], stem: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, inner in value.items():
        if isinstance(inner, dict):
            found |= flat(inner, f"{stem}{key}.")
        else:  # a manifest holds lists where a spec holds tuples
            found[stem + key] = list(inner) if isinstance(inner, (list, tuple)) else inner
    return found
