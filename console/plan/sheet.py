"""A board as lines: the verdict, memory by component with its band, hours; and what stands around it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from console.format import size
from console.plan import page
from console.plan.board import Board
from console.strings import _
from console.widgets.paint import EMPTY, Line, bar, crop, fit, heading, wrapped
from jobs.plan import memory
from jobs.plan.duration import Duration
from jobs.plan.memory import Forecast

NAME_CELLS, SIZE_CELLS, SHARE_CELLS = 16, 9, 5
ROOMY_ROWS = 24
"""A pane with fewer rows counts small components together, so that the answer is seen without scrolling"""
SMALL_SHARE = 0.01
SIGNS = {"yes": ("✓", "ok"), "tight": ("!", "warn"), "no": ("✕", "bad")}
FOUND = {"holds": "ok", "contradicted": "bad", "depends": "warn", "unchecked": "dim"}


def answer(board: Board, width: int, height: int) -> list[Line]:
    """What the knobs come to on these cards."""
    form, result = board.form, board.form.result()
    lines: list[Line] = []
    if board.place.simulated:
        lines.append(((_(" SIMULATED "), "badge"), (_(" these cards are not real"), "warn")))
    if form.problem:
        return [*lines, *wrapped(f"✕ {form.problem}", width, "bad")]
    if result.verdict is not None:
        sign, role = SIGNS[result.verdict.answer]
        lines += wrapped(f"{sign} {page.fits(result.verdict, form.card)}", width, role)
        if result.duration is not None and height < ROOMY_ROWS:
            lines.append(briefly(result.duration))
        lines += changes(board, width)
        lines += total(result.verdict.forecast, form.card.memory_bytes, width, role)
        lines += bars(result.verdict.forecast, form.card.memory_bytes, width, height >= ROOMY_ROWS)
    if result.duration is not None:
        lines += told(page.pace(result.duration, form.work), width)
    return lines + (wrapped(result.problem, width, "warn") if result.problem else [])


def briefly(time: Duration) -> Line:
    """Hours before all detail."""
    text = _("{hours:.2f} h ({low:.2f} to {high:.2f})")
    return ((text.format(hours=time.hours, low=time.low_hours, high=time.high_hours), "strong"),)


def changes(board: Board, width: int) -> list[Line]:
    if board.changes is None:
        return []
    return told(page.needed(list(board.changes)), width, "accent")


def total(forecast: Forecast, whole_bytes: float, width: int, role: str) -> list[Line]:
    """All components together, with the band of what they may come to."""
    least, most = forecast.low_bytes / whole_bytes, forecast.high_bytes / whole_bytes
    share = forecast.device_bytes / whole_bytes
    between = _("band {low} to {high}").format(low=size(forecast.low_bytes), high=size(forecast.high_bytes))
    host = _("; in host memory {size}").format(size=size(forecast.host_bytes)) if forecast.host_bytes else ""
    return [
        heading(_("Memory of each card at its peak ({peak})").format(peak=forecast.peak), width),
        (*row(_("device"), forecast.device_bytes, share, "strong"), *band(least, share, most, bar_cells(width), role)),
        ((" " * (NAME_CELLS + 1), "text"), (fit(between + host, width - NAME_CELLS - 1), "dim")),
    ]


def bars(forecast: Forecast, whole_bytes: float, width: int, every: bool) -> list[Line]:
    """One bar for each component, of the card's memory."""
    parts = sorted(forecast.components, key=lambda part: -part.bytes)
    small = [] if every else [part for part in parts if part.bytes < SMALL_SHARE * whole_bytes]
    shown = [(part.name, part.bytes) for part in parts if part not in small]
    if small:
        shown.append((_("{n} small ones").format(n=len(small)), sum(part.bytes for part in small)))
    room = bar_cells(width)
    return [
        (*row(name, value, value / whole_bytes), *bar(value / whole_bytes, room, "accent")) for name, value in shown
    ]


def bar_cells(width: int) -> int:
    return max(4, width - NAME_CELLS - SIZE_CELLS - SHARE_CELLS - 2)


def row(name: str, value: float, share: float, role: str = "text") -> Line:
    percent = f"{min(share, 9.99):.0%}"
    return (
        (fit(name, NAME_CELLS), role if role == "strong" else "dim"),
        (f"{size(value):>{SIZE_CELLS}} {percent:>{SHARE_CELLS - 1}} ", role),
    )


def band(low: float, middle: float, high: float, width: int, role: str) -> Line:
    """Certain, then likely, then possible: strokes differ without colour. What is over the edge is marked."""
    at = [round(min(max(share, 0.0), 1.0) * width) for share in (low, middle, high)]
    spans: Line = (
        ("━" * at[0], role),
        ("╍" * (at[1] - at[0]), role),
        ("╌" * (at[2] - at[1]), "warn"),
        ("─" * (width - at[2]), "track"),
    )
    drawn = tuple(span for span in spans if span[0])
    return (*crop(drawn, width - 1), ("▶", role if middle > 1 else "warn")) if high > 1 else drawn


def around(board: Board, width: int, _height: int) -> list[Line]:
    """The claim that was asked about, every card, single knobs, advice with its source."""
    form = board.form
    lines = claim(board, width)
    if form.problem:
        return lines
    forecast = memory.forecast(form.shape, form.work)
    sections: Sequence[Iterable[str]] = (
        page.elsewhere(form.shape, form.work),
        page.movers(form.shape, form.work),
        page.sharded(form.shape, form.work, form.card),
        page.claimed(form.work),
    )
    for section in sections:
        lines += told(section, width)
    return lines + [line for text in forecast.assumptions for line in wrapped(text, width, "warn")]


def claim(board: Board, width: int) -> list[Line]:
    if board.finding is None:
        return []
    head, *rest = page.finding(board.finding).splitlines()
    lines = [heading(_("Claim"), width), *wrapped(head, width, FOUND[board.finding.verdict])]
    return [*lines, *(line for text in rest for line in wrapped(text, width, "text", "  ")), EMPTY]


def told(texts: Iterable[str], width: int, role: str = "text") -> list[Line]:
    """A section: its first line as a heading, the others wrapped below it."""
    lines: list[Line] = []
    for text in texts:
        if lines:
            lines += wrapped(text, width, role, "  ")
        else:
            lines.append(heading(text, width))
    return lines
