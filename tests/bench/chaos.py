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
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from tests import trainings
from tests.chaos.kills import Kills
from tests.chaos.lane import Lane
from tests.chaos.outcome import Outcome, table
from tests.fakes.node import variables

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


def plan(kills: int, chance: random.Random) -> list[str]:
    kinds = [MIX[at % len(MIX)] for at in range(kills)]
    chance.shuffle(kinds)
    return kinds


def lane(home: Path, world: int, kills: int, seed: int) -> None:
    os.environ.update(variables(home), TUNEDECK_PYTHON=sys.executable)
    chance = random.Random(seed)
    one = Lane(home, world)
    try:
        one.learn()
        Kills(one, chance).carry_out(plan(kills, chance))
    finally:
        one.node.close()
    print(json.dumps([asdict(outcome) for outcome in one.outcomes]))


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
