"""Which pairs of nodes are measured at the same time: rounds in which nobody takes part twice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Pair = tuple[str, str]
Round = tuple[Pair, ...]


def pair(a: str, b: str) -> Pair:
    """The pair of two nodes, the same whichever is named first."""
    return (a, b) if a < b else (b, a)


def rounds(nodes: Sequence[str]) -> tuple[Round, ...]:
    """All pairs of N nodes in N - 1 rounds of disjoint pairs (N rounds, one node idle in each, when N is odd).

    The 1-factorisation of a complete graph by the circle method: one node stands still, the others turn around it.
    Raises ValueError when a node is named twice.
    """
    if len(set(nodes)) != len(nodes):
        raise ValueError("a node is named twice")
    circle: list[str | None] = [*nodes, None] if len(nodes) % 2 else [*nodes]
    found = []
    for _ in range(len(circle) - 1):
        across = zip(circle[: len(circle) // 2], reversed(circle[len(circle) // 2 :]), strict=True)
        found.append(tuple(pair(a, b) for a, b in across if a is not None and b is not None))
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return tuple(found)


def with_again(planned: Round, again: Iterable[Pair]) -> Round:
    """`planned`, with the pairs in `again` measured in it once more; those they are taken from are paired anew."""
    kept = list(planned)
    for a, b in again:
        torn = [p for p in kept if a in p or b in p]
        left = [name for p in torn for name in p if name not in (a, b)]
        kept = [p for p in kept if p not in torn] + [pair(a, b)]
        if len(left) == 2:
            kept.append(pair(*left))
    return tuple(kept)


def all_pairs(nodes: Sequence[str]) -> set[Pair]:
    return {pair(a, b) for i, a in enumerate(nodes) for b in nodes[i + 1 :]}
