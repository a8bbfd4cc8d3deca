"""A quoted line in the run's own log on its node: held there until the user follows the log's end."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent import wire
from agent.formats.line import clean
from agent.triage.verdict import Quote
from console.screens.desk import Desk
from console.screens.log import LogScreen, rank_name
from console.screens.quote import ABOVE, numbered
from console.strings import _
from console.widgets.paint import Line
from console.widgets.panel import entitle
from jobs.redact import redact

AROUND = 200
"""Lines before and after the quoted one that are read with it"""
READ_S = 10.0
COMPARED = 200
LOG = re.compile(r"(?:^|/)logs/(?:rank-(?P<rank>\d+)|launcher)\.log$")


def question(run: str, quote: Quote) -> wire.Logs | None:
    """What its node is to be asked for; None for a line that is from no log of the run."""
    m = LOG.search(quote.file)
    if m is None:
        return None
    return wire.Logs(run, int(m["rank"]) if m["rank"] else None, line=max(1, quote.line - AROUND))


def placed(quote: Quote, reply: wire.Reply) -> tuple[int, list[str]] | None:
    """(number of the first line, the lines); None where the log is gone, or says something else there by now."""
    first, text = reply.result.get("line"), reply.result.get("text")
    if not reply.ok or not isinstance(first, int) or not isinstance(text, str):
        return None
    texts = text.removesuffix("\n").split("\n")[: 2 * AROUND]
    at = quote.line - first
    same = 0 <= at < len(texts) and clean(redact(texts[at]))[:COMPARED] == quote.text[:COMPARED]
    return (first, texts) if same else None


class PlaceScreen(LogScreen):
    """`texts` begin with line `first`; `number` is the quoted one. All count from 1."""

    def __init__(
        self, desk: Desk, node: str, run: str, rank: int | None, first: int, texts: Sequence[str], number: int
    ) -> None:
        super().__init__(desk, node, run, rank)
        self.first, self.texts, self.number = first, texts, number
        self.fixed, self.in_sight = True, False

    def on_mount(self) -> None:
        self.pane.following = False
        super().on_mount()

    def lines(self, width: int, height: int) -> Sequence[Line]:
        if not self.fixed:
            return super().lines(width, height)
        return [numbered(at, text, at == self.number) for at, text in enumerate(self.texts, self.first)]

    def tick(self) -> None:
        super().tick()
        if self.fixed and self.pane.lines and not self.in_sight:
            self.in_sight = True
            self.pane.scroll_to(y=max(0, self.number - self.first - ABOVE), animate=False)

    def label(self) -> None:
        super().label()
        if self.fixed:
            where = _("{rank}, held at line {n}; f follows").format(rank=rank_name(self.rank), n=self.number)
            entitle(self.query_one("#log-panel"), where)

    def action_follow(self) -> None:
        if self.fixed:
            self.fixed, self.pane.following = False, False
        super().action_follow()
        self.tick()

    def action_rank(self, by: int) -> None:
        self.fixed = False
        super().action_rank(by)
