"""Why a run died or stalls: evidence from its node, the verdict on it, and a key for each remedy that is ours."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path

from textual import on
from textual.app import ComposeResult

from agent import wire
from agent.triage.judge import place
from agent.triage.verdict import FAULT, Fault, Quote
from console.bindings import bindings
from console.failure import Failure
from console.format import age
from console.incident import EVIDENCE_S, Found, Incident, look
from console.screens.desk import Desk
from console.screens.dialogs import Notice
from console.screens.log import rank_name
from console.screens.orders import name_of
from console.screens.place import READ_S, PlaceScreen, placed, question
from console.screens.quote import QuoteScreen
from console.screens.remedy import RemedyScreen
from console.strings import _
from console.triage.page import headline, read_line
from console.widgets.lines import Lines
from console.widgets.paint import EMPTY, Line, fit, one_line, wrapped
from console.widgets.panel import Panel
from console.widgets.table import Column, Row, Table

LABEL = 10
COLUMNS = (Column(_("Where"), 26), Column(_("Line"), 30, grow=True))


class TriageScreen(RemedyScreen):
    PLACE = "triage"
    BINDINGS = bindings("triage", "screen")

    def __init__(self, desk: Desk, node: str, run: str) -> None:
        super().__init__(desk, node, run)
        self.incident: Incident | None = None
        self.trouble = ""
        self.busy = ""

    def content(self) -> ComposeResult:
        with Panel(_("Verdict"), id="cause-panel"):
            yield Lines(self.cause, id="cause")
        with Panel(_("Evidence"), id="evidence-panel"):
            yield Table(COLUMNS, self.rows, empty=_("No line is quoted."), id="evidence")
        with Panel(_("Set aside, and what to collect"), id="aside-panel"):
            yield Lines(self.aside, id="aside")

    def title_line(self) -> Line:
        run = self.subject()
        name = name_of(run) if run is not None else self.run_id
        return ((_("Triage"), "title"), (f"  {one_line(name)}", "strong"), (_(" on {n}").format(n=self.node), "dim"))

    def on_mount(self) -> None:
        super().on_mount()
        self.query_one(Table).focus()
        self.action_triage()

    # Gathering

    def action_triage(self) -> None:
        """Gather and judge, also once more."""
        run = self.subject()
        if run is None or self.busy:
            return
        self.busy, self.trouble = _("gathering evidence on {node}…").format(node=self.node), ""
        label = _("evidence of {name}").format(name=name_of(run))
        self.desk.ask(label, self.node, wire.Evidence(self.run_id, alias=self.node), EVIDENCE_S, self.gathered)
        self.tick()

    def gathered(self, reply: wire.Reply) -> None:
        if not reply.ok:
            self.busy, self.trouble = "", f"{reply.error} {reply.hint}".strip()
            return
        self.busy = _("reading the evidence…")
        found: Future[Found | str] = Future()
        work = partial(look, reply.result, self.run_id, self.desk.wall(), found)
        threading.Thread(target=work, name="triage", daemon=True).start()
        self.desk.await_result(lambda: self.busy, found, self.judged)

    def judged(self, found: Found | str) -> None:
        self.busy = ""
        if isinstance(found, str):
            self.trouble = found
        else:
            self.incident, self.found = found
        if self.is_attached:
            self.tick()

    # What is shown

    def cause(self, width: int, _height: int) -> Sequence[Line]:
        lines: list[Line] = [((self.busy, "accent"),)] if self.busy else []
        if self.trouble:
            lines += wrapped(f"✕ {self.trouble}", width, "bad")
        if self.found is None:
            return lines
        role = "bad" if self.found.verdict == FAULT else "text"
        lines += wrapped(headline(self.found), width, role)
        for fault in self.found.faults:
            lines += [EMPTY, *self.fault(fault, width)]
        return lines

    def fault(self, fault: Fault, width: int) -> list[Line]:
        facts = (
            (_("where"), place(fault.culprit) or _("not known"), "strong"),
            (_("do"), fault.remedy, "strong"),
            (_("for"), _(fault.owner), "text"),
            (_("why"), fault.reason, "text"),
            (_("sure"), f"{_(fault.sureness())} ({fault.confidence:.0%})", "text"),
        )
        lines: list[Line] = [((fault.kind, "title"),)]
        for name, value, role in facts:
            first, *others = wrapped(one_line(value), max(8, width - LABEL), role) or [EMPTY]
            lines += [((fit(name, LABEL), "dim"), *first), *(((" " * LABEL, "dim"), *line) for line in others)]
        return lines

    def quotes(self) -> list[Quote]:
        return [quote for fault in self.found.faults for quote in fault.evidence] if self.found is not None else []

    def rows(self) -> list[Row]:
        return [
            Row(str(number), (((short(quote), "dim"),), ((one_line(quote.text.strip()), "text"),)))
            for number, quote in enumerate(self.quotes())
        ]

    def aside(self, width: int, _height: int) -> Sequence[Line]:
        if self.found is None or self.incident is None:
            return []
        told = [f"{one.count} × {_(one.what)}: {_(one.why)}" for one in self.found.asides]
        told += [_("to collect: {what}").format(what=what) for what in self.found.following]
        told += [*self.found.notes, *(_("left out: {what}").format(what=what) for what in self.incident.left_out)]
        old = age(self.desk.wall() - self.incident.taken_unix)
        told.append(_("{what}, {age} ago, kept in {file}").format(
            what=read_line(self.found), age=old, file=self.incident.archive))  # fmt: skip
        return [line for text in told for line in wrapped(f"· {text}", width, "dim")]

    # Keys

    @on(Table.Chosen)
    def open_quote(self) -> None:
        """The quoted line in the run's log where that is still there, else in the saved copy."""
        cursor, quotes = self.query_one(Table).cursor, self.quotes()
        if cursor is None or int(cursor) >= len(quotes):
            return
        quote, node = quotes[int(cursor)], self.desk.node(self.node)
        asked = question(self.run_id, quote)
        if asked is None or node is None or not node.live(self.desk.clock()):
            self.show_copy(quote)
            return
        label = _("reading the log of {rank}").format(rank=rank_name(asked.rank))
        self.desk.ask(label, self.node, asked, READ_S, lambda reply: self.show_place(quote, asked.rank, reply))
        self.tick()

    def show_place(self, quote: Quote, rank: int | None, reply: wire.Reply) -> None:
        """A user who went elsewhere meanwhile is not called back."""
        found = placed(quote, reply)
        if self.app.screen is not self:
            return
        if found is None:
            self.show_copy(quote)
            return
        self.app.push_screen(PlaceScreen(self.desk, self.node, self.run_id, rank, *found, quote.line))

    def show_copy(self, quote: Quote) -> None:
        if self.incident is None:
            return
        try:
            texts = self.incident.lines(quote)
        except Failure as error:
            self.app.push_screen(Notice(_("The line cannot be shown in its place"), error.message, error.hint))
            return
        self.app.push_screen(QuoteScreen(self.desk, short(quote).rpartition(":")[0], texts, quote.line))

    def action_save(self) -> None:
        """The evidence as one file that triages the same elsewhere."""
        if self.incident is None:
            self.app.notify(_("There is no evidence yet."), markup=False)
            return
        try:
            target = self.incident.copied_to(Path.cwd())
        except OSError as error:
            self.app.push_screen(Notice(_("The incident was not saved"), str(error), _("Start in another folder.")))
            return
        text = _("saved as {file}; `tunedeck triage {file}` reads it anywhere")
        self.app.notify(text.format(file=target), markup=False)


def short(quote: Quote) -> str:
    """Its place without the names of archive and run."""
    parts = quote.file.split("/")
    return f"{'/'.join(parts[2:][-2:] or parts[-1:])}:{quote.line}"
