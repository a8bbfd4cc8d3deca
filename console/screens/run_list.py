"""A screen with a table of runs, the one under the cursor being what keys act on."""

from __future__ import annotations

from textual import on

from console.fleet import Run
from console.screens.orders import allowed
from console.screens.run import RunScreen
from console.screens.steering import SteeringScreen
from console.widgets.table import Table


def run_key(run: Run) -> str:
    return f"{run.node}\n{run.state.run}"


def parted(key: str | None) -> tuple[str, str] | None:
    """Node and run of a row's key."""
    node, found, run = (key or "").partition("\n")
    return (node, run) if found else None


class RunList(SteeringScreen):
    def on_mount(self) -> None:
        super().on_mount()
        self.query_one(Table).focus()

    def subject(self) -> Run | None:
        place = parted(self.query_one(Table).cursor)
        return self.desk.run(*place) if place else None

    @on(Table.Chosen)
    def open_run(self) -> None:
        if run := self.subject():
            self.app.push_screen(RunScreen(self.desk, run.node, run.state.run))

    def action_roll_back(self) -> None:
        """Where its snapshots and its loss are seen; the question comes there by itself."""
        run = self.subject()
        if run is not None and allowed(self, run, live=True):
            self.app.push_screen(RunScreen(self.desk, run.node, run.state.run, rolling_back=True))
