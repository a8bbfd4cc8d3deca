"""A run's whole log, one rank at a time, following its end."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rich.cells import cell_len, chop_cells
from textual.app import ComposeResult

from console.bindings import bindings
from console.fleet import LogTail
from console.format import size
from console.screens.base import DeckScreen
from console.screens.desk import Desk
from console.strings import _
from console.widgets.logpane import LogPane
from console.widgets.paint import Line
from console.widgets.panel import Panel, entitle

_BAD = re.compile(r"\b(error|exception|traceback|fatal|critical|out of memory|abort)", re.IGNORECASE)
_WARN = re.compile(r"\bwarn", re.IGNORECASE)


def log_role(text: str) -> str:
    return "bad" if _BAD.search(text) else "warn" if _WARN.search(text) else "text"


def log_lines(texts: Iterable[str], width: int) -> list[Line]:
    """Log text as lines of at most `width` cells; a continued line is marked by its indent."""
    lines: list[Line] = []
    for text in texts:
        text = text.expandtabs(4)
        role = log_role(text)
        if cell_len(text) <= width or width < 8:
            lines.append(((text, role),))
            continue
        first, *others = chop_cells(text, width - 2)
        lines.append(((first, role),))
        lines += [(("↪ ", "track"), (part, role)) for part in others]
    return lines


def rank_name(rank: int | None) -> str:
    return _("launcher") if rank is None else _("rank {n}").format(n=rank)


def next_rank(rank: int | None, ranks: Sequence[int], by: int) -> int | None:
    """Ranks in order, the launcher after the last."""
    order: list[int | None] = [*sorted(set(ranks) or {0}), None]
    here = order.index(rank) if rank in order else 0
    return order[(here + by) % len(order)]


class LogScreen(DeckScreen):
    PLACE = "log"
    BINDINGS = bindings("log", "screen")

    def __init__(self, desk: Desk, node: str, run: str, rank: int | None = 0) -> None:
        super().__init__(desk)
        self.node, self.run_id, self.rank = node, run, rank
        self.log_tail: LogTail | None = None

    def content(self) -> ComposeResult:
        with Panel(id="log-panel"):
            yield LogPane(self.lines, id="log")

    def title_line(self) -> Line:
        return ((_("Log"), "title"), (f"  {self.run_id}", "strong"), (_(" on {node}").format(node=self.node), "dim"))

    def lines(self, width: int, _height: int) -> Sequence[Line]:
        tail = self.log_tail
        if tail is None or tail.offset is None:
            return [((_("reading…"), "dim"),)]
        texts = [*tail.lines, *([tail.rest] if tail.rest else [])]
        return log_lines(texts, width) or [((_("This log is empty."), "dim"),)]

    def on_mount(self) -> None:
        self.log_tail = self.desk.tail(self.node, self.run_id, self.rank)
        super().on_mount()
        self.pane.focus()

    @property
    def pane(self) -> LogPane:
        return self.query_one(LogPane)

    def on_unmount(self) -> None:
        self.desk.untail(self.node, self.run_id, self.rank)

    def tick(self) -> None:
        super().tick()
        self.label()

    def label(self) -> None:
        panel = self.query_one("#log-panel")
        state = _("following") if self.pane.following else _("held; f follows")
        tail = self.log_tail
        known = size(tail.size) if tail is not None and tail.offset is not None else ""
        entitle(panel, f"{rank_name(self.rank)}, {state}", known)

    def action_follow(self) -> None:
        self.pane.toggle()
        self.label()

    def action_rank(self, by: int) -> None:
        ranks = self.log_tail.ranks if self.log_tail is not None else ()
        wanted = next_rank(self.rank, ranks, by)
        self.desk.untail(self.node, self.run_id, self.rank)
        self.rank, self.pane.following = wanted, True
        self.log_tail = self.desk.tail(self.node, self.run_id, wanted)
        self.tick()
