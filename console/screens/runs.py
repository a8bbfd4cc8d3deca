"""All runs of all nodes, live ones first."""

from __future__ import annotations

from functools import partial

from textual.app import ComposeResult

from console.bindings import bindings
from console.fleet import Run
from console.format import UNKNOWN, age, count, duration, figure, share, tokens_s
from console.screens.desk import Desk
from console.screens.listing import Listing
from console.screens.log import LogScreen
from console.screens.run_list import RunList, run_key
from console.strings import _, plural
from console.widgets.levels import run_phase
from console.widgets.paint import Line, one_line
from console.widgets.panel import Panel, entitle
from console.widgets.table import Column, Row, Table

COLUMNS = (
    Column(_("Run"), 18, grow=True),
    Column(_("Node"), 8),
    Column(_("State"), 11),
    Column(_("Step"), 11, right=True),
    Column("%", 4, right=True, drop=4),
    Column(_("Loss"), 7, right=True),
    Column(_("Speed"), 11, right=True, drop=2),
    Column(_("ETA"), 8, right=True, drop=1),
    Column(_("Age"), 5, right=True, drop=3),
    Column(_("Model"), 20, drop=5),
    Column(_("Method"), 6, drop=6),
)


def run_cells(desk: Desk, run: Run) -> tuple[Line, ...]:
    """A run as a row's cells; dim when it is over or its node is not heard."""
    state = run.state
    node = desk.node(run.node)
    believed = node is not None and node.live(desk.clock())
    role = "text" if believed and run.live else "dim"
    steps = f"{count(state.step)}/{count(state.total_steps)}"
    began = None if state.started_unix is None else desk.wall() - state.started_unix
    return (
        ((one_line(state.name) or state.run, "strong" if role == "text" else "dim"),),
        ((run.node, role if believed else "dead"),),
        run_phase(state) if believed or not run.live else ((f"? {state.phase}", "warn"),),
        ((steps if state.step is not None else UNKNOWN, role),),
        ((share(state.step, state.total_steps), role),),
        ((figure(state.loss), role),),
        ((tokens_s(state.tokens_per_s) if run.live else UNKNOWN, role),),
        ((duration(run.eta_s), role),),
        ((age(began), "dim"),),
        ((one_line(state.model).rsplit("/", 1)[-1] or UNKNOWN, "dim"),),
        ((state.method or UNKNOWN, "dim"),),
    )


def run_table(desk: Desk, runs: list[Run]) -> list[Row]:
    return [Row(run_key(run), partial(run_cells, desk, run)) for run in runs]


class RunsScreen(Listing, RunList):
    PLACE = "runs"
    BINDINGS = bindings("runs", "screen")

    def content(self) -> ComposeResult:
        with Panel(_("Runs"), id="all"):
            yield Table(COLUMNS, self.rows, empty=_("No runs yet. n starts one."), id="runs")

    def title_line(self) -> Line:
        return ((_("Runs"), "title"),)

    def rows(self) -> list[Row]:
        return run_table(self.desk, self.shown())

    def shown(self) -> list[Run]:
        return [
            run
            for run in self.desk.fleet.runs()
            if self.filter.passes(run.node, run.state.run, run.state.name, run.state.model, run.state.phase)
        ]

    def tick(self) -> None:
        super().tick()
        runs = self.desk.fleet.runs()
        live = sum(run.live for run in runs)
        title = _("{live} live, {all}").format(live=live, all=plural("{n} run in all", "{n} runs in all", len(runs)))
        entitle(self.query_one("#all"), f"{_('Runs')}: {title}")

    def action_log(self) -> None:
        if run := self.subject():
            self.app.push_screen(LogScreen(self.desk, run.node, run.state.run))
        else:
            self.app.notify(_("There is no run under the cursor."), markup=False)
