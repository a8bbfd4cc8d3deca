"""A run that ended for want of memory, as the real daemon tells it."""

from __future__ import annotations

import signal

from agent import wire
from agent.kept import Kept
from jobs import durable
from jobs.run_folder import RunFolder
from tests.fakes.node import Console, Node, until
from tests.test_oom_forms import V213

SPEC = (
    "model: Qwen/Qwen2.5-7B\ndata: {path: ~/d.jsonl, max_length: 4096}\nmethod: lora\n"
    "train: {batch_size: 4, steps: 10}\n"
)


def ended(node: Node, error: str, log: str = "") -> RunFolder:
    folder = node.prepare("crash", ranks=4)
    folder.spec.write_text(SPEC)
    record = durable.read_json(folder.record) or {}
    durable.write_json(folder.record, {**record, "gpu_uuids": ["GPU-1"]})
    for rank in range(4):
        said = {"message": error if rank == 3 else "aborted", "hint": "", "secondary": rank != 3}
        durable.write_json(folder.rank(rank), {"identity": None, "outcome": "failed", "error": said})
    folder.rank_log(3).write_text(log)
    Kept("ended", started_unix=1.0, ended_unix=2.0, reason="failed", detail="rank 3: broken").write(folder)
    return folder


def told(console: Console, folder: RunFolder) -> list[wire.Event]:
    return [event for event in console.numbered() if event.kind == "run.oom" and event.run == folder.name]


def test_rank_figures_and_knobs_are_told_once(node: Node) -> None:
    folder = ended(node, V213)
    first = node.console()
    event = until(lambda: next(iter(told(first, folder)), None))
    assert "rank 3: GPU 3 ran out of memory: asked for 3.42 GiB, 1.05 GiB of 79.1 GiB free" in event.text
    knobs = event.data["knobs"]
    assert knobs[0] == "the other processes on that GPU ended (frees 20 GiB)"
    assert knobs[1] == "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (up to 4.71 GiB)"
    assert knobs[2].startswith("train.gradient_checkpointing: true (saves ")
    until(lambda: first.state().runs[folder.name].detail.startswith("rank 3: GPU 3 ran out"))
    daemon = node.daemon()
    assert daemon.send(signal.SIGKILL)
    until(lambda: daemon.state() == "gone")
    again = node.console()
    until(lambda: again.tree and again.state().runs[folder.name].detail.startswith("rank 3: GPU 3 ran out"))
    assert len(told(again, folder)) == 1


def test_an_error_that_was_caught_is_not_what_a_run_ended_of(node: Node) -> None:
    folder = ended(node, "the data are broken", V213)
    console = node.console()
    until(lambda: any(e.kind == "run.ended" and e.run == folder.name for e in console.numbered()))
    until(lambda: console.tree and folder.name in console.state().runs)
    assert told(console, folder) == [] and console.state().runs[folder.name].detail == "rank 3: broken"
