"""One cell of a row as what it should be: text, a list, a truth value."""

from __future__ import annotations

import ast
import json
import math
from typing import Any

from jobs.data.json_value import whole_characters
from jobs.data.row import Fault


def text(value: Any, name: str, repairs: list[str]) -> str:
    """Raises Fault where it is nothing or cannot be text."""
    if isinstance(value, str):
        return value
    if value is None or (isinstance(value, float) and math.isnan(value)):
        raise Fault("null", f"`{name}` is null")
    if isinstance(value, bool | int | float):
        repairs.append(f"`{name}` is a {'truth value' if isinstance(value, bool) else 'number'}; taken as text")
        return str(value)
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
        repairs.append(f"`{name}` is a list with one text; the text was taken")
        return value[0]
    raise Fault("wrong-type", f"`{name}` is {kind(value)}, expected text")


def optional(value: Any, name: str, repairs: list[str]) -> str:
    """Empty where there is nothing."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return text(value, name, repairs)


def structure(value: Any) -> tuple[Any, str]:
    """A list or object that a table holds as text, and what was done; anything else as it is."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("[", "{"):
        return value, ""
    try:
        return whole_characters(json.loads(value)), ""
    except (ValueError, RecursionError):
        pass
    try:
        return whole_characters(ast.literal_eval(value.strip())), "a Python literal was read as JSON"
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return value, ""


def truth(value: Any, name: str, repairs: list[str]) -> bool:
    """Raises Fault for what is neither true nor false."""
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word in ("true", "1", "1.0", "yes", "desirable", "good", "false", "0", "0.0", "no", "undesirable", "bad"):
        found = word in ("true", "1", "1.0", "yes", "desirable", "good")
        repairs.append(f"`{name}` is {value!r}; taken as {str(found).lower()}")
        return found
    if value is None:
        raise Fault("null", f"`{name}` is null")
    raise Fault("wrong-type", f"`{name}` is {value!r}, expected true or false")


def kind(value: Any) -> str:
    """In words of JSON."""
    if value is None:
        return "null"
    for types, word in ((bool, "a truth value"), (int | float, "a number"), (str, "text"), (list, "a list")):
        if isinstance(value, types):
            return word
    return "an object" if isinstance(value, dict) else type(value).__name__
