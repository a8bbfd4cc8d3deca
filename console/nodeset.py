"""Node sets: ``gpu[01-16],head`` as one name after another."""

from __future__ import annotations

import re

LIMIT = 4096
"""More nodes than that in one set is a typing error."""
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
