"""Going back to an earlier state of a live run: asked once, with everything named that will happen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import Button, Input

from agent import wire
from console.bindings import bindings
from console.fleet import History, Run
from console.format import count
from console.screens.base import DeckScreen
from console.screens.branches import abandoned, leads, present
from console.screens.dialogs import Asking, paragraphs
from console.screens.orders import at_step, doubts, name_of, order, tell
from console.screens.shelf import Shelf
from console.strings import _, plural
from console.widgets.choice import Choice
from console.widgets.lines import Lines
from console.widgets.paint import Line
from console.widgets.panel import entitle
from console.widgets.tick import Tick

RENEW_S = 0.5


@dataclass(frozen=True, slots=True)
class Wish:
    """Where to, and how to go on from there. Without a `snapshot` it is for the job to find the one meant by `step`."""

    snapshot: str | None
    step: int
    learning_rate: float | None = None
    skip_data: bool = False

    def args(self) -> dict[str, Any]:
        where = {"step": self.step} if self.snapshot is None else {"snapshot": self.snapshot}
        rate = {} if self.learning_rate is None else {"lr": self.learning_rate}
        return where | rate | ({"skip_data": True} if self.skip_data else {})


def ask_to_roll_back(screen: DeckScreen, run: Run, shelf: Shelf, history: History, chosen: str | None) -> None:
    def roll_back(wish: Wish | None) -> None:
        if wish is not None:
            label = _("rolling {name} on {node} back").format(name=name_of(run), node=run.node)
            body = wire.Steer(run.state.run, "rollback", wish.args())
            order(screen, run, label, body, lambda said: tell(screen, run, said))

    screen.app.push_screen(RollBack(screen, run, shelf, history, chosen), roll_back)


class RollBack(Asking["Wish | None"]):
    """Dismissed with a Wish only when the user said yes."""

    BINDINGS = bindings("question")

    def __init__(self, screen: DeckScreen, run: Run, shelf: Shelf, history: History, chosen: str | None = None) -> None:
        super().__init__()
        self.behind, self.run, self.shelf, self.history = screen, run, shelf, history
        self.chosen = shelf.named(chosen) or self.newest(run.state.step or 0)

    def compose(self) -> ComposeResult:
        start = "" if self.chosen is None else str(self.chosen.step)
        with Vertical(id="dialog") as box:
            entitle(box, _("Roll back a run"))
            yield Lines(self.words, id="words", focus=False)
            with Horizontal(id="fields"):
                yield Choice(_("To step"), Input(start, id="step", type="integer", compact=True))
                rate = Input(placeholder=_("as it was there"), id="rate", type="number", compact=True)
                yield Choice(_("Learning rate"), rate)
            yield Tick(_("skip the examples seen since then"), id="skip", compact=True)
            with Horizontal(id="answers"):
                yield Button(_("No (n)"), id="no", compact=True)
                yield Button(_("Roll back (y)"), id="yes", variant="error", compact=True)

    def on_mount(self) -> None:
        self.query_one("#no", Button).focus()
        self.set_interval(RENEW_S, self.judge)
        self.judge()

    def newest(self, before: int) -> wire.SnapshotState | None:
        """The newest usable snapshot earlier than a step, on the way that training has come; the best one first."""
        path = present(self.history)
        found = [one for one in self.shelf.usable() if one.step < before and leads(path, one.branch, one.step)]
        good = [one for one in found if one.loss is None or math.isfinite(one.loss)]
        return max(good or found, key=lambda one: (one.step, one.branch), default=None)

    def state(self) -> wire.RunState:
        """As it is by now."""
        run = self.behind.desk.run(self.run.node, self.run.state.run)
        return (run or self.run).state

    def wish(self) -> Wish | str:
        """What was filled in, or what is wrong with it."""
        step, rate = self.query_one("#step", Input).value.strip(), self.query_one("#rate", Input).value.strip()
        now = self.state().step or 0
        if not step.isdecimal():
            return _("Give the step to go back to.")
        if int(step) > now:
            return _("Step {step} is ahead; training is at {now}.").format(step=count(int(step)), now=count(now))
        try:
            given = float(rate) if rate else None
        except ValueError:
            given = math.nan
        if given is not None and not (math.isfinite(given) and given > 0):
            return _("The learning rate must be a positive number.")
        there = self.target(int(step))
        skip = self.query_one("#skip", Tick).value
        return Wish(None, int(step), given, skip) if there is None else Wish(there.name, there.step, given, skip)

    def target(self, step: int) -> wire.SnapshotState | None:
        """The snapshot that is gone back to for a step: the chosen one, or the newest at or before it."""
        if self.chosen is not None and step == self.chosen.step:
            return self.chosen
        return self.newest(step + 1)

    def words(self, width: int, _height: int) -> Sequence[Line]:
        wish = self.wish()
        where = {"run": self.run.state.run, "node": self.run.node}
        if isinstance(wish, str):
            first = _("Roll {run} on {node} back?").format(**where)
            return [*paragraphs([first], width), *paragraphs([wish], width)]
        return paragraphs([self.question(wish), *self.outcome(wish), *doubts(self.behind, self.run)], width)

    def question(self, wish: Wish) -> str:
        now = at_step(Run(self.run.node, self.state()))
        words = {"run": self.run.state.run, "node": self.run.node, "now": now, "step": count(wish.step)}
        if wish.snapshot is None:
            return _("Roll {run} on {node} back from step {now} to step {step} or before?").format(**words)
        said = _("Roll {run} on {node} back from step {now} to step {step} ({snapshot})?")
        return said.format(**words, snapshot=wish.snapshot)

    def outcome(self, wish: Wish) -> list[str]:
        there = self.shelf.named(wish.snapshot)
        if there is None:
            return [_("No snapshot on disk is that early; the state in memory is taken if it is not later.")]
        lost = abandoned(self.history, there.branch, there.step, self.state().step or 0)
        left = plural("{n} step is abandoned", "{n} steps are abandoned", lost)
        text = _("{left} and stays as a branch.") if lost == 1 else _("{left} and stay as a branch.")
        return [text.format(left=left)]

    def judge(self) -> None:
        self.query_one("#words", Lines).renew()
        ended = self.state().phase == "ended"
        self.query_one("#yes", Button).disabled = ended or isinstance(self.wish(), str)

    @on(Input.Changed)
    @on(Tick.Changed)
    def changed(self) -> None:
        self.judge()

    @on(Input.Submitted)
    def onward(self) -> None:
        self.query_one("#no", Button).focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.action_answer(event.button.id == "yes")

    def action_answer(self, yes: bool) -> None:
        wish = self.wish()
        if not yes:
            self.dismiss(None)
        elif isinstance(wish, Wish) and not self.query_one("#yes", Button).disabled:
            self.dismiss(wish)
