"""Reading and checking training data, beside the `datasets` library on the same file in the same run.

    python -m tests.bench.data [--bar | --full] [--size GB]

`datasets` makes a table of a file; `tunedeck data check` makes examples of it, looks each over and compares them all.
Each pass is a process of its own with an empty cache; passes alternate, so that a busy machine is busy for both.
Near-duplicates are measured apart: they are looked for only where asked.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

RATIO = 0.5
MEMORY_MIB = 300
SMALL_BYTES = 200_000_000
BAR_BYTES = 2_000_000_000

THEIRS = """
import os, resource, sys, tempfile, time
os.environ["HF_HUB_OFFLINE"] = "1"
import datasets
datasets.disable_progress_bars()
with tempfile.TemporaryDirectory(dir=sys.argv[2]) as cache:
    start = time.perf_counter()
    kind = sys.argv[1].rpartition(".")[2].replace("jsonl", "json")
    rows = len(datasets.load_dataset(kind, data_files=sys.argv[1], split="train", cache_dir=cache))
    took = time.perf_counter() - start
"""
OURS = """
import resource, sys, time
from pathlib import Path
from jobs.data.check import Check
from jobs.data.near import Near
from jobs.data.reading import DataSet
start = time.perf_counter()
data = DataSet([Path(sys.argv[1])])
check = Check(data, [False], Near() if sys.argv[2] == "near" else None)
findings = sum(1 for _finding in check.findings())
rows, took = data.rows, time.perf_counter() - start
assert findings >= rows // 1000 and check.rejected == 0, check.kinds
"""
END = "\nprint(rows, took, time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)"


@dataclass(frozen=True, slots=True)
class Pass:
    """One reading of one file by one process."""

    rows: int
    took_s: float
    cpu_s: float
    memory_bytes: int

    @property
    def rows_s(self) -> float:
        return self.rows / self.took_s


def measured(code: str, *argv: str) -> Pass:
    done = subprocess.run([sys.executable, "-c", code + END, *argv], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    rows, took, cpu, memory = done.stdout.split()[-4:]
    return Pass(int(rows), float(took), float(cpu), int(memory))


def make(path: Path, size_bytes: int) -> None:
    """Alpaca rows of about 1 kB, one in 500 of them twice."""
    chance = random.Random(7)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyzäöü漢字", k=chance.randint(2, 9))) for _n in range(5000)]
    before = ""
    with path.open("w", encoding="utf-8") as file:
        if path.suffix == ".csv":
            file.write("instruction,input,output\n")
        while file.tell() < size_bytes:
            for number in range(2000):
                asked, answer = (" ".join(chance.choices(words, k=k)) for k in (30, 90))
                if path.suffix == ".csv":
                    row = f'"{asked}",,"{answer}"'
                else:
                    row = json.dumps({"instruction": asked, "input": "", "output": answer}, ensure_ascii=False)
                before = row if number % 500 else before or row
                file.write(before + "\n")


def compared(path: Path, repeats: int, folder: str) -> tuple[Pass, Pass]:
    """(theirs, ours), each the one of median speed; by turns."""
    theirs, ours = [], []
    for _number in range(repeats):
        theirs.append(measured(THEIRS, str(path), folder))
        ours.append(measured(OURS, str(path), ""))
    return tuple(sorted(passes, key=lambda p: p.rows_s)[len(passes) // 2] for passes in (theirs, ours))  # type: ignore[return-value]


def shown(name: str, found: Pass) -> str:
    memory = found.memory_bytes / 1024**2
    return (
        f"{name:28} {found.rows:>9,} rows  {found.rows_s:>9,.0f} rows/s  {found.cpu_s:>7.1f} s CPU  {memory:>6.0f} MiB"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bar", action="store_true", help="figures beside targets; exit 1 when one falls short")
    parser.add_argument("--full", action="store_true", help="more repeats")
    parser.add_argument("--size", type=float, default=BAR_BYTES / 1e9, metavar="GB", help="of the large file (2)")
    args = parser.parse_args()
    ratios: list[float] = []
    with TemporaryDirectory(prefix="tunedeck-bench-") as folder:
        for suffix in ("jsonl", "csv"):
            path = Path(folder, f"data.{suffix}")
            make(path, SMALL_BYTES)
            theirs, ours = compared(path, 5 if args.full else 3, folder)
            assert theirs.rows == ours.rows, (theirs, ours)
            ratios.append(ours.rows_s / theirs.rows_s)
            print(shown(f"datasets, {suffix}", theirs))
            print(shown(f"tunedeck data check, {suffix}", ours) + f"  {ratios[-1]:.2f} × datasets")
            path.unlink()
        path = Path(folder, "near.jsonl")
        make(path, 10_000_000)
        print(shown("  with --near", measured(OURS, str(path), "near")))
        path = Path(folder, "large.jsonl")
        make(path, int(args.size * 1e9))
        large = measured(OURS, str(path), "")
        print(shown(f"{args.size:g} GB, jsonl", large))
    return verdict(min(ratios), large.memory_bytes / 1024**2) if args.bar else 0


def verdict(ratio: float, memory_mib: float) -> int:
    rows = [
        (f"rows/s, least of both      {ratio:.2f} × datasets   target ≥ {RATIO}", ratio >= RATIO),
        (f"memory, large file         {memory_mib:.0f} MiB   target ≤ {MEMORY_MIB} MiB", memory_mib <= MEMORY_MIB),
    ]
    print()
    for text, met in rows:
        print(f"{text}   {'met' if met else 'FALLS SHORT'}")
    return 0 if all(met for _text, met in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
