"""Scale of triage: 1 GB of 1,024 ranks' logs, against `grep -cF` with the same literals, and the memory it takes.

`python -m tests.bench.triage --bar` ends with 1 where triage takes more than 3 × grep's time or more than 300 MB.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from agent.formats.read import LITERALS
from agent.triage.catalogue import load

RANKS = 1024
TIMES = 3.0
MOST_MB = 300.0
CODE = """
import json, resource, sys, time
from pathlib import Path
start = time.monotonic()
from agent.triage import triage
verdict = triage([Path(sys.argv[1])])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
fault = verdict.faults[0] if verdict.faults else None
print(json.dumps({"s": time.monotonic() - start, "mb": peak, "kind": fault and fault.kind,
                  "rank": list(fault.culprit.ranks) if fault else [], "lines": verdict.lines}))
"""


def head(rank: int) -> str:
    """What NCCL and the launcher print on a rank before the first step."""
    node, dev, pid = f"node{rank // 8:03d}", rank % 8, 40_000 + rank
    who = f"{node}:{pid}:{pid + 900} [{dev}] NCCL INFO"
    lines = [
        f"{who} Bootstrap: Using eth0:10.{rank // 2048}.{rank // 8 % 256}.7<0>",
        f"{who} NCCL version 2.27.5+cuda12.9",
        f"{who} NET/IB : Using " + " ".join(f"[{i}]mlx5_{i}:1/IB" for i in range(8)) + " [RO]; OOB eth0<0>",
        f"{who} Using network IB",
        f"{who} ncclCommInitRank comm 0x7f rank {rank} nranks {RANKS} cudaDev {dev} nvmlDev "
        f"{dev} busId {18 + dev}000 - Init START",
        f"{who} Connected all rings, use ring PXN 0 GDR 1",
        f"{who} ncclCommInitRank comm 0x7f rank {rank} nranks {RANKS} cudaDev {dev} nvmlDev "
        f"{dev} busId {18 + dev}000 - Init COMPLETE",
    ]
    return "\n".join(lines) + "\n"


def body(size: int) -> str:
    """Step lines of about `size` bytes."""
    line = (
        " [2025-10-14 09:12:04] iteration {:8d}/  500000 | consumed samples:  1024 | elapsed "
        "time per iteration (ms): 1854.1 | lm loss: 2.31E+00 |\n"
    )
    count = size // len(line.format(0))
    return "".join(line.format(i) for i in range(count))


def tail(rank: int) -> str:
    if rank == 137:
        return (
            f"[rank{rank}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate "
            f"3.42 GiB. GPU 1 has a total capacity\n"
        )
    return (
        f"[rank{rank}]:[E1014 09:22:41.776196923 ProcessGroupNCCL.cpp:632] [Rank {rank}] "
        f"Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=3305, OpType=ALLREDUCE, NumelIn=335, NumelOut=335, "
        "Timeout(ms)=600000) ran for 600037 "
        "milliseconds before timing out.\n"
    )


def make(folder: Path, total_bytes: int) -> None:
    """One log for every rank, `total_bytes` in all; rank 137 ran out of memory."""
    middle = body(total_bytes // RANKS)
    for rank in range(RANKS):
        (folder / f"rank{rank}.log").write_text(head(rank) + middle + tail(rank))


def grep_s(folder: Path) -> float:
    """Seconds that `grep -cF` takes for the same literals over the same files."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as wanted:
        wanted.write("\n".join(dict.fromkeys((*LITERALS, *load().literals()))) + "\n")
        wanted.flush()
        start = time.monotonic()
        files = sorted(map(str, folder.iterdir()))
        subprocess.run(
            ["grep", "-cF", "-f", wanted.name, *files],
            capture_output=True,
            env={**os.environ, "LC_ALL": "C"},
            check=False,
        )
        return time.monotonic() - start


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--bar", action="store_true", help="end with 1 where a bar is missed")
    ap.add_argument("--mb", type=int, default=1000, help="size of the folder")
    args = ap.parse_args()
    import json

    with tempfile.TemporaryDirectory(prefix="tunedeck-bench-") as name:
        folder = Path(name)
        make(folder, args.mb * 1_000_000)
        grep_s(folder)  # fills the page cache
        grep = min(grep_s(folder) for _ in range(2))
        done = subprocess.run([sys.executable, "-c", CODE, name], capture_output=True, text=True, check=True)
    said = json.loads(done.stdout)
    ratio = said["s"] / grep
    print(f"{RANKS} ranks, {args.mb} MB: triage {said['s']:.1f} s, grep {grep:.1f} s, ratio {ratio:.2f}; "
          f"peak {said['mb']:.0f} MB; {said['lines']} lines read; {said['kind']} rank {said['rank']}")  # fmt: skip
    right = said["kind"] == "app.rank-oom" and said["rank"] == [137]
    missed = not right or (args.bar and (ratio > TIMES or said["mb"] > MOST_MB))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
