"""How much faster a rollback inside the process is than starting the run again from the same snapshot.

    python -m tests.bench.rollback [--bar] [--model FOLDER] [--repeats N]

Measured from the order being seen, or from the start of the launcher, to the end of the first new step; the step's own
time (median of the run) is taken off. For rollbacks that is the median until the next step can begin, and by how much
the first new steps are slower in the median: a large model's steps vary by more than a rollback takes.
LoRA, one rank. `--model` adds a real model beside the tiny random one.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


from jobs import launcher, progress
from jobs.run_folder import RunFolder
from jobs.spec import Spec
from tests import trainings

BARS = {"train": 12.0, "in-place": 50.0}
READY_S = 10.0
"""From the order to the first new step, its own time taken off, in a new process."""
LAST = 6  # the step whose end brings the rollback; the snapshot is that of step 4


def spec(model: Path, data: Path) -> str:
    return (
        f"model: {model}\ndata: {{path: {data}, max_length: 64}}\nlora: {{dropout: 0.1}}\n"
        "train: {steps: 8, learning_rate: 1e-3}\nsnapshots: {every: 4}\n"
    )


def records(folder: RunFolder) -> list[dict[str, Any]]:
    return progress.records(folder.progress, 0, 1 << 30)[0]


def step_s(folder: RunFolder) -> float:
    return statistics.median(float(one["step_time_s"]) for one in records(folder) if one["kind"] == "step")


def rollbacks(folder: RunFolder, repeats: int, home: Path) -> dict[str, float]:
    """Median seconds of a rollback, by way."""
    wanted = [("rollback", {"way": way, "step": 4}) for _ in range(repeats) for way in BARS]
    file = home / f"{folder.name}.json"
    trainings.run([{1: [trainings.Scenario(str(folder.path), {str(LAST): wanted})]}], file)
    found = records(folder)
    ready: dict[str, list[float]] = {way: [] for way in BARS}
    first: dict[str, list[float]] = {way: [] for way in BARS}
    for at, record in enumerate(found):
        if record["kind"] == "rollback":
            ready[record["method"]].append(record["seconds"])
            first[record["method"]].append(next(one["step_time_s"] for one in found[at:] if one["kind"] == "step"))
    own_s = step_s(folder)
    return {way: statistics.median(ready[way]) + max(0.0, statistics.median(first[way]) - own_s) for way in BARS}


def cold(folder: RunFolder) -> float:
    """Seconds of one new start of the same run from its snapshot, by the real launcher."""
    folder.resume.write_text('{"snapshot": "b0-s00000004"}')
    before = len(records(folder))
    given = Spec.parse(folder.spec.read_text())
    environment = trainings.environment() | launcher.environment(given, []) | {"OMP_NUM_THREADS": "1"}
    start_unix = time.time()
    with folder.launcher_log.open("ab") as log:
        command = launcher.argv(given, folder, sys.executable)
        subprocess.run(command, env=environment, cwd=folder.path, stdout=log, stderr=log, check=True)
    first = next(one for one in records(folder)[before:] if one["kind"] == "step")
    return float(first["time_unix"] - start_unix - step_s(folder))


def measure(name: str, model: Path, data: Path, home: Path, repeats: int) -> bool:
    text = spec(model, data)
    times = rollbacks(trainings.make_run(home, f"{name}-warm", text), repeats, home)
    again = RunFolder.inside(home, f"{name}-cold")
    again.create()
    launcher.stage(again, text)
    trainings.run([{1: [trainings.Scenario(str(again.path))]}], home / f"{name}-cold.json")
    cold_s = statistics.median(cold(again) for _ in range(repeats))
    print(f"{name}: cold restart {cold_s:.2f} s, a step {step_s(again) * 1000:.0f} ms (medians of {repeats})")
    good = cold_s <= READY_S
    print(f"  resume    {cold_s:8.2f} s   (bar {READY_S:.0f} s: {'met' if good else 'MISSED'})")
    for way, bar in BARS.items():
        ratio = cold_s / times[way]
        good &= ratio >= bar
        verdict = "met" if ratio >= bar else "MISSED"
        print(f"  {way:9} {times[way] * 1000:8.1f} ms  {ratio:7.0f} x  (bar {bar:.0f} x: {verdict})")
    return good


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bar", action="store_true", help="exit 1 when a bar is missed")
    parser.add_argument("--model", type=Path, help="folder of a real model")
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    with TemporaryDirectory() as name:
        home = Path(name)
        data = trainings.make_data(home, 200)
        good = measure("tiny", trainings.make_model(home, 192, 4), data, home, given.repeats)
        if given.model is not None:
            good &= measure("real", given.model.resolve(), data, home, given.repeats)
    sys.exit(given.bar and not good)


if __name__ == "__main__":
    main()
