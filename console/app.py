"""The console: sections, theme, palette, and the one timer that moves what the nodes said onto the screen.

It decides nothing: data comes from the session's fleet, orders go through the session. The session is opened on a
thread of its own after the first paint, so SSH libraries load while something is already seen.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING, ClassVar, Literal

from textual.app import App
from textual.binding import Binding

from console.bindings import EVERYWHERE, bindings
from console.desktop import notification
from console.failure import Failure
from console.screens.alerts import AlertsScreen
from console.screens.base import DeckScreen
from console.screens.checks import ChecksScreen, begin
from console.screens.desk import Desk
from console.screens.fleet import FleetScreen
from console.screens.help import Help
from console.screens.herald import SHOWN_AT_ONCE, Herald
from console.screens.palette import Palette
from console.screens.runs import RunsScreen
from console.strings import _, plural
from console.widgets.sheet import Sheet
from console.widgets.themes import DARK, LIGHT

if TYPE_CHECKING:
    from agent import wire
    from console.session import Session

PUMP_EVERY_S = 0.125
TICK_EVERY_PUMPS = 4
"""Screens are renewed twice a second"""

Factory = Callable[[], "Session"]
Farewell = Callable[["Session | None"], str]


class TunedeckApp(App[None]):
    TITLE = "tunedeck"
    DEFAULT_MODE = "fleet"
    CSS_PATH = "console.tcss"
    COMMANDS: ClassVar = {Palette}
    BINDINGS = [*bindings(EVERYWHERE), Binding("ctrl+c", "help_quit", show=False, system=True)]  # noqa: RUF012

    def __init__(
        self,
        factory: Factory,
        *,
        failures: tuple[type[Exception], ...] = (Failure, OSError, ValueError),
        dark: bool = True,
        farewell: Farewell | None = None,
        ends_runs: bool = False,
        desk: Desk | None = None,
    ) -> None:
        super().__init__()
        self.register_theme(DARK)
        self.register_theme(LIGHT)
        self.theme = DARK.name if dark else LIGHT.name
        self.stylesheet = Sheet(self.get_css_variables())
        self.factory, self.failures = factory, failures
        self.farewell, self.ends_runs = farewell or runs_go_on, ends_runs
        self.desk = desk or Desk()
        self.opening: Future[Session] = Future()
        self.opener = threading.Thread(target=self.open_session, name="open-session", daemon=True)
        self.pumps = 0
        self.herald = Herald()
        self.add_mode("fleet", lambda: FleetScreen(self.desk))
        self.add_mode("runs", lambda: RunsScreen(self.desk))
        self.add_mode("checks", lambda: ChecksScreen(self.desk))
        self.add_mode("alerts", lambda: AlertsScreen(self.desk))
        self.add_mode("plan", self.plan_screen)

    def on_mount(self) -> None:
        self.call_after_refresh(self.opener.start)
        self.set_interval(PUMP_EVERY_S, self.pump)

    def open_session(self) -> None:
        """On a thread of its own: may import, read files and start links."""
        try:
            session = self.factory()
            session.start()
        except self.failures as error:
            self.opening.set_exception(error)
        else:
            self.opening.set_result(session)

    def pump(self) -> None:
        """Move what was heard into the model and, twice a second, the model onto the screen."""
        self.pumps += 1
        renew = self.pumps % TICK_EVERY_PUMPS == 0
        if self.desk.session is None:
            renew |= self.take_session()
        if self.desk.session is not None:
            self.desk.session.pump()
            renew |= self.desk.settle()
        if renew:
            self.cry(self.herald.news(self.desk.fleet))
            self.tick()

    def cry(self, news: list[tuple[str, wire.Alert]]) -> None:
        """Pop up what has begun to fire; ring where it is critical."""
        for node, alert in news[:SHOWN_AT_ONCE]:
            severity: Literal["warning", "error"] = "error" if alert.severity == "critical" else "warning"
            self.notify(f"{node}: {alert.text}", severity=severity, markup=False)
        if len(news) > SHOWN_AT_ONCE:
            more = plural("{n} more alert; 4 lists them.", "{n} more alerts; 4 lists them.", len(news) - SHOWN_AT_ONCE)
            self.notify(more, severity="warning", markup=False)
        critical = [f"{node}: {alert.text}" for node, alert in news if alert.severity == "critical"]
        if critical:
            self.bell()
            self.tell_desktop(critical[0] + (f" (+{len(critical) - 1})" if len(critical) > 1 else ""))

    def tell_desktop(self, text: str) -> None:
        """Textual has a bell and a clipboard, but no such call; it writes those as this does."""
        if self._driver is not None and not self.is_headless:
            self._driver.write(notification(text, os.environ))

    def take_session(self) -> bool:
        """Take over the session once it is open. True when there is something new to show."""
        if self.desk.trouble or not self.opening.done():
            if not self.desk.trouble and self.opener.ident is not None and not self.opener.is_alive():
                self.exit(
                    return_code=1, message=_("The console could not open its links; the reason is printed above.")
                )
            return False
        error = self.opening.exception()
        if error is not None:
            self.desk.trouble = str(error)
        else:
            self.desk.session = self.opening.result()
        return True

    def tick(self) -> None:
        """Renew the screen that is seen: the one in front, or the one behind a dialog."""
        for screen in reversed(self.screen_stack):
            if isinstance(screen, DeckScreen):
                if screen.whole and screen.is_mounted:  # what its panels hold comes after its header
                    screen.tick()
                return

    def plan_screen(self) -> DeckScreen:
        from console.screens.plan import PlanScreen  # brings the planner, which first paint can do without

        return PlanScreen(self.desk)

    async def action_section(self, name: str) -> None:
        """To a section's own list, leaving what was opened from it."""
        if self.current_mode == name:
            while len(self.screen_stack) > 1:
                await self.pop_screen()
        else:
            await self.switch_mode(name)

    def action_absent(self, name: str) -> None:
        self.notify(_("{name}: this version has no such section yet.").format(name=_(name)), markup=False)

    async def action_check_node(self, name: str) -> None:
        """Check a node and go where the results will stand."""
        node = self.desk.node(name)
        if node is not None and (why := begin(self.desk, node)):
            self.notify(why, severity="warning", markup=False)
        self.desk.look_at = name
        await self.action_section("checks")

    def action_triage(self, node: str, run: str) -> None:
        from console.screens.triage import TriageScreen  # brings the rules, which first paint can do without

        self.push_screen(TriageScreen(self.desk, node, run))

    def action_new_run(self) -> None:
        from console.screens.new_run import NewRunScreen  # brings the editor, which first paint can do without

        if self.desk.session is None:
            self.notify(_("The links to the nodes are not open yet."), markup=False)
        elif not isinstance(self.screen, NewRunScreen):
            self.push_screen(NewRunScreen(self.desk))

    def action_pause(self) -> None:
        self.desk.paused = not self.desk.paused
        self.tick()

    def action_theme(self) -> None:
        self.theme = LIGHT.name if self.theme == DARK.name else DARK.name

    def action_help(self) -> None:
        screen = self.screen
        if isinstance(screen, DeckScreen):
            title = "".join(text for text, _role in screen.title_line())
            self.push_screen(Help(title, (screen.PLACE, *screen.panes()), ("screen", EVERYWHERE)))

    def action_help_quit(self) -> None:
        text = _("q ends the demo and its runs.") if self.ends_runs else _("q leaves the console; runs go on.")
        self.notify(text, markup=False)

    async def action_quit(self) -> None:
        """Asks only where leaving ends something."""
        live = [run for run in self.desk.fleet.runs() if run.live]
        if not self.ends_runs or not live:
            self.leave(True)
            return
        from console.screens.leaving import question

        self.push_screen(question(live), self.leave)

    def leave(self, really: bool | None) -> None:
        if really:
            self.exit(message=self.farewell(self.desk.session))


