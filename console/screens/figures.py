"""The figures of one run as lines. Pure: state in, lines out."""

from __future__ import annotations

import math
from typing import Any

from console.fleet import Node, Run
from console.format import UNKNOWN, age, count, duration, figure, fraction, share, size, tokens_s
from console.screens.describe import faded
from console.strings import _
from console.widgets.paint import Line, bar, cells, pairs

RANKS_SHOWN = 4
_WORDS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def run_figures(run: Run, last: dict[str, Any], node: Node, now: float, wall: float, width: int) -> list[Line]:
    """Progress bar and table of figures. `last` is the newest step record, `wall` the node's clock (unix seconds)."""
    state = run.state
    end = state.ended_unix if state.ended_unix is not None else None if state.phase == "ended" else wall
    elapsed = None if end is None or state.started_unix is None else end - state.started_unix
    items: list[tuple[str, Line]] = [
        (_("loss"), shown(figure(state.loss), "strong")),
        (_("speed"), shown(tokens_s(state.tokens_per_s))),
        (_("time"), shown(duration(elapsed))),
        (_("pace"), shown(duration(state.step_time_s))),
        (_("lr"), shown(figure(state.learning_rate))),
        (_("grad"), shown(figure(number(last.get("grad_norm"))))),
        (_("epoch"), shown(figure(number(last.get("epoch"))))),
        (_("heard"), shown(last_word(run, wall))),
    ]
    lines = [progress_line(run, width), *pairs(items, width, 5, columns=4 if width >= 72 else 2)]
    lines.append(memory_line(run, str(last.get("memory_kind") or "")))
    return lines if node.live(now) or not run.live else faded(lines)


def shown(text: str, role: str = "text") -> Line:
    return ((text, role if text != UNKNOWN else "dim"),)


def number(value: Any) -> float | None:
    """A figure of a progress record; those that are not finite come as words."""
    if isinstance(value, str):
        return _WORDS.get(value)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def last_word(run: Run, wall: float) -> str:
    said = run.state.last_progress_unix
    return UNKNOWN if said is None else _("{age} ago").format(age=age(wall - said)) if run.live else age(wall - said)


def progress_line(run: Run, width: int) -> Line:
    state = run.state
    text = f" {count(state.step)}/{count(state.total_steps)}  {share(state.step, state.total_steps)}"
    eta = (_("  ETA {time}").format(time=duration(run.eta_s)), "text" if run.eta_s is not None else "dim")
    after: Line = ((text, "strong"), eta) if run.live else ((text, "strong"),)
    head: Line = ((_("step "), "dim"),)
    room = max(4, width - cells(head) - cells(after) - 1)
    done = fraction(state.step, state.total_steps)
    return (*head, *bar(done, room, "ok" if run.live else "dim"), *after)


def memory_line(run: Run, kind: str) -> Line:
    """Memory by rank; many ranks as their range."""
    memory = run.state.memory_bytes
    what = {"rss": _("host memory"), "cuda": _("GPU memory")}.get(kind, _("memory"))
    head = (f"{what} ", "dim")
    if not memory:
        return (head, (UNKNOWN, "dim"))
    if len(memory) > RANKS_SHOWN:
        text = _("{low} to {high} over {n} ranks").format(low=size(min(memory)), high=size(max(memory)), n=len(memory))
        return (head, (text, "text"))
    by_rank = "   ".join(_("rank {n} {size}").format(n=n, size=size(used)) for n, used in enumerate(memory))
    return (head, (by_rank, "text"))
