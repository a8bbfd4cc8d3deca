"""Whether a bad part of an emulated fabric (64 nodes × 8 rails, 10 % noise) is found, and nobody else blamed; and
whether a measured all-reduce is as fast as a bare loop of torch (gloo, 2 ranks).

`python -m tests.bench.fabric` prints a table by kind of fault and one by size. `--bar`: at least 2,000 trials, exit
status 1 unless the right culprit is named in 98 %, somebody else in no more than 0.5 %, a node, NIC or rail within 7
rounds, a slow way between two nodes within 63, and all-reduce is within 3 % of the bare loop.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field

from jobs.fabric.search import SHORT, Search
from tests.fakes.fabric import FAULTS, EmulatedFabric, broken

BAR_TRIALS = 2000
RIGHT_SHARE, FALSE_SHARE = 0.98, 0.005
LOOP_SHARE = 0.03
RIGHT, FALSE, OPEN = "right", "false blame", "not decided"


def searched(fabric: EmulatedFabric, thorough: bool) -> Search:
    search = Search(fabric.nodes, fabric.rails, thorough)
    while (pairs := search.next()) is not None:
        search.take(fabric.measure(pairs))
    return search


def outcome(fabric: EmulatedFabric, search: Search) -> str:
    """False as soon as anybody named is not the culprit, whoever else was named."""
    named = [blame.suspect for blame in search.verdict.culprits]
    if any(suspect != fabric.culprit for suspect in named) or search.verdict.kind == "fabric":
        return FALSE
    if fabric.culprit is None:
        return RIGHT if search.verdict.kind == "none" else OPEN
    return RIGHT if named else OPEN


@dataclass(slots=True)
class Tally:
    outcomes: Counter[str] = field(default_factory=Counter)
    rounds: list[int] = field(default_factory=list)

    def line(self, name: str) -> str:
        total, middle = sum(self.outcomes.values()), sorted(self.rounds)[len(self.rounds) // 2]
        shares = "".join(f"{100 * self.outcomes[o] / total:>12.2f}%" for o in (RIGHT, FALSE, OPEN))
        return f"{name:<14}{total:>7}{shares}{middle:>9}{max(self.rounds):>6}"


def trials(each: int) -> tuple[Tally, bool]:
    """All faults, each so many times. Whether all kept within their rounds."""
    whole, within = Tally(), True
    print(f"{'fault':<14}{'trials':>7}{RIGHT:>13}{FALSE:>13}{OPEN:>13}{'rounds':>9}{'most':>6}")
    for fault in FAULTS:
        tally = Tally()
        for seed in range(each):
            fabric = broken(fault, seed)
            search = searched(fabric, thorough=fault == "slow pair")
            tally.outcomes[outcome(fabric, search)] += 1
            tally.rounds.append(search.evidence.rounds)
        within = within and max(tally.rounds) <= (63 if fault == "slow pair" else SHORT)
        whole.outcomes += tally.outcomes
        whole.rounds += tally.rounds
        print(tally.line(fault), flush=True)
    print(whole.line("all"))
    return whole, within


def loops() -> bool:
    """Whether our figures are those of a bare loop, for all sizes."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*launcher, "-m", "tests.bench.collective"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=600,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    print(f"\n{'all-reduce':<14}{'tunedeck':>13}{'bare loop':>13}{'difference':>13}")
    for one in found:
        times = f"{one['ours_us']:>10.0f} µs{one['bare_us']:>10.0f} µs"
        print(f"{one['size']:>12} B{times}{100 * one['difference']:>+12.1f}%")
    return bool(found) and all(abs(one["difference"]) <= LOOP_SHARE for one in found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bar", action="store_true")
    parser.add_argument("--trials", type=int, default=20, metavar="N", help="of each kind of fault (20)")
    args = parser.parse_args()
    whole, within = trials(max(args.trials, BAR_TRIALS // len(FAULTS)) if args.bar else args.trials)
    total = sum(whole.outcomes.values())
    good = whole.outcomes[RIGHT] >= RIGHT_SHARE * total and whole.outcomes[FALSE] <= FALSE_SHARE * total and within
    same = loops()
    return 0 if (good and same) or not args.bar else 1


if __name__ == "__main__":
    sys.exit(main())
