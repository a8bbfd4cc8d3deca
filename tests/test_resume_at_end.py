"""A run that dies between its last step and its result: a resume trains nothing, and still brings the result."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import pytest

from agent import kept, wire
from jobs import progress, snapshot
from jobs.run_folder import RunFolder
from tests import trainings
from tests.fakes.node import Console, Node, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

STEPS, TRIES = 12, 8
ADAPTER = "adapter_model.safetensors"
SPEC = """
name: nearly
model: {model}
python: {python}
data: {{path: {data}, max_length: 48}}
lora: {{dropout: 0.1}}
train: {{steps: {steps}, learning_rate: 1e-4, seed: 7}}
snapshots: {{every: 6}}
hardware: {{processes: {ranks}, device: cpu}}
"""


def launch(node: Node, console: Console, text: str) -> RunFolder:
    reply = console.ask(wire.Launch(text, "nearly.yaml", force=True), deadline_s=120)
    assert reply.ok, reply
    return RunFolder.inside(node.state.runs, reply.result["run"])


def ended(folder: RunFolder) -> kept.Kept | None:
    now = kept.read(folder)
    return now if now is not None and now.phase == "ended" else None


def killed_at_the_end(folder: RunFolder) -> bool:
    """Whether the last snapshot was out and the result was not."""
    last = f"b0-s{STEPS:08d}"
    while last not in snapshot.names(folder) and not ended(folder):
        time.sleep(0.001)
    record = kept.rank_record(folder, 0)
    assert record is not None and record.identity is not None
    record.identity.send(signal.SIGKILL)
    now = until(lambda: ended(folder), 120)
    return now.reason != "completed"


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_result_of_a_run_that_died_after_its_last_step(node: Node, tmp_path: Path, ranks: int) -> None:
    console = node.console()
    data = trainings.make_data(tmp_path)
    text = SPEC.format(model=trainings.MODEL, python=sys.executable, data=data, steps=STEPS, ranks=ranks)
    whole = launch(node, console, text)
    until(lambda: ended(whole), 120)
    reply = console.ask(wire.Resume(whole.name), deadline_s=60)
    assert not reply.ok and "nothing is left to train" in reply.error, "a completed run is complete"

    folder = next(one for _try in range(TRIES) if killed_at_the_end(one := launch(node, console, text)))
    reply = console.ask(wire.Resume(folder.name), deadline_s=120)
    assert reply.ok and (reply.result["step"], reply.result["label"]) == (STEPS, "exact"), reply
    now = until(lambda: ended(folder), 120)
    assert now.reason == "completed", now
    assert (folder.output / ADAPTER).read_bytes() == (whole.output / ADAPTER).read_bytes()
    steps = [one["step"] for one in progress.records(folder.progress)[0] if one["kind"] == "step"]
    assert steps == list(range(1, STEPS + 1)), "no step was trained twice"
