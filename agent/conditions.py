"""When a rule holds, and when its subject is well again: apart by the hysteresis between the two."""

from __future__ import annotations

import math
from typing import Any

from agent.rules import Rule


def holds(rule: Rule, value: Any) -> bool:
    number = float(value) if isinstance(value, (int, float)) else math.nan
    if rule.comparison == "above":
        return number > rule.threshold
    if rule.comparison == "below":
        return number < rule.threshold
    if rule.comparison == "grows":
        return number >= rule.threshold
    if rule.comparison == "is":
        return str(value) in rule.words
    return bool(set(rule.words) & set(map(str, value if isinstance(value, (list, tuple)) else (value,))))


def good(rule: Rule, value: Any) -> bool:
    """Well on the other side of `clear`; without one, simply not holding."""
    if rule.clear is None or not isinstance(value, (int, float)):
        return not holds(rule, value)
    return value < rule.clear if rule.comparison == "above" else value > rule.clear
