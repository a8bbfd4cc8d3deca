"""What changed between two states of a node, and the state after a change: as trees, and as records."""

from __future__ import annotations

import dataclasses
import functools
import operator
import typing
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from agent.codec import JSON, shape, unpack

T = TypeVar("T")
Path = Sequence[str]
Renewal = Callable[[Any, JSON, JSON, Sequence[Path]], Any]


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


def amend(tree: dict[str, JSON], changed: dict[str, JSON], gone: Sequence[Path]) -> None:
    """`apply_difference` in place, for a tree that nobody else holds."""
    for key, value in changed.items():
        before = tree.get(key)
        if isinstance(value, dict) and isinstance(before, dict) and value and before:
            amend(before, value, ())
        else:
            tree[key] = value
    for path in gone:
        parent: JSON = tree
        for key in path[:-1]:
            parent = parent.get(key) if isinstance(parent, dict) else None
        if isinstance(parent, dict) and path:
            parent.pop(path[-1], None)


def renewed(old: T, tree: JSON, changed: dict[str, JSON], gone: Sequence[Path]) -> T:
    """`unpack(type(old), tree)`, `tree` being what `old` was made of after that difference; reads only what it names.

    Raises Malformed.
    """
    kind = cast(Any, type(old))
    if not tree.keys() >= places(kind)[0].keys():
        return cast(T, unpack(kind, tree))
    numbers, every, renewals = places(kind)
    values = None
    for name in changed if not gone else {*changed, *(path[0] for path in gone if path)}:
        if name in numbers:
            values = values or list(every(old))
            i = numbers[name]
            values[i] = renewals[i](values[i], tree[name], changed.get(name, {}), below(gone, name))
    return old if values is None else cast(T, kind(*values))


def below(gone: Sequence[Path], name: str) -> Sequence[Path]:
    return gone and [path[1:] for path in gone if path and path[0] == name]


@functools.cache
def places(kind: Any) -> tuple[dict[str, int], Callable[[Any], tuple[Any, ...]], list[Renewal]]:
    """Of a dataclass: each field's number, what takes all values of a record in one go, how each field is renewed."""
    names = list(shape(kind))
    every = operator.attrgetter(*names) if len(names) > 1 else lambda record: (getattr(record, names[0]),)
    return {name: i for i, name in enumerate(names)}, every, [part(kind, name) for name in names]


def part(kind: Any, name: str) -> Renewal:
    """How one field of a record is renewed: (old, tree, changed, gone) → new."""
    field = shape(kind)[name]
    inner = typing.get_args(field.hint)[1:] if typing.get_origin(field.hint) is dict else ()
    records = inner[0] if inner and dataclasses.is_dataclass(inner[0]) else None

    def whole(_old: Any, tree: JSON, _changed: JSON, _gone: Sequence[Path]) -> Any:
        return field.read(tree)

    def record(old: Any, tree: JSON, changed: JSON, gone: Sequence[Path]) -> Any:
        nested = isinstance(changed, dict) and isinstance(tree, dict) and (changed or gone)
        return renewed(old, tree, changed, gone) if nested else field.read(tree)

    def by_key(old: Any, tree: JSON, changed: JSON, gone: Sequence[Path]) -> Any:
        if not isinstance(changed, dict) or not isinstance(tree, dict) or not (changed or gone):
            return field.read(tree)
        new = {key: value for key, value in old.items() if key in tree} if gone else dict(old)
        for key in changed if not gone else {*changed, *(path[0] for path in gone if path)} & tree.keys():
            item, lost = changed.get(key, {}), below(gone, key)
            nested = key in old and isinstance(item, dict) and isinstance(tree[key], dict) and (item or lost)
            new[key] = renewed(old[key], tree[key], item, lost) if nested else unpack(cast(Any, records), tree[key])
        return new

    return by_key if records else record if dataclasses.is_dataclass(field.hint) else whole
