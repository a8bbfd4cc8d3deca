"""What every full screen has: a header line, its content, a line of keys, and a tick that renews what is seen."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.app import ComposeResult
from textual.screen import Screen

from console.bindings import EVERYWHERE, Key
from console.format import clock, duration, percent
from console.screens.attention import attention
from console.screens.desk import Desk
from console.strings import _, plural
from console.widgets.keybar import KeyBar
from console.widgets.levels import utilisation
from console.widgets.lines import Lines
from console.widgets.paint import EMPTY, Line, join, spread

WIDE = 120


class DeckScreen(Screen[None]):
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]  # noqa: RUF012
    PLACE = ""
    """What the table of bindings calls this screen"""

    def __init__(self, desk: Desk) -> None:
        super().__init__()
        self.desk = desk

    async def on_event(self, event: events.Event) -> None:
        """A screen that was taken away before it was whole has nothing to show and nothing to mount."""
        if self.whole or not isinstance(event, (events.Mount, events.ScreenResume)):
            await super().on_event(event)

    @property
    def whole(self) -> bool:
        """All its parts are there: it is composed, and neither it nor the app is being taken apart."""
        return self.app.is_running and self.is_attached and bool(self.query("#header"))

    def compose(self) -> ComposeResult:
        yield Lines(self.header, id="header", focus=False)
        yield from self.content()
        yield from self.foot()
        yield KeyBar((self.PLACE, "screen", EVERYWHERE), self.useful, id="keys")

    def content(self) -> ComposeResult:
        raise NotImplementedError

    def foot(self) -> ComposeResult:
        """What stands between the content and the line of keys."""
        yield from ()

    def useful(self, key: Key) -> bool:  # noqa: ARG002
        """Whether a key makes sense now; those that do not are left out of the line of keys, and say why when used."""
        return True

    def title_line(self) -> Line:
        """Where one is, for the left of the header."""
        raise NotImplementedError

    def panes(self) -> tuple[str, ...]:
        """Kinds of panes whose keys work here."""
        found = {pane.keys_place for pane in self.query(Lines) if pane.can_focus}
        return tuple(sorted(found, reverse=True))

    def tick(self) -> None:
        """Renew what is on the screen from the model; called at most twice a second."""
        if self.desk.paused:
            self.query_one("#header", Lines).renew()
            return
        for pane in self.query(Lines):
            if pane.display:
                pane.renew()

    def on_mount(self) -> None:
        self.tick()

    def on_screen_resume(self, _event: events.ScreenResume) -> None:
        self.tick()

    def action_back(self) -> None:
        if len(self.app.screen_stack) > 1:
            self.dismiss()

    def header(self, width: int, height: int) -> Sequence[Line]:  # noqa: ARG002
        left: Line = ((" tunedeck  ", "dim"), *self.title_line())
        return [spread(left, join([self.waiting(), self.held(), *self.totals(width)]), width - 1)]

    def held(self) -> Line:
        return ((_(" PAUSED "), "badge"),) if self.desk.paused else EMPTY

    def waiting(self) -> Line:
        """The oldest order still in flight."""
        if not self.desk.pending:
            return EMPTY
        order = self.desk.pending[0]
        return ((f"⋯ {order.label()} {duration(self.desk.clock() - order.since_monotonic)}", "accent"),)

    def totals(self, width: int) -> list[Line]:
        """The fleet in a line, the most important last to go where it is narrow."""
        fleet, now = self.desk.fleet, self.desk.clock()
        up = sum(node.live(now) for node in fleet.nodes.values())
        gpus = [gpu for node in fleet.nodes.values() if node.live(now) for gpu in node.state.gpus.values()]
        runs = sum(run.live for run in fleet.runs())
        alerts = len(attention(fleet, now))
        wide = width >= 100
        parts: list[Line] = []
        if fleet.simulated:
            parts.append(((_("SIMULATED GPUs") if wide else _("SIMULATED"), "warn"),))
        parts.append((((_("{up}/{n} nodes")).format(up=up, n=len(fleet.nodes)), "text"),))
        if gpus and wide:
            parts.append(
                ((plural("{n} GPU", "{n} GPUs", len(gpus)), "text"), (" " + percent(utilisation(gpus)), "dim"))
            )
        parts.append(((plural("{n} run", "{n} runs", runs), "ok" if runs else "text"),))
        parts.append(((plural("{n} alert!", "{n} alerts!", alerts), "bad"),) if alerts else ((_("no alerts"), "dim"),))
        if wide:
            parts.append(((clock(self.desk.wall()), "dim"),))
        return parts