def runs_go_on(session: Session | None) -> str:
    """What is left behind, for the terminal after the console has closed."""
    live = [run for run in session.fleet.runs() if run.live] if session is not None else []
    if not live:
        return ""
    names = ", ".join(_("{run} on {node}").format(run=run.state.run, node=run.node) for run in live[:5])
    more = ", …" if len(live) > 5 else ""
    return plural("{n} run goes on: ", "{n} runs go on: ", len(live)) + names + more


def run(
    factory: Factory,
    *,
    failures: tuple[type[Exception], ...] = (Failure, OSError, ValueError),
    dark: bool = True,
    farewell: Farewell | None = None,
    ends_runs: bool = False,
    names: Iterable[str] = (),
) -> int:
    """Open the console and stay until the user leaves. Returns the exit status.

    `factory` makes the session on a background thread after the first paint; `failures` are what it may raise, shown
    in the console in their own words. `farewell` gives the line printed after leaving. `ends_runs`: whoever called will
    end all runs after that, so leaving asks first. `names` of the nodes, as far as known, are shown at once.
    """
    desk = Desk.expecting(names)
    app = TunedeckApp(factory, failures=failures, dark=dark, farewell=farewell, ends_runs=ends_runs, desk=desk)
    app.run()
    if app.desk.session is not None:
        app.desk.session.close()
    return app.return_code or 0
