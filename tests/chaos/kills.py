"""The ways to kill what keeps a run alive, and what must be true right afterwards."""

from __future__ import annotations

import random
import signal
import time

from agent import kept, wire
from jobs.identity import ProcessIdentity
from jobs.snapshot import Snapshot, SnapshotError
from tests.chaos.lane import PATIENCE_S, Lane
from tests.chaos.observed import Run, staging, stopped
from tests.chaos.outcome import Outcome
from tests.fakes.node import until

LOADING_SHARE, LOADING_S = 0.25, 3.0
TRAINING_S = 1.0
ORDER_S = 0.6


class Kills:
    """Those of one lane, their moments drawn from `chance`."""

    def __init__(self, lane: Lane, chance: random.Random) -> None:
        self.lane, self.chance = lane, chance

    def carry_out(self, kinds: list[str]) -> None:
        for kind in kinds:
            outcome = Outcome(kind, self.lane.world, "")
            self.lane.outcomes.append(outcome)
            try:
                self.one(outcome)
            except (AssertionError, SnapshotError, OSError) as wrong:
                outcome.fault = f"{type(wrong).__name__}: {wrong}"[:400]
                self.lane.give_up()
            self.lane.say(f"{kind} {outcome.where}")
        try:
            self.lane.settle()
        except (AssertionError, SnapshotError, OSError) as wrong:
            self.lane.outcomes[-1].fault = f"{type(wrong).__name__}: {wrong}"[:400]

    def one(self, outcome: Outcome) -> None:
        run, kind = self.lane.run, outcome.kind
        if run is not None and run.ended and self.lane.owed:
            if kind == "agent":
                self.kill_agent_at_work(outcome, run)
                return
            self.lane.resume(run)
            if kind in ("rank", "torchrun") and self.chance.random() < LOADING_SHARE:
                self.kill_loading(outcome, run)
                return
        run = self.lane.training()
        time.sleep(self.chance.uniform(0, TRAINING_S))
        if run.ended:  # it came to its end meanwhile
            run = self.lane.training()
        getattr(self, f"kill_{kind}")(outcome, run)

    def kill_loading(self, outcome: Outcome, run: Run) -> None:
        find = run.launcher if outcome.kind == "torchrun" else lambda: run.rank(self.chance.randrange(self.lane.world))
        until(find, PATIENCE_S)
        time.sleep(self.chance.uniform(0, LOADING_S))
        self.fell(outcome, run, find(), "loading")

    def kill_rank(self, outcome: Outcome, run: Run) -> None:
        self.fell(outcome, run, run.rank(self.chance.randrange(self.lane.world)), "training")

    def kill_torchrun(self, outcome: Outcome, run: Run) -> None:
        self.fell(outcome, run, run.launcher(), "training")

    def kill_writer(self, outcome: Outcome, run: Run) -> None:
        while True:
            who = run.rank(0)
            if who is None or run.ended:
                run = self.lane.training()
                continue
            if self.stopped_while_writing(run, who):
                self.fell(outcome, run, who, "writing")
                return

    def stopped_while_writing(self, run: Run, who: ProcessIdentity) -> bool:
        deadline = time.monotonic() + 1.0
        while not staging(run.folder):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.0002)
        time.sleep(self.chance.uniform(0, 0.004))
        who.send(signal.SIGSTOP)
        until(lambda: who.state() == "gone" or stopped(who.pid))
        if staging(run.folder):
            return True
        who.send(signal.SIGCONT)
        return False

    def fell(self, outcome: Outcome, run: Run, who: ProcessIdentity | None, where: str) -> None:
        """The run must end by this, leaving nothing but what it had published."""
        before = run.believed()
        hit = who is not None and who.send(signal.SIGKILL)
        outcome.where = where if hit else "too late"
        until(lambda: run.ended, PATIENCE_S)
        outcome.lost, outcome.left = run.lost(before), run.left()
        self.lane.owed.append(outcome)
        if run.completed:  # it was quicker
            self.lane.settle()

    def kill_keeper(self, outcome: Outcome, run: Run) -> None:
        before, now = run.believed(), kept.read(run.folder)
        assert now is not None and now.keeper is not None
        outcome.where = "training"
        now.keeper.send(signal.SIGKILL)
        until(lambda: self.other_keeper(run, now.keeper), PATIENCE_S)
        self.goes_on(outcome, run, before)

    def other_keeper(self, run: Run, than: ProcessIdentity | None) -> bool:
        now = kept.read(run.folder)
        return now is not None and now.keeper not in (None, than)

    def kill_agent(self, outcome: Outcome, run: Run) -> None:
        before = run.believed()
        outcome.where = "training"
        self.lane.fell_agent()
        self.goes_on(outcome, run, before)

    def kill_agent_at_work(self, outcome: Outcome, run: Run) -> None:
        """In the midst of a resume; the same order to the next agent must find it done, or do it."""
        before = run.believed()
        order = f"again-{self.chance.getrandbits(64):x}"
        outcome.where = "resuming"
        self.lane.console.give(wire.Resume(run.folder.name), order, PATIENCE_S)
        time.sleep(self.chance.uniform(0, ORDER_S))
        self.lane.fell_agent()
        self.lane.resume(run, order)
        self.goes_on(outcome, run, before)

    def goes_on(self, outcome: Outcome, run: Run, before: list[Snapshot]) -> None:
        """The run must not notice."""
        run.read()
        run.since_resume = 0
        self.lane.owed.append(outcome)
        self.lane.settle()
        outcome.lost, outcome.left = run.lost(before), self.lane.strangers(run)
