"""A screen from which runs are steered: what kill, pause, resume, export, snapshot and rollback have in common."""

from __future__ import annotations

from typing import Any

from agent import wire
from agent.wire import NEWEST
from console.bindings import Key
from console.fleet import Run
from console.screens.base import DeckScreen
from console.screens.desk import Draft, Origin
from console.screens.kill import ask_to_kill
from console.screens.orders import allowed, name_of, order, pause, pause_question, tell
from console.strings import _

FOR_LIVE = ("run.kill", "run.rollback", "run.pause", "run.snapshot")
FOR_ENDED = ("run.resume",)


class SteeringScreen(DeckScreen):
    def subject(self) -> Run | None:
        """The run that keys act on."""
        raise NotImplementedError

    def start(self) -> str | None:
        """The snapshot that the user chose; None for whatever is newest."""
        return None

    def useful(self, key: Key) -> bool:
        run = self.subject()
        return run is None or key.id not in (FOR_ENDED if run.live else FOR_LIVE)

    def action_kill(self) -> None:
        ask_to_kill(self, self.subject())

    def action_pause_run(self) -> None:
        run = self.subject()
        if run is not None and allowed(self, run, live=True):
            self.app.push_screen(pause_question(self, run), lambda yes: pause(self, run) if yes else None)

    def action_snapshot(self) -> None:
        run = self.subject()
        if run is not None and allowed(self, run, live=True):
            label = _("snapshot of {name}").format(name=name_of(run))
            order(self, run, label, wire.Steer(run.state.run, "snapshot"), lambda said: tell(self, run, said))

    def action_resume(self) -> None:
        from console.screens.resume import check_resume

        run = self.subject()
        if run is not None and allowed(self, run, live=False):
            check_resume(self, run, self.start())

    def action_fork(self) -> None:
        """The spec of the run, to be changed, over the chosen snapshot."""
        run = self.subject()
        if run is None or not allowed(self, run):
            return
        origin = Origin(run.node, run.state.run, self.start() or NEWEST)

        def read(result: dict[str, Any]) -> None:
            self.desk.draft = Draft(run.node, str(result.get("spec_text") or ""), f"{run.state.name}.yaml", origin)
            self.app.call_later(self.app.run_action, "new_run")

        label = _("reading the spec of {name}").format(name=name_of(run))
        order(self, run, label, wire.ReadSpec(run.state.run), read)

    def action_triage(self) -> None:
        run = self.subject()
        if run is not None:
            self.app.call_later(self.app.run_action, f"triage({run.node!r}, {run.state.run!r})")

    def action_export(self) -> None:
        from console.screens.export import ask_to_export

        run = self.subject()
        if run is not None and allowed(self, run):
            ask_to_export(self, run, self.start())
