"""Node sets: ``gpu[01-16],head`` as one name after another."""

from __future__ import annotations

import re
from collections.abc import Iterable

LIMIT = 4096
"""More nodes than that in one set is a typing error."""
_LAST_NUMBER = re.compile(r"([^\[\],\s]*?)([0-9]{1,9})([^0-9\[\],\s]*)")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


class NodeSetError(ValueError):
    """A node set that cannot be read; the text says what is wrong with which part."""


def expand(text: str) -> list[str]:
    """Names in order, each once. ``a[08-10],b`` gives a08 a09 a10 b. Raises NodeSetError."""
    names: dict[str, None] = {}
    for item in _split(text):
        names.update(dict.fromkeys(_one(item)))
        if len(names) > LIMIT:
            raise NodeSetError(f"{text!r} names more than {LIMIT} nodes")
    return list(names)


def fold(names: Iterable[str]) -> str:
    """The shortest set that expands to these names: a08 a09 a10 b gives ``a[08-10],b``."""
    groups: dict[tuple[str, str, int], dict[int, None]] = {}
    parts: list[tuple[str, str, int] | str] = []
    found = [(name, _LAST_NUMBER.fullmatch(name)) for name in dict.fromkeys(names)]
    padded = {(m[1], m[3], len(m[2])) for _name, m in found if m and m[2].startswith("0") and len(m[2]) > 1}
    for name, match in found:
        if match is None:
            parts.append(name)
            continue
        width = len(match[2])
        key = match[1], match[3], width if (match[1], match[3], width) in padded else 0
        if key not in groups:
            parts.append(key)
        groups.setdefault(key, {})[int(match[2])] = None
    return ",".join(part if isinstance(part, str) else _folded(*part, sorted(groups[part])) for part in parts)


def _folded(head: str, tail: str, width: int, numbers: list[int]) -> str:
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    if len(numbers) == 1:
        return f"{head}{str(numbers[0]).zfill(width)}{tail}"
    words = [str(a).zfill(width) + ("" if a == b else f"-{str(b).zfill(width)}") for a, b in ranges]
    return f"{head}[{','.join(words)}]{tail}"


def _split(text: str) -> list[str]:
    """At commas and blanks outside brackets."""
    parts, depth, part = [], 0, ""
    for character in text:
        depth += {"[": 1, "]": -1}.get(character, 0)
        if depth not in (0, 1):
            raise NodeSetError(f"{text!r}: brackets do not match")
        if depth == 0 and (character == "," or character.isspace()):
            parts.append(part)
            part = ""
        else:
            part += character
    if depth:
        raise NodeSetError(f"{text!r}: a [ is not closed")
    return [item for item in [*parts, part] if item]


def _one(item: str) -> list[str]:
    head, bracket, rest = item.partition("[")
    if not bracket:
        return [item]
    inside, _, tail = rest.partition("]")
    tails = _one(tail)
    names: list[str] = []
    for piece in inside.split(","):
        for number in _numbers(piece.strip(), item):
            names += [head + number + end for end in tails]
            if len(names) > LIMIT:
                raise NodeSetError(f"{item!r} names more than {LIMIT} nodes")
    return names


def _numbers(piece: str, item: str) -> list[str]:
    """``08-10`` as 08 09 10: the width of the first number is kept."""
    found = _RANGE.fullmatch(piece)
    if found is None or not piece.isascii():
        raise NodeSetError(f"{item!r}: {piece!r} is neither a number nor a range like 01-16")
    first, last = found[1], found[2] or found[1]
    if int(last) < int(first):
        raise NodeSetError(f"{item!r}: the range {piece} runs backwards")
    if int(last) - int(first) >= LIMIT:
        raise NodeSetError(f"{item!r} names more than {LIMIT} nodes")
    return [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
