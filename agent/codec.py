"""Tagged JSON lines: how any message becomes one line and comes back typed.

Nothing that arrives is trusted: line length and nesting are capped, unknown fields are ignored, wrong types are refused
and every string loses its control characters before anybody can print it.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
import types
import typing
from typing import Any, TypeVar, Union, cast

LINE_LIMIT_BYTES = 4 * 1024 * 1024
DEPTH_LIMIT = 32

JSON = Any  # what json.loads can return; spelled out it would only repeat the json module's own contract
T = TypeVar("T")

ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC, DCS and other strings: titles, clipboard
    r"|\x1b[ -/]*[0-~]"  # two-character escapes
)
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
FLOAT_TAG = "~float"  # JSON has no NaN; Python's own spelling of it would break every other reader


class Malformed(ValueError):
    """A line that is no message of ours: too long, too deep, no JSON, unknown tag or a field of the wrong type."""


def clean(text: str) -> str:
    """`text` without terminal escapes, control and bidirectional-override characters; newline and tab stay."""
    if text.isascii() and text.isprintable():
        return text
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = CONTROLS.sub("", ESCAPES.sub("", text))
    return text.encode("utf-8", "replace").decode("utf-8")  # lone surrogates cannot be printed


def encode(message: Any) -> bytes:
    """One line with its newline: the dataclass's fields plus its class name under "t"."""
    return (
        json.dumps(pack(message), ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode(
            "utf-8", "surrogatepass"
        )
        + b"\n"
    )


def pack(value: Any) -> JSON:
    """Dataclasses to tagged dicts, non-finite floats to {"~float": "nan"}, everything else as it is."""
    if isinstance(value, float):
        return value if math.isfinite(value) else {FLOAT_TAG: str(value)}
    if isinstance(value, dict):
        return {str(key): pack(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [pack(item) for item in value]
    if dataclasses.is_dataclass(value):
        fields = {f.name: pack(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"t": type(value).__name__, **fields}
    return value


def parse(line: bytes) -> JSON:
    """The JSON of one line with its strings cleaned. Raises Malformed."""
    if len(line) > LINE_LIMIT_BYTES:
        raise Malformed(f"line of {len(line)} bytes, the limit is {LINE_LIMIT_BYTES}")
    try:
        raw = json.loads(line.decode("utf-8", "replace"), parse_constant=NON_FINITE.get)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"not JSON: {type(error).__name__}") from error
    return sanitise(raw, 0)


def sanitise(value: JSON, depth: int) -> JSON:
    if depth > DEPTH_LIMIT:
        raise Malformed(f"nested deeper than {DEPTH_LIMIT}")
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [sanitise(item, depth + 1) for item in value]
    if isinstance(value, dict):
        if value.keys() == {FLOAT_TAG}:
            return NON_FINITE.get(str(value[FLOAT_TAG]))
        return {clean(key): sanitise(item, depth + 1) for key, item in value.items()}
    return value


def unpack(kind: type[T], raw: JSON) -> T:
    """`raw` as an instance of the dataclass `kind`. Unknown fields are ignored. Raises Malformed."""
    if not isinstance(raw, dict):
        raise Malformed(f"{kind.__name__} expected, got {type(raw).__name__}")
    values = {}
    fields: dict[str, tuple[Any, bool]] = shape(cast(Any, kind))
    for name, (hint, required) in fields.items():
        if name in raw:
            values[name] = convert(hint, raw[name], f"{kind.__name__}.{name}")
        elif required:
            raise Malformed(f"{kind.__name__}.{name} is missing")
    return kind(**values)


@functools.cache
def shape(kind: Any) -> dict[str, tuple[Any, bool]]:
    """Field name to (type, required) of a dataclass."""
    hints = typing.get_type_hints(kind)
    return {
        f.name: (hints[f.name], f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING)
        for f in dataclasses.fields(kind)
    }


def convert(hint: Any, raw: JSON, where: str) -> Any:
    """`raw` checked against one type hint; ints are accepted where floats are due. Raises Malformed."""
    origin = typing.get_origin(hint)
    if hint is Any:
        return raw
    if origin in (Union, types.UnionType):
        return one_of(typing.get_args(hint), raw, where)
    if origin in (list, tuple):
        if not isinstance(raw, list):
            raise Malformed(f"{where}: list expected")
        inner = typing.get_args(hint)[0]
        return origin(convert(inner, item, where) for item in raw)
    if origin is dict:
        if not isinstance(raw, dict):
            raise Malformed(f"{where}: mapping expected")
        inner = typing.get_args(hint)[1]
        return {key: convert(inner, item, where) for key, item in raw.items()}
    if dataclasses.is_dataclass(hint):
        return unpack(cast("type[Any]", hint), raw)
    if hint is float and isinstance(raw, (int, float)) and not isinstance(raw, bool):
        return float(raw) if abs(raw) < 1e308 or isinstance(raw, float) else math.inf
    if isinstance(raw, hint) and (hint is bool or not isinstance(raw, bool)):
        return raw
    raise Malformed(f"{where}: {getattr(hint, '__name__', hint)} expected, got {type(raw).__name__}")


def one_of(options: tuple[Any, ...], raw: JSON, where: str) -> Any:
    if raw is None and type(None) in options:
        return None
    options = tuple(option for option in options if option is not type(None))
    tagged: dict[str, Any] = {o.__name__: o for o in options if isinstance(o, type) and dataclasses.is_dataclass(o)}
    if isinstance(raw, dict) and raw.get("t") in tagged:
        return unpack(tagged[raw["t"]], raw)
    for option in options:
        if option not in tagged.values():
            try:
                return convert(option, raw, where)
            except Malformed:
                continue
    raise Malformed(f"{where}: none of {[getattr(o, '__name__', o) for o in options]}")


def difference(old: JSON, new: JSON, path: tuple[str, ...] = ()) -> tuple[dict[str, JSON], list[list[str]]]:
    """What changed between two nested dicts with string keys: (changed leaves, nested alike; paths that are gone).

    Lists and scalars count as leaves. `apply_difference(old, *difference(old, new)) == new`.
    """
    changed: dict[str, JSON] = {}
    gone = [[*path, key] for key in old if key not in new]
    for key, value in new.items():
        before = old.get(key)
        if key in old and isinstance(value, dict) and isinstance(before, dict) and value and before:
            inner, lost = difference(before, value, (*path, key))
            gone += lost
            if inner:
                changed[key] = inner
        elif key not in old or before != value or type(before) is not type(value):
            changed[key] = value
    return changed, gone


def apply_difference(old: JSON, changed: dict[str, JSON], gone: list[list[str]]) -> dict[str, JSON]:
    """The state after a difference; `old` is left as it was."""
    merged = merge(old, changed)
    for path in gone:
        parent: JSON = merged
        for key in path[:-1]:
            parent = parent.get(key) if isinstance(parent, dict) else None
        if isinstance(parent, dict) and path:
            parent.pop(path[-1], None)
    return merged


def merge(old: JSON, changed: dict[str, JSON]) -> dict[str, JSON]:
    merged = {key: merge(value, {}) if isinstance(value, dict) else value for key, value in old.items()}
    for key, value in changed.items():
        before = merged.get(key)
        nested = isinstance(value, dict) and isinstance(before, dict) and value and before
        merged[key] = merge(before, value) if nested else value
    return merged
