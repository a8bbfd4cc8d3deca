"""SIGKILL at random moments for everything that keeps a run alive, and what is left of the run afterwards.

    python -m tests.bench.chaos [--bar | --full | --kills N] [--seed N]

Real runs of the tiny model under the real agent and keeper, one lane with one rank and one with two, side by side.
Killed are: a rank, torchrun, rank 0 in the middle of writing a snapshot (stopped first, to be sure of the middle),
the keeper, and the agent, also while it carries out a resume; some ranks and launchers while they still load. After
every kill: the newest snapshot verifies and the run resumes from it, its steps equal those of an undisturbed run in
every bit of loss, gradient norm and learning rate; no snapshot is lost but by pruning; no process is left.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from agent import family, kept, wire
from agent.reexec import RUN_MARK
from jobs import progress, snapshot
from jobs.identity import ProcessIdentity
from jobs.run_folder import RunFolder
from jobs.snapshot import Snapshot, SnapshotError
from tests import trainings
from tests.fakes.node import Console, Node, environ, until, variables

BAR, FULL = 60, 1000
TWO_RANKS_SHARE = 3
"""One kill in so many is of a run with two ranks: it takes twice as long to start."""
MIX = (
    "rank",
    "keeper",
    "agent",
    "torchrun",
    "writer",
    "keeper",
    "agent",
    "rank",
    "torchrun",
    "keeper",
    "agent",
    "writer",
)
KINDS = ("rank", "torchrun", "writer", "keeper", "agent")
STEPS = {1: 400, 2: 120}
"""By ranks: some ten seconds of training."""
EVERY, KEEP_LAST = 5, 4
PROOF_STEPS = 3
PATIENCE_S = 120.0
LOADING_SHARE, LOADING_S = 0.25, 3.0
TRAINING_S = 1.0
ORDER_S = 0.6

Figures = tuple[str, ...]


@dataclass
class Outcome:
    kind: str
    world: int
    where: str
    exact: bool = False
    lost: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    fault: str = ""

    @property
    def good(self) -> bool:
        return self.exact and not (self.lost or self.left or self.fault)


def spec(data: Path, world: int) -> str:
    return (
        f"name: chaos\nmodel: {trainings.MODEL}\npython: {sys.executable}\ndata: {{path: {data}, max_length: 64}}\n"
        f"lora: {{dropout: 0.1}}\ntrain: {{steps: {STEPS[world]}, accumulation: 2, learning_rate: 1e-4}}\n"
        f"hardware: {{processes: {world}, device: cpu}}\n"
        f"snapshots: {{every: {EVERY}, keep_days: 0, keep_last: {KEEP_LAST}, keep_best: 1}}\n"
    )


def figures(record: dict[str, Any]) -> Figures:
    return tuple(float(record[name]).hex() for name in ("loss", "grad_norm", "learning_rate"))


class Run:
    """A run as its folder tells it, its steps held against those of the undisturbed one."""

    def __init__(self, folder: RunFolder, reference: dict[int, Figures]) -> None:
        self.folder, self.reference = folder, reference
        self.offset = 0
        self.steps: dict[int, Figures] = {}
        self.step = self.since_resume = 0
        self.published: dict[str, float] = {}
        self.resumes: list[dict[str, Any]] = []
        self.wrong: list[str] = []

    def read(self) -> None:
        found, self.offset = progress.records(self.folder.progress, self.offset, 1 << 24)
        for one in found:
            if one["kind"] == "step":
                self.step, self.since_resume = int(one["step"]), self.since_resume + 1
                self.steps[self.step] = figures(one)
                if self.reference and self.reference[self.step] != self.steps[self.step]:
                    self.wrong.append(f"step {self.step} differs")
            elif one["kind"] == "snapshot" and one["state"] == "published":
                self.published[one["name"]] = float(one["time_unix"])
            elif one["kind"] == "resume":
                self.step, self.since_resume = int(one["to_step"]), 0
                self.resumes.append(one)
                if one["badge"] != "exact":
                    self.wrong.append(f"resumed {one['badge']}: {one['reasons']}")

    @property
    def ended(self) -> bool:
        now = kept.read(self.folder)
        return now is not None and now.phase == "ended"

    @property
    def completed(self) -> bool:
        now = kept.read(self.folder)
        return now is not None and now.reason == "completed"

    def trained(self, steps: int) -> bool:
        """So many steps since the last resume, or all there are."""
        ended = self.ended
        self.read()
        return self.since_resume >= steps or ended

    def launcher(self) -> ProcessIdentity | None:
        now = kept.read(self.folder)
        return now.launcher if now and now.launcher and now.launcher.state() == "alive" else None

    def rank(self, number: int) -> ProcessIdentity | None:
        record = kept.rank_record(self.folder, number)
        return record.identity if record and record.identity and record.identity.state() == "alive" else None

    def believed(self) -> list[Snapshot]:
        """All that verify, oldest first. Raises SnapshotError for one that is there and does not."""
        found = []
        for name in snapshot.names(self.folder):
            try:
                found.append(snapshot.verify(self.folder, name))
            except (SnapshotError, OSError):
                if name in snapshot.names(self.folder):  # else pruned meanwhile
                    raise
        return sorted(found, key=lambda one: (one.created_unix, one.step))

    def lost(self, before: list[Snapshot]) -> list[str]:
        """Published snapshots that are gone without enough younger ones to have been pruned for.

        They are those of `before` and those on record, for one may be published between a look and a kill.
        """
        self.read()
        now = self.believed()
        names = {one.name for one in now}
        made = {one.name: one.created_unix for one in before} | self.published
        younger = {name: sum(one.created_unix > unix for one in now) for name, unix in made.items()}
        return [name for name in made if name not in names and younger[name] < KEEP_LAST]

    def left(self) -> list[str]:
        mark = f"{RUN_MARK}={self.folder.name}".encode()
        alive = [pid for pid in family.own_processes() if mark in environ(pid)]
        return [f"{pid} {command(pid)}" for pid in alive]


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[-90:]
    except OSError:
        return "(gone)"


class Lane:
    """One node with one run at a time."""

    def __init__(self, home: Path, world: int, chance: random.Random) -> None:
        self.node, self.world, self.chance = Node(home), world, chance
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

    def carry_out(self, kinds: list[str]) -> None:
        for kind in kinds:
            outcome = Outcome(kind, self.world, "")
            self.outcomes.append(outcome)
            try:
                self.one(outcome)
            except (AssertionError, SnapshotError, OSError) as wrong:
                outcome.fault = f"{type(wrong).__name__}: {wrong}"[:400]
                self.give_up()
            self.say(f"{kind} {outcome.where}")
        try:
            self.settle()
        except (AssertionError, SnapshotError, OSError) as wrong:
            self.outcomes[-1].fault = f"{type(wrong).__name__}: {wrong}"[:400]

    def say(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {self.world} ranks: {text}", file=sys.stderr, flush=True)

    def give_up(self) -> None:
        """After a fault nothing can be said of this run."""
        if self.run is not None and not self.run.ended:
            self.console.ask(wire.Kill(self.run.folder.name, grace_s=0), deadline_s=PATIENCE_S)
        self.run, self.owed = None, []

    def one(self, outcome: Outcome) -> None:
        run, kind = self.run, outcome.kind
        if run is not None and run.ended and self.owed:
            if kind == "agent":
                self.kill_agent_at_work(outcome, run)
                return
            self.resume(run)
            if kind in ("rank", "torchrun") and self.chance.random() < LOADING_SHARE:
                self.kill_loading(outcome, run)
                return
        run = self.training()
        time.sleep(self.chance.uniform(0, TRAINING_S))
        if run.ended:  # it came to its end meanwhile
            run = self.training()
        getattr(self, f"kill_{kind}")(outcome, run)

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

    def kill_loading(self, outcome: Outcome, run: Run) -> None:
        find = run.launcher if outcome.kind == "torchrun" else lambda: run.rank(self.chance.randrange(self.world))
        until(find, PATIENCE_S)
        time.sleep(self.chance.uniform(0, LOADING_S))
        self.fell(outcome, run, find(), "loading")

    def kill_rank(self, outcome: Outcome, run: Run) -> None:
        self.fell(outcome, run, run.rank(self.chance.randrange(self.world)), "training")

    def kill_torchrun(self, outcome: Outcome, run: Run) -> None:
        self.fell(outcome, run, run.launcher(), "training")

    def kill_writer(self, outcome: Outcome, run: Run) -> None:
        while True:
            who = run.rank(0)
            if who is None or run.ended:
                run = self.training()
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
        self.owed.append(outcome)
        if run.completed:  # it was quicker
            self.settle()

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
        self.fell_agent()
        self.goes_on(outcome, run, before)

    def fell_agent(self) -> None:
        self.node.daemon().send(signal.SIGKILL)
        self.console.close()
        self.node.consoles.remove(self.console)
        self.console = self.attach()

    def attach(self) -> Console:
        console = self.node.console()
        console.welcome()
        return console

    def kill_agent_at_work(self, outcome: Outcome, run: Run) -> None:
        """In the midst of a resume; the same order to the next agent must find it done, or do it."""
        before = run.believed()
        order = f"again-{self.chance.getrandbits(64):x}"
        outcome.where = "resuming"
        self.console.give(wire.Resume(run.folder.name), order, PATIENCE_S)
        time.sleep(self.chance.uniform(0, ORDER_S))
        self.fell_agent()
        self.resume(run, order)
        self.goes_on(outcome, run, before)

    def goes_on(self, outcome: Outcome, run: Run, before: list[Snapshot]) -> None:
        """The run must not notice."""
        run.read()
        run.since_resume = 0
        self.owed.append(outcome)
        self.settle()
        outcome.lost, outcome.left = run.lost(before), self.strangers(run)

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


def staging(folder: RunFolder) -> bool:
    return any(entry.name.startswith(".staging-") for entry in os.scandir(folder.snapshots))


def stopped(pid: int) -> bool:
    tasks = list(Path(f"/proc/{pid}/task").glob("*/stat"))
    return all(path.read_text().rpartition(")")[2].split()[0] == "T" for path in tasks)


def plan(kills: int, chance: random.Random) -> list[str]:
    kinds = [MIX[at % len(MIX)] for at in range(kills)]
    chance.shuffle(kinds)
    return kinds


def lane(home: Path, world: int, kills: int, seed: int) -> None:
    os.environ.update(variables(home), TUNEDECK_PYTHON=sys.executable)
    chance = random.Random(seed)
    one = Lane(home, world, chance)
    try:
        one.learn()
        one.carry_out(plan(kills, chance))
    finally:
        one.node.close()
    print(json.dumps([asdict(outcome) for outcome in one.outcomes]))


def table(outcomes: list[Outcome]) -> str:
    lines = [f"{'kind':10}{'kills':>7}{'exact':>7}{'lost':>6}{'left':>6}{'faults':>8}  where"]
    for kind in [*KINDS, "all"]:
        some = [one for one in outcomes if kind in (one.kind, "all")]
        where = ", ".join(f"{count} {place}" for place, count in sorted(Counter(one.where for one in some).items()))
        counts = [len(some), sum(one.exact for one in some)]
        counts += [sum(len(one.lost) for one in some), sum(len(one.left) for one in some)]
        faults = sum(bool(one.fault) for one in some)
        lines.append(f"{kind:10}{counts[0]:7}{counts[1]:7}{counts[2]:6}{counts[3]:6}{faults:8}  {where}")
    return "\n".join(lines)


def start(home: Path, number: int, world: int, kills: int, seed: int) -> subprocess.Popen[str]:
    place = home / str(number)
    place.mkdir()
    given = ["--lane", str(world), "--home", str(place), "--kills", str(kills), "--seed", str(seed + number)]
    code = [sys.executable, "-m", "tests.bench.chaos", *given]
    return subprocess.Popen(code, cwd=trainings.ROOT, stdout=subprocess.PIPE, text=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bar", action="store_true", help=f"{BAR} kills; exit 1 unless all are survived")
    parser.add_argument("--full", action="store_true", help=f"{FULL} kills")
    parser.add_argument("--kills", type=int, default=BAR)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--lane", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--home", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if given.lane:
        return lane(given.home, given.lane, given.kills, given.seed)
    kills = FULL if given.full else BAR if given.bar else given.kills
    print(f"seed {given.seed}", flush=True)
    began = time.monotonic()
    outcomes: list[Outcome] = []
    with TemporaryDirectory(prefix="chaos-") as name:
        second = kills // TWO_RANKS_SHARE
        lanes = [start(Path(name), at, at + 1, part, given.seed) for at, part in enumerate((kills - second, second))]
        try:
            for one in lanes:
                said, _ = one.communicate()
                outcomes += [Outcome(**raw) for raw in json.loads(said or "[]")]
        finally:
            for one in lanes:  # a lane ends its node itself
                one.terminate()
                one.wait()
    print(table(outcomes))
    for outcome in outcomes:
        if not outcome.good:
            print(f"  {outcome}")
    print(f"{time.monotonic() - began:.0f} s")
    sys.exit(len(outcomes) != kills or not all(one.good for one in outcomes))


if __name__ == "__main__":
    main()
