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
from collections.abc import Callable
from typing import Any, TypeVar, Union, cast

LINE_LIMIT_BYTES = 4 * 1024 * 1024
DEPTH_LIMIT = 32

JSON = Any  # what json.loads can return; spelled out it would only repeat the json module's own contract
T = TypeVar("T")
Reader = Callable[[JSON], Any]

ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC, DCS and other strings: titles, clipboard
    r"|\x1b[ -/]*[0-~]"  # two-character escapes
)
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
FLOAT_TAG = "~float"  # JSON has no NaN; Python's own spelling of it would break every other reader
NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
USUAL_DEPTH = 8
DECODER = json.JSONDecoder(
    parse_constant=NON_FINITE.get,
    parse_int=lambda text: int(text) if len(text) < 19 else float(text),  # vast ones make arithmetic raise
)
ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


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
    return ENCODER.encode(pack(message)).encode("utf-8", "surrogatepass") + b"\n"


def pack(value: Any, tagged: bool = True) -> JSON:
    """Dataclasses to dicts, with their class name under "t" where `tagged`; non-finite floats to {"~float": "nan"}."""
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {FLOAT_TAG: str(value)}
    if isinstance(value, dict):
        return {str(key): pack(item, tagged) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [pack(item, tagged) for item in value]
    if not dataclasses.is_dataclass(value):
        return value
    fields = {name: pack(getattr(value, name), tagged) for name in names(cast(Any, kind))}
    return {"t": kind.__name__, **fields} if tagged else fields


@functools.cache
def names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


def parse(line: bytes) -> JSON:
    """The JSON of one line with its strings cleaned. Raises Malformed."""
    if len(line) > LINE_LIMIT_BYTES:
        raise Malformed(f"line of {len(line)} bytes, the limit is {LINE_LIMIT_BYTES}")
    try:
        raw = DECODER.decode(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise Malformed(f"not JSON: {type(error).__name__}") from error
    return raw if harmless(line) else sanitise(raw, 0)


def harmless(line: bytes) -> bool:
    """Whether valid JSON of these bytes needs no look at its parts: nothing to clean, no tagged float, not deep.

    JSON allows one raw control character in strings, DEL; without backslashes every second quote ends a string.
    """
    if not line.isascii() or b"\\" in line or b"\x7f" in line or FLOAT_TAG.encode() in line:
        return False
    brackets = b"".join(line.split(b'"')[::2]).translate(None, NO_BRACKETS)
    for _level in range(USUAL_DEPTH):
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
        if not brackets:
            return True
    return False


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
    fields: dict[str, Field] = shape(cast(Any, kind))
    for name, field in fields.items():
        if name in raw:
            values[name] = field.read(raw[name])
        elif field.required:
            raise Malformed(f"{field.where} is missing")
    return kind(**values)


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    where: str
    hint: Any
    required: bool
    read: Reader


@functools.cache
def shape(kind: Any) -> dict[str, Field]:
    """The fields of a dataclass by name."""
    hints = typing.get_type_hints(kind)
    return {
        f.name: Field(
            where := f"{kind.__name__}.{f.name}",
            hints[f.name],
            f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING,
            reader(hints[f.name], where),
        )
        for f in dataclasses.fields(kind)
    }


def convert(hint: Any, raw: JSON, where: str) -> Any:
    """`raw` checked against one type hint; ints are accepted where floats are due. Raises Malformed."""
    return reader(hint, where)(raw)


@functools.cache
def reader(hint: Any, where: str) -> Reader:
    """`convert` for one hint, which is looked at once and not again with every message."""
    origin = typing.get_origin(hint)
    if hint is Any:
        return lambda raw: raw
    if origin in (Union, types.UnionType):
        return one_of(typing.get_args(hint), where)
    if origin in (list, tuple):
        return sequence(origin, reader(typing.get_args(hint)[0], where), where)
    if origin is dict:
        return mapping(reader(typing.get_args(hint)[1], where), where)
    if dataclasses.is_dataclass(hint):
        return functools.partial(unpack, cast("type[Any]", hint))
    return number(where) if hint is float else plain(hint, where)


def sequence(kind: Any, inner: Reader, where: str) -> Reader:
    def read(raw: JSON) -> Any:
        if not isinstance(raw, list):
            raise Malformed(f"{where}: list expected")
        return kind(map(inner, raw))

    return read


def mapping(inner: Reader, where: str) -> Reader:
    def read(raw: JSON) -> Any:
        if not isinstance(raw, dict):
            raise Malformed(f"{where}: mapping expected")
        return {key: inner(item) for key, item in raw.items()}

    return read


def number(where: str) -> Reader:
    def read(raw: JSON) -> float:
        if isinstance(raw, float):
            return raw
        if not isinstance(raw, int) or isinstance(raw, bool):
            raise Malformed(f"{where}: float expected, got {type(raw).__name__}")
        return float(raw) if abs(raw) < 1e308 else math.inf

    return read


def plain(kind: Any, where: str) -> Reader:
    def read(raw: JSON) -> Any:
        if isinstance(raw, kind) and (kind is bool or not isinstance(raw, bool)):
            return raw
        raise Malformed(f"{where}: {getattr(kind, '__name__', kind)} expected, got {type(raw).__name__}")

    return read


def one_of(options: tuple[Any, ...], where: str) -> Reader:
    """Dataclasses by their tag; of the others the first that fits."""
    tagged = {o.__name__: reader(o, where) for o in options if isinstance(o, type) and dataclasses.is_dataclass(o)}
    others = [reader(o, where) for o in options if o is not type(None) and getattr(o, "__name__", "") not in tagged]
    none = type(None) in options

    def read(raw: JSON) -> Any:
        if raw is None and none:
            return None
        if isinstance(raw, dict) and isinstance(tag := raw.get("t"), str) and tag in tagged:
            return tagged[tag](raw)
        for other in others:
            try:
                return other(raw)
            except Malformed:
                continue
        raise Malformed(f"{where}: none of {[getattr(o, '__name__', o) for o in options]}")

    return read
