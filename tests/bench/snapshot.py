"""What snapshots and the order channel cost a training.

    python -m tests.bench.snapshot [--bar] [--model FOLDER]

Stall: how long training stands still for one, the wait before the next optimizer step included, beside Trainer's own
save and torch's DCP `async_save` of the same state, medians of five in one process. Slow-down: intervals of 50 steps
with a snapshot at their start against intervals without, ten of each in turn, tiny model: by how much the steps until
it is written are longer than those after it; the CPU time of all threads is shown too. Orders: time spent looking for
orders and agreeing on them, against the step.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


from jobs import examples
from jobs.run_folder import RunFolder
from jobs.spec import Spec
from jobs.train.__main__ import leave_out
from tests import trainings

REPEATS = 5
INTERVALS, INTERVAL_STEPS = 20, 50
FELT_STEPS, LATE = 15, 2
"""A snapshot must be on the disk by then, but for so many: later steps cannot feel it."""
WITH = (0, 1)
"""Of each four intervals; so both kinds come first equally often, and a load that grows or falls hits them alike."""
ROWS = 150
"""An epoch is no multiple of two or four intervals, so both kinds see the same rows."""
STALL_BARS = {"lora": 1 / 8, "full": 1 / 3}
SLOWER_BAR, ORDERS_BAR = 0.03, 0.01

Times = dict[str, list[float]]
Steps = dict[str, list[list[float]]]


def spec(model: Path, data: Path, method: str, steps: int) -> str:
    return (
        f"model: {model}\ndata: {{path: {data}, max_length: 64}}\nmethod: {method}\nlora: {{dropout: 0.1}}\n"
        f"train: {{steps: {steps}, learning_rate: 1e-4, schedule: constant}}\n"
        "snapshots: {every: 0, keep_days: 0, keep_last: 1, keep_best: 0, memory_budget_gib: 4}\n"
    )


def clocked(times: list[float], action: Any, *given: Any) -> Any:
    start_s = time.perf_counter()
    result = action(*given)
    times.append(time.perf_counter() - start_s)
    return result


def _stalls(session: Any, scratch: Path) -> Times:
    """Ours after every even step, counted until the next one is over; the other two ways after the odd ones."""
    import torch.distributed.checkpoint as dcp
    from transformers import TrainerCallback

    times: Times = {"tunedeck": [], "Trainer": [], "DCP async": []}
    trainer, vault = session.trainer, session.vault
    names = {name for name, value in trainer.model.named_parameters() if value.requires_grad}

    class Saving(TrainerCallback):  # type: ignore[misc]  # transformers is not followed
        def on_log(self, _args: Any, state: Any, _control: Any, logs: Any = None, **_: Any) -> None:
            if state.global_step < 2 or "loss" not in logs:
                return
            if state.global_step % 2 == 0:
                vault.take("bench", 1.0, lambda *_: None)
                return
            times["tunedeck"].append(vault._stall.seconds)
            vault.wait()
            clocked(times["Trainer"], trainer._save_checkpoint, trainer.model, None)
            weights = {name: value for name, value in trainer.model.state_dict().items() if name in names}
            whole = {"model": weights, "optimizer": trainer.optimizer.state_dict()}
            clocked(times["DCP async"], _async_save, dcp, whole, scratch / f"dcp-{state.global_step}").result()

    trainer.add_callback(Saving())
    trainer.train()
    return {way: found[1:] for way, found in times.items()}  # the first of each makes its buffers


def _async_save(dcp: Any, whole: Any, folder: Path) -> Any:
    return dcp.async_save(whole, storage_writer=dcp.FileSystemWriter(folder), no_dist=True)


def _slower(session: Any) -> Steps:
    """Wall and CPU seconds of each step, an interval after the other: `with` a snapshot before its first, `without`."""
    from transformers import TrainerCallback

    times: Steps = {"with": [], "without": [], "CPU with": [], "CPU without": [], "felt longer": []}

    class Intervals(TrainerCallback):  # type: ignore[misc]  # transformers is not followed
        began = (0.0, 0.0)

        def on_log(self, _args: Any, state: Any, _control: Any, logs: Any = None, **_: Any) -> None:
            if "loss" not in logs:
                return
            number, place = divmod(state.global_step - 1, INTERVAL_STEPS)
            now = time.perf_counter(), time.process_time()
            if number > 0:  # the first warms up
                way = "with" if number % 4 in WITH else "without"
                for kind, at in ((way, 0), (f"CPU {way}", 1)):
                    times[kind] += [[]] if place == 0 else []
                    times[kind][-1].append(now[at] - self.began[at])
            self.began = now
            if place == FELT_STEPS - 1 and session.vault.busy:
                times["felt longer"].append([float(number)])
            if place == INTERVAL_STEPS - 1 and (number + 1) % 4 in WITH:
                session.vault.take("bench", 1.0, lambda *_: None)

    session.trainer.add_callback(Intervals())
    session.trainer.train()
    return times


def added(intervals: list[list[float]]) -> float:
    """By what share of an interval its first steps make it longer, in the median of all intervals.

    The rest of the same interval is the measure: a load beside the bench comes and goes more slowly than that, and
    made intervals of the same kind differ by half.
    """
    shares = []
    for steps in intervals:
        usual_s = statistics.median(steps[FELT_STEPS:])
        shares.append(sum(step / usual_s - 1 for step in steps[:FELT_STEPS]) / INTERVAL_STEPS)
    return statistics.median(shares)


def _orders(session: Any) -> Times:
    """Wraps what every step does for the order channel: the look into the folder, and both ends of the exchange."""
    times: Times = {"orders": [], "step": []}
    helm, exchange = session.helm, session.helm._exchange
    begins, finish, record = helm.on_step_begin, exchange.finish, helm._log.step

    def stepping(*given: Any) -> None:
        times["step"].append(time.monotonic() - helm._log._began_s)
        record(*given)

    def beginning(*given: Any, **named: Any) -> None:
        clocked(times["orders"], lambda: begins(*given, **named))

    def finishing() -> Any:
        spent: list[float] = []
        heard = clocked(spent, finish)
        times["orders"][-1] += spent[0]
        return heard

    helm.on_step_begin, exchange.finish, helm._log.step = beginning, finishing, stepping
    session.trainer.train()
    return {kind: found[2:] for kind, found in times.items()}


def rank(kind: str, folder: Path) -> None:
    """One measurement in a process of its own: prints its times."""
    leave_out()
    from jobs.train import session
    from jobs.train.rank import Rank

    run = RunFolder(folder)
    given = Spec.parse(run.spec.read_text())
    made = session.prepare(Rank.from_environment(run), given, examples.read(Path(given.data.path)))
    times: dict[str, Callable[[], Any]] = {
        "stall": lambda: _stalls(made, folder),
        "slower": lambda: _slower(made),
        "orders": lambda: _orders(made),
    }
    print(json.dumps(times[kind]()))


def measure(kind: str, name: str, home: Path, text: str) -> Any:
    run = trainings.make_run(home, name, text)
    command = [sys.executable, "-m", "tests.bench.snapshot", "--rank", kind, str(run.path)]
    done = subprocess.run(command, cwd=trainings.ROOT, env=trainings.environment(), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr[-3000:])
    return json.loads(done.stdout.splitlines()[-1])


def report(good: bool, text: str) -> bool:
    print(f"  {text}: {'met' if good else 'MISSED'}")
    return good


def stalls(name: str, model: Path, data: Path, home: Path, method: str) -> bool:
    times = measure("stall", f"{name}-{method}", home, spec(model, data, method, 2 * REPEATS + 3))
    own, trainer, dcp = (statistics.median(times[way]) for way in ("tunedeck", "Trainer", "DCP async"))
    print(f"{name}, {method}: stall {own * 1e3:.1f} ms; Trainer's save {trainer * 1e3:.1f}; DCP async {dcp * 1e3:.1f}")
    bar = STALL_BARS[method]
    return report(own <= bar * trainer, f"1/{trainer / own:.1f} of Trainer's save (bar 1/{1 / bar:.0f})")


def slow_down(model: Path, data: Path, home: Path) -> bool:
    text = spec(model, data, "lora", (INTERVALS + 1) * INTERVAL_STEPS)
    times: Steps = measure("slower", "slower", home, text)
    slower, busier = (added(times[f"{kind}with"]) - added(times[f"{kind}without"]) for kind in ("", "CPU "))
    late = len(times["felt longer"])
    said = f"{slower:+.1%} with a snapshot each {INTERVAL_STEPS} steps, CPU time {busier:+.1%}"
    said += f", {late} of {INTERVALS // 2} not written within {FELT_STEPS} steps" if late else ""
    return report(slower <= SLOWER_BAR and late <= LATE, f"{said} (bar {SLOWER_BAR:+.0%})")


def channel(name: str, model: Path, data: Path, home: Path) -> bool:
    times: Times = measure("orders", "orders", home, spec(model, data, "lora", 24))
    spent, step = statistics.median(times["orders"]), statistics.median(times["step"])
    said = f"order channel {spent * 1e6:.0f} µs, {spent / step:.2%} of a step, {name}"
    return report(spent <= ORDERS_BAR * step, f"{said} (bar {ORDERS_BAR:.0%})")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bar", action="store_true", help="exit 1 when a bar is missed")
    parser.add_argument("--model", type=Path, help="folder of a real model")
    parser.add_argument("--rank", nargs=2, metavar=("KIND", "RUN"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank:
        return rank(given.rank[0], Path(given.rank[1]))
    with TemporaryDirectory() as name:
        home = Path(name)
        data, tiny = trainings.make_data(home, ROWS), trainings.make_model(home, 192, 4)
        models = {"tiny": tiny} | ({"real": given.model.resolve()} if given.model else {})
        found = [stalls(kind, model, data, home, method) for kind, model in models.items() for method in STALL_BARS]
        good = all(found)
        good &= slow_down(tiny, data, home)
        good &= channel(*list(models.items())[-1], data, home)
    sys.exit(given.bar and not good)


if __name__ == "__main__":
    main()
