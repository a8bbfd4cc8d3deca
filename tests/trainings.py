"""Real trainings of tiny random models for the tests, with orders at given steps.

Run as a script it loads torch and its friends once, then forks the ranks of each stage: importing would take longer
than all trainings together. Each stage has new processes, so a resume in a later one begins with nothing but files.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
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
    `resume`: the content of resume.json, if there is to be one; `spec`: another spec than the folder has by now.
    `fault`: "no-rng" leaves the random generators alone on a rollback; "nan" and "spike" spoil the weights at step 6;
    with "refused" it must fail, and what it says goes to failure.json.
    """

    folder: str
    orders: dict[str, list[tuple[str, dict[str, Any]]]] = field(default_factory=dict)
    fault: str = ""
    resume: dict[str, Any] | None = None
    spec: str = ""


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


Stage = dict[int, list[Scenario]]
"""For each number of ranks, what these carry out one after another. Different numbers go side by side."""


def run(stages: Sequence[Stage], file: Path) -> None:
    """Carries the stages out one by one. Output goes beside `file`; on failure its end is the message."""
    plain = [{world: [asdict(one) for one in plan] for world, plan in stage.items()} for stage in stages]
    file.write_text(json.dumps(plain))
    command = [sys.executable, str(Path(__file__).resolve()), str(file)]
    with file.with_suffix(".log").open("wb") as log:
        done = subprocess.run(command, env=environment(), stdout=log, stderr=log, cwd=file.parent, timeout=DEADLINE_S)
    assert done.returncode == 0, file.with_suffix(".log").read_text()[-4000:]


def carry_out(scenario: Scenario) -> None:
    from jobs.train import randomness, session
    from jobs.train.rank import Rank

    rank = Rank.from_environment(RunFolder(Path(scenario.folder)))
    if scenario.spec:
        rank.folder.spec.write_text(scenario.spec)
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
        counts = _interfere(made, rank.folder, scenario, posts=rank.number == 0)
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


def _interfere(session: Any, folder: RunFolder, scenario: Scenario, posts: bool) -> list[dict[str, int]]:
    """Adds what posts the orders and spoils the weights; what it returns fills as training goes."""
    import torch
    from transformers import TrainerCallback

    waiting = {step: list(wanted) for step, wanted in scenario.orders.items()}
    counts: list[dict[str, int]] = []
    spoil = {"nan": float("nan"), "spike": 100.0}.get(scenario.fault)

    class Interference(TrainerCallback):  # type: ignore[misc]  # transformers is not followed
        def on_step_end(self, _args: Any, now: Any, _control: Any, model: Any = None, **_: Any) -> None:
            nonlocal spoil
            session.vault.wait()  # on a busy machine a snapshot would else be merged into the next
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

    session.trainer.add_callback(Interference())
    return counts


def _count(step: int) -> dict[str, int]:
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    handles = len(list(Path("/proc/self/fd").iterdir()))
    return {"step": step, "rss": resident, "handles": handles, "threads": threading.active_count()}


def _fork(world: int, number: int, port: int, plan: list[dict[str, Any]]) -> int:
    """The pid of a new rank. A rank dies with this process, and when it fails."""
    pid = os.fork()
    if pid:
        return pid
    from jobs.train.rank import die_with_parent
    from jobs.train.session import leave

    code = 1
    try:
        die_with_parent()
        if world > 1:
            place = {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": world, "MASTER_PORT": port}
            os.environ.update({name: str(value) for name, value in place.items()}, MASTER_ADDR="127.0.0.1")
        for scenario in plan:
            carry_out(Scenario(**scenario))
            gc.collect()
        leave()
        code = 0
    finally:
        if code:
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    leave_out()
    import peft  # noqa: F401 - loaded before the forks, like the rest
    from transformers import AutoModelForCausalLM, LlamaForCausalLM  # noqa: F401

    import jobs.train.session  # noqa: F401

    for stage in json.loads(Path(sys.argv[1]).read_text()):
        ranks = set()
        for world, plan in stage.items():
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            ranks |= {_fork(int(world), number, port, plan) for number in range(int(world))}
        while ranks:
            pid, status = os.wait()
            ranks.discard(pid)
            if status:
                sys.exit(1)  # the others go with this process


if __name__ == "__main__":
    main()
