"""Real trainings of tiny random models for the tests: many in one process, with orders at given steps.

Run as a script it is one rank (torchrun starts several): it carries out the scenarios of a JSON file one by one.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [] if str(ROOT) in sys.path else [str(ROOT)]

from jobs import examples, orders  # noqa: E402
from jobs.orders import Order  # noqa: E402
from jobs.run_folder import RunFolder  # noqa: E402
from jobs.spec import Spec  # noqa: E402
from jobs.train.__main__ import leave_out  # noqa: E402

ROWS = 21
DEADLINE_S = 150


@dataclass(frozen=True)
class Scenario:
    """One training in `folder`. `orders`: step → order that takes effect after that step. `fault` breaks on purpose."""

    folder: str
    orders: dict[str, list[Any]] = field(default_factory=dict)
    fault: str = ""


def make_model(folder: Path) -> Path:
    """Started as a process of its own: the test process stays free of torch."""
    model = folder / "random-llama"
    command = [sys.executable, "-m", "jobs.train.pretrained", "--random", "--out", str(model), "--hidden", "32"]
    subprocess.run(command, cwd=ROOT, env=environment(), check=True, capture_output=True, timeout=DEADLINE_S)
    return model


def make_data(folder: Path, rows: int = ROWS) -> Path:
    path = folder / "rows.jsonl"
    lines = (
        {"instruction": f"What is fault {at}?", "input": "", "output": f"Fault {at} means {'x' * (at % 5 + 1)}."}
        for at in range(rows)
    )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def make_run(parent: Path, name: str, spec: str) -> RunFolder:
    folder = RunFolder.inside(parent, name)
    folder.create()
    folder.spec.write_text(spec)
    return folder


def environment() -> dict[str, str]:
    extra = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "TQDM_DISABLE": "1"}
    return os.environ | extra | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "GLOO_SOCKET_IFNAME": "lo"}


def start(world: int, scenarios: Iterable[Scenario], file: Path) -> subprocess.Popen[bytes]:
    """Starts all of them, one after another, on `world` ranks. Output goes beside `file`."""
    file.write_text(json.dumps([asdict(one) for one in scenarios]))
    launcher = ["-m", "torch.distributed.run", f"--nproc-per-node={world}", "--rdzv-backend=c10d"]
    launcher += ["--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1"]
    command = [sys.executable, *(launcher if world > 1 else []), str(Path(__file__).resolve()), str(file)]
    with file.with_suffix(".log").open("wb") as log:
        return subprocess.Popen(command, env=environment(), stdout=log, stderr=subprocess.STDOUT, cwd=file.parent)


def finish(process: subprocess.Popen[bytes], file: Path) -> None:
    """Waits for `start`; on failure the end of its output is the message."""
    try:
        code = process.wait(DEADLINE_S)
    except subprocess.TimeoutExpired:
        code = None
    finally:
        process.kill()
        process.wait()
    assert code == 0, file.with_suffix(".log").read_text()[-4000:]


def carry_out(scenario: Scenario) -> None:
    from transformers import TrainerCallback

    from jobs.train import session, state
    from jobs.train.rank import Rank

    class Orders(TrainerCallback):
        """Posts before a step what is to take effect after it; counts what a process may leak."""

        def on_step_end(self, _args: Any, now: Any, _control: Any, **_: Any) -> None:
            wanted = waiting.pop(str(now.global_step + 1), None)
            if wanted and rank.number == 0:
                verb, args = wanted
                orders.post(rank.folder, Order(f"at-{now.global_step}-{len(waiting)}", verb, args))
            if rank.number == 0:
                counts.append(_count(now.global_step))

    rank = Rank.from_environment(RunFolder(Path(scenario.folder)))
    spec = Spec.parse(rank.folder.spec.read_text())
    waiting, counts = dict(scenario.orders), list[dict[str, int]]()
    restore = state.randomness.restore
    if scenario.fault == "no-rng":
        state.randomness.restore = lambda _: None
    try:
        made = session.prepare(rank, spec, examples.read(Path(spec.data.path)))
        made.trainer.add_callback(Orders())
        session.run(made)
    finally:
        state.randomness.restore = restore
    if rank.number == 0:
        rank.folder.path.joinpath("counts.json").write_text(json.dumps(counts))


def _count(step: int) -> dict[str, int]:
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    handles = len(list(Path("/proc/self/fd").iterdir()))
    return {"step": step, "rss": resident, "handles": handles, "threads": threading.active_count()}


def main() -> None:
    leave_out()
    for scenario in json.loads(Path(sys.argv[1]).read_text()):
        carry_out(Scenario(**scenario))
        gc.collect()
    from jobs.train.session import leave

    leave()


if __name__ == "__main__":
    main()
