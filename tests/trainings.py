"""Real trainings of tiny random models for the tests: many in one process, with orders at given steps.

Run as a script it is one rank: it carries out the scenarios of a JSON file one by one.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [] if str(ROOT) in sys.path else [str(ROOT)]

from jobs import examples, orders  # noqa: E402
from jobs.failure import JobError  # noqa: E402
from jobs.orders import Order  # noqa: E402
from jobs.run_folder import RunFolder  # noqa: E402
from jobs.spec import Spec  # noqa: E402
from jobs.train.__main__ import leave_out  # noqa: E402

ROWS = 21
DEADLINE_S = 300


@dataclass(frozen=True)
class Scenario:
    """One training in `folder`.

    `orders`: step → (verb, args) that take effect after that step, one each time it is reached.
    `resume`: the content of resume.json, if there is to be one.
    `fault`: "no-rng" leaves the random generators alone on a rollback; "nan" and "spike" spoil the weights at step 6;
    with "refused" it must fail, and what it says goes to failure.json.
    """

    folder: str
    orders: dict[str, list[tuple[str, dict[str, Any]]]] = field(default_factory=dict)
    fault: str = ""
    resume: dict[str, Any] | None = None


MODEL = ROOT / "tests" / "corpus" / "random-llama"
"""What `python -m jobs.train.pretrained --random --hidden 32` makes; 46,000 parameters that know nothing."""


def make_model(folder: Path, hidden: int, layers: int) -> Path:
    """A larger one, in a process of its own: the test process stays free of torch."""
    model = folder / "random-llama"
    size = ["--hidden", str(hidden), "--layers", str(layers)]
    command = [sys.executable, "-m", "jobs.train.pretrained", "--random", "--out", str(model), *size]
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


Ranks = list["subprocess.Popen[bytes]"]


def start(world: int, scenarios: Iterable[Scenario], file: Path) -> Ranks:
    """Starts all of them, one after another, on `world` ranks. Output goes beside `file`."""
    file.write_text(json.dumps([asdict(one) for one in scenarios]))
    with socket.create_server(("127.0.0.1", 0)) as free:
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": str(world)}
    command = [sys.executable, str(Path(__file__).resolve()), str(file)]
    ranks = []
    with file.with_suffix(".log").open("wb") as log:
        for number in range(world):
            place = {"RANK": str(number), "LOCAL_RANK": str(number), **meeting} if world > 1 else {}
            ranks.append(subprocess.Popen(command, env=environment() | place, stdout=log, stderr=log, cwd=file.parent))
    return ranks


def finish(ranks: Ranks, file: Path) -> None:
    """Waits for `start`; on failure the end of its output is the message."""
    deadline_s = time.monotonic() + DEADLINE_S
    try:
        codes = [rank.wait(max(0.0, deadline_s - time.monotonic())) for rank in ranks]
    finally:
        end(ranks)
    assert codes == [0] * len(ranks), file.with_suffix(".log").read_text()[-4000:]


def end(ranks: Ranks) -> None:
    for rank in ranks:
        rank.kill()
        rank.wait()


def carry_out(scenario: Scenario) -> None:
    from jobs.train import randomness, session
    from jobs.train.rank import Rank

    rank = Rank.from_environment(RunFolder(Path(scenario.folder)))
    spec = Spec.parse(rank.folder.spec.read_text())
    data = examples.read(Path(spec.data.path))
    if scenario.resume is not None and rank.number == 0:
        rank.folder.resume.write_text(json.dumps(scenario.resume))
    with ExitStack() as broken:
        if scenario.fault == "no-rng":
            broken.enter_context(patch.object(randomness, "restore"))
        if scenario.fault == "refused":
            _refused(lambda: session.prepare(rank, spec, data), rank.folder)
            return
        made = session.prepare(rank, spec, data)
        counts = _interfere(made.trainer, rank.folder, scenario, posts=rank.number == 0)
        session.run(made)
    if rank.number == 0:
        rank.folder.path.joinpath("counts.json").write_text(json.dumps(counts))


def _refused(attempt: Callable[[], object], folder: RunFolder) -> None:
    from jobs.train.symptoms import explain

    try:
        attempt()
    except (JobError, ValueError) as wrong:
        told = wrong if isinstance(wrong, JobError) else explain(wrong)
        folder.path.joinpath("failure.json").write_text(json.dumps([told.message, told.hint]))
    else:
        raise AssertionError(f"{folder.path} was not refused")


def _interfere(trainer: Any, folder: RunFolder, scenario: Scenario, posts: bool) -> list[dict[str, int]]:
    """Adds what posts the orders and spoils the weights; what it returns fills as training goes."""
    import torch
    from transformers import TrainerCallback

    waiting = {step: list(wanted) for step, wanted in scenario.orders.items()}
    counts: list[dict[str, int]] = []
    spoil = {"nan": float("nan"), "spike": 100.0}.get(scenario.fault)

    class Interference(TrainerCallback):  # type: ignore[misc]  # transformers is not followed
        def on_step_end(self, _args: Any, now: Any, _control: Any, model: Any = None, **_: Any) -> None:
            nonlocal spoil
            counts.append(_count(now.global_step))
            coming = waiting.get(str(now.global_step + 1))
            if coming:
                verb, args = coming.pop(0)
                if posts:
                    orders.post(folder, Order(f"at-{now.global_step}-{len(counts)}", verb, args))
            if spoil is not None and now.global_step == 5:
                with torch.no_grad():
                    for parameter in model.parameters():
                        if parameter.requires_grad:
                            parameter += spoil
                spoil = None

    trainer.add_callback(Interference())
    return counts


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
