"""One node with one run at a time: started, observed, and made to go on after what was done to it."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

from agent import family, kept, wire
from jobs import snapshot
from jobs.run_folder import RunFolder
from tests import trainings
from tests.chaos.observed import KEEP_LAST, Figures, Run, command
from tests.chaos.outcome import Outcome
from tests.fakes.node import Console, Node, until

STEPS = {1: 400, 2: 120}
"""By ranks: some ten seconds of training."""
EVERY = 5
PROOF_STEPS = 3
PATIENCE_S = 120.0


def spec(data: Path, world: int) -> str:
    return (
        f"name: chaos\nmodel: {trainings.MODEL}\npython: {sys.executable}\ndata: {{path: {data}, max_length: 64}}\n"
        f"lora: {{dropout: 0.1}}\ntrain: {{steps: {STEPS[world]}, accumulation: 2, learning_rate: 1e-4}}\n"
        f"hardware: {{processes: {world}, device: cpu}}\n"
        f"snapshots: {{every: {EVERY}, keep_days: 0, keep_last: {KEEP_LAST}, keep_best: 1}}\n"
    )


class Lane:
    def __init__(self, home: Path, world: int) -> None:
        self.node, self.world = Node(home), world
        self.text = spec(trainings.make_data(home), world)
        self.console = self.node.console()
        self.reference: dict[int, Figures] = {}
        self.run: Run | None = None
        self.owed: list[Outcome] = []
        """Kills after which the run has not yet been seen to go on."""
        self.outcomes: list[Outcome] = []

    def launch(self) -> Run:
        reply = self.console.ask(wire.Launch(self.text, "chaos.yaml", force=True), deadline_s=PATIENCE_S)
        assert reply.ok, reply
        return Run(RunFolder.inside(self.node.state.runs, reply.result["run"]), self.reference)

    def learn(self) -> None:
        """The undisturbed run."""
        run = self.launch()
        until(lambda: run.ended, 5 * PATIENCE_S)
        run.read()
        assert run.completed and len(run.steps) == STEPS[self.world], kept.read(run.folder)
        self.reference = run.steps
        self.say("the undisturbed run is done")

    def say(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {self.world} ranks: {text}", file=sys.stderr, flush=True)

    def give_up(self) -> None:
        """After a fault nothing can be said of this run."""
        if self.run is not None and not self.run.ended:
            self.console.ask(wire.Kill(self.run.folder.name, grace_s=0), deadline_s=PATIENCE_S)
        self.run, self.owed = None, []

    def training(self) -> Run:
        """A run that trains, has a snapshot and some way to go; what was owed is settled by then."""
        self.settle()
        if self.run is not None and not self.run.ended and self.run.step > STEPS[self.world] * 0.8:
            until(lambda: self.run is None or self.run.ended, PATIENCE_S)
            self.settle()
        if self.run is None or self.run.ended:
            self.run = self.launch()
        run = self.run
        until(lambda: run.trained(PROOF_STEPS) and snapshot.names(run.folder), PATIENCE_S)
        return run

    def settle(self) -> None:
        """Sees the run go on from where its kills left it."""
        run = self.run
        if run is None:
            return
        if run.ended and self.owed:
            self.resume(run)
        until(lambda: run.trained(PROOF_STEPS), PATIENCE_S)
        run.read()
        failed = run.ended and not run.completed
        for outcome in self.owed:
            outcome.fault = outcome.fault or (f"run ended: {kept.read(run.folder)}" if failed else "")
            outcome.exact = not run.wrong and not failed
        if not self.owed and run.wrong:
            self.outcomes[-1].fault = f"{run.wrong[:3]}"
        self.owed, run.wrong = [], []
        if failed:
            self.run = None

    def resume(self, run: Run, order: str = "") -> None:
        run.read()
        newest, refused = snapshot.newest(run.folder)
        assert newest is not None and not refused, refused
        reply = self.console.ask(wire.Resume(run.folder.name), order, deadline_s=PATIENCE_S)
        assert reply.ok and reply.result["snapshot"] == newest.name, (reply, newest.name)
        assert reply.result["label"] == "exact", reply
        run.since_resume = 0
        before = len(run.resumes)
        run.trained(0)
        assert not run.ended or len(run.resumes) > before, kept.read(run.folder)

    def fell_agent(self) -> None:
        self.node.daemon().send(signal.SIGKILL)
        self.console.close()
        self.node.consoles.remove(self.console)
        self.console = self.attach()

    def attach(self) -> Console:
        console = self.node.console()
        console.welcome()
        return console

    def strangers(self, run: Run) -> list[str]:
        """Processes of this node that belong neither to the live run nor to the live agent, after a moment."""
        found: list[str] = []

        def none() -> bool:
            now = kept.read(run.folder)
            mine = [one.pid for one in ((now.keeper, now.launcher) if now else ()) if one]
            roots = {self.node.daemon().pid, self.console.process.pid, *mine}
            known = family.below(roots, family.own_processes())
            found[:] = [f"{pid} {command(pid)}" for pid in self.node.processes() if pid not in known]
            return not found

        try:
            until(none, 5.0)
        except AssertionError:
            return found
        return []
