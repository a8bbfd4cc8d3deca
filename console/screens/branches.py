"""Which steps of a run still count, and which were left behind by a rollback. Pure: history in, curves out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from console.fleet import History
from console.screens.figures import number
from console.widgets.chart import Points

Path = tuple[tuple[int, int], ...]
"""(branch, last step of it that counts), oldest first; the present branch comes last, with -1 for no end"""
ORIGIN: Path = ((0, -1),)
TURNS = ("rollback", "resume")


@dataclass(frozen=True, slots=True)
class Traces:
    """One figure over the steps: along the way to the present, along each abandoned piece, and where those were left.

    An abandoned piece begins with the point it shares with what was there before it.
    """

    kept: Points = ((), ())
    left: tuple[Points, ...] = ()
    turns: tuple[int, ...] = ()


def path_of(record: dict[str, Any]) -> Path:
    """The lineage that a rollback or resume tells; the plain one where it tells none."""
    told = record.get("lineage")
    if not isinstance(told, list):
        return ORIGIN
    pairs = [pair for pair in told if isinstance(pair, list) and len(pair) == 2]
    return tuple((whole(branch), whole(last)) for branch, last in pairs) or ORIGIN


def whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def paths(history: History) -> dict[int, Path]:
    """The way to each branch, by branch."""
    found = {0: ORIGIN}
    for mark in history.marks:
        if mark.get("kind") in TURNS:
            path = path_of(mark)
            found[path[-1][0]] = path
    return found


def present(history: History) -> Path:
    last = next((mark for mark in reversed(history.marks) if mark.get("kind") in TURNS), None)
    return ORIGIN if last is None else path_of(last)


def leads(path: Path, branch: int, step: int) -> bool:
    """Whether that state is on the way."""
    return any(branch == root and (last < 0 or step <= last) for root, last in path)


def common(path: Path, other: Path, step: int) -> int:
    """The last step before `path` and the way `other` to `step` part."""
    shared = 0
    for (branch, last), (their_branch, their_last) in zip(path, other, strict=False):
        if branch != their_branch:
            break
        ends = [end for end in (last, their_last, step) if end >= 0]
        shared = min(ends)
        if last != their_last:
            break
    return shared


def abandoned(history: History, branch: int, step: int, now: int) -> int:
    """How many steps up to `now` a rollback to that state would leave behind."""
    known = paths(history)
    return max(0, now - common(present(history), known.get(branch, ORIGIN), step))


def traces(history: History, name: str) -> Traces:
    """One figure of the steps. Values that are not finite are kept, for the chart shows them as holes."""
    path = dict(present(history))
    xs: list[int] = []
    ys: list[float] = []
    left: list[tuple[list[int], list[float]]] = []
    before: dict[int, float] = {}
    leaving = -1
    for step, branch, value in readings(history.steps, name):
        last = path.get(branch)
        if last is not None and (last < 0 or step <= last):
            xs.append(step)
            ys.append(value)
            leaving = -1
        else:
            if leaving != branch:
                shared = before.get(step - 1)
                left.append(([], []) if shared is None else ([step - 1], [shared]))
                leaving = branch
            left[-1][0].append(step)
            left[-1][1].append(value)
        before[step] = value
    return Traces((xs, ys), tuple(left), turns(history) if left else ())


def readings(steps: Sequence[dict[str, Any]], name: str) -> Iterable[tuple[int, int, float]]:
    """Step, branch and value of the records that have them."""
    for record in steps:
        value, step = number(record.get(name)), record.get("step")
        if value is not None and isinstance(step, int):
            yield step, whole(record.get("branch")), value


def turns(history: History) -> tuple[int, ...]:
    """Steps that training went back to."""
    marks = (mark for mark in history.marks if mark.get("kind") in TURNS)
    return tuple(whole(m.get("to_step")) for m in marks if whole(m.get("from_step")) > whole(m.get("to_step")))
