"""Plan: what fits, on which cards, and how long. Keys move the knobs; the answer follows at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual import on
from textual.app import ComposeResult
from textual.containers import Container, Horizontal
from textual.message import Message
from textual.widgets import Input

from console.bindings import bindings
from console.plan import sheet
from console.plan.board import KNOBS, LABELS, Board
from console.screens.base import DeckScreen
from console.screens.desk import Desk
from console.strings import _
from console.widgets.lines import Lines
from console.widgets.paint import Line
from console.widgets.panel import Panel, entitle
from console.widgets.table import Column, Row, Table
from jobs.plan.refusal import PlanError

COLUMNS = (Column(_("Knob"), 11), Column(_("Value"), 12, grow=True))
CLAIM = "claim"


class Knobs(Table):
    """Left and right turn what the cursor is on."""

    BINDINGS = bindings("knobs")
    keys_place = "knobs"

    class Turned(Message):
        """The knob under the cursor is to move by `step`."""

        def __init__(self, step: int) -> None:
            super().__init__()
            self.step = step

    def action_turn(self, step: int) -> None:
        self.post_message(self.Turned(step))


class PlanScreen(DeckScreen):
    PLACE = "plan"
    BINDINGS = bindings("plan", "screen")

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.board = Board.of(desk.fleet)
        self.untouched = True
        self.entering = ""
        """The knob that is being typed, or CLAIM"""
        self.drawn: dict[tuple[str, int, int], Sequence[Line]] = {}

    def content(self) -> ComposeResult:
        with Horizontal(id="plan"):
            with Panel(_("Knobs"), id="knobs-panel"):
                yield Knobs(COLUMNS, self.rows, id="knobs")
            with Container(id="plan-told"):
                with Panel(id="answer-panel"):
                    yield Lines(self.kept("answer", sheet.answer), id="answer")
                with Panel(_("Elsewhere, and what moves it"), id="around-panel"):
                    yield Lines(self.kept("around", sheet.around), id="around")

    def foot(self) -> ComposeResult:
        entry = Input(id="entry", compact=True)
        entry.display = False
        yield entry

    def kept(self, name: str, source: Callable[[Board, int, int], list[Line]]) -> Callable[[int, int], Sequence[Line]]:
        """Computed once for a board and a size, not with every tick."""

        def lines(width: int, height: int) -> Sequence[Line]:
            place = (name, width, height)
            if place not in self.drawn:
                self.drawn[place] = source(self.board, width, height)
            return self.drawn[place]

        return lines

    def on_mount(self) -> None:
        entitle(self.query_one("#knobs-panel"), _("Knobs"), _("← → turn, enter types"))
        self.take(self.board)
        super().on_mount()
        self.query_one("#knobs").focus()

    def title_line(self) -> Line:
        return ((_("Plan"), "title"),)

    def rows(self) -> list[Row]:
        return [Row(knob, (((LABELS[knob], "dim"),), ((self.board.shown(knob), "strong"),))) for knob in KNOBS]

    def tick(self) -> None:
        if self.untouched and (board := Board.of(self.desk.fleet)) != self.board:  # nodes are heard after the start
            self.take(board)
        super().tick()

    def take(self, board: Board) -> None:
        """Show another board."""
        self.board, self.drawn = board, {}
        form = board.form
        entitle(self.query_one("#answer-panel"), f"{form.shape.name} · {form.work.cards} × {form.card.name}")
        for pane in self.query(Lines):
            pane.renew()

    def attempt(self, change: Callable[[], Board]) -> bool:
        """Show what a change comes to, or say why it cannot be."""
        try:
            self.take(change())
        except PlanError as error:
            self.app.notify(str(error), severity="warning", markup=False)
            return False
        self.untouched = False
        return True

    @property
    def knob(self) -> str:
        return self.query_one("#knobs", Table).cursor or KNOBS[0]

    @on(Knobs.Turned)
    def turn(self, event: Knobs.Turned) -> None:
        self.attempt(lambda: self.board.turn(self.knob, event.step, self.desk.fleet))

    def action_fit(self) -> None:
        if self.attempt(self.board.fitted):
            self.query_one("#answer", Lines).scroll_home(animate=False)

    def action_claim(self) -> None:
        self.enter(CLAIM, _("a seller's claim, such as: 70B LoRA on 4 x RTX 3090"))

    @on(Table.Chosen, "#knobs")
    def type_value(self) -> None:
        self.enter(self.knob, _("{knob}: a value; enter takes it, esc leaves it").format(knob=LABELS[self.knob]))

    def enter(self, what: str, placeholder: str) -> None:
        entry = self.query_one("#entry", Input)
        self.entering = what
        entry.value, entry.placeholder, entry.display = "", placeholder, True
        entry.focus()

    @on(Input.Submitted, "#entry")
    def entered(self, event: Input.Submitted) -> None:
        text, what = event.value, self.entering
        change = (lambda: self.board.held(text)) if what == CLAIM else (lambda: self.board.typed(what, text))
        if not text.strip() or self.attempt(change):
            self.leave_entry()
            self.query_one("#around", Lines).scroll_home(animate=False)

    def leave_entry(self) -> None:
        self.query_one("#entry").display = False
        self.query_one("#knobs").focus()

    def action_back(self) -> None:
        if self.query_one("#entry").display:
            self.leave_entry()
        else:
            super().action_back()
