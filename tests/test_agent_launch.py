"""A launch: everything that can be refused is refused first, in one sentence, and leaves nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent import interpreters, keepers, kept, launch, wire
from agent.interpreters import Interpreter
from agent.launch import Surroundings
from agent.refusal import Refusal
from jobs.identity import ProcessIdentity
from jobs.run_folder import RunFolder
from jobs.section import SpecError
from jobs.spec import Spec
from tests.fakes.node import Node, until

CUDA = Interpreter(sys.executable, "12.8")


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random Llama with a byte-level tokenizer."""
    folder = tmp_path_factory.mktemp("models") / "random"
    command = [sys.executable, "-m", "jobs.train.pretrained", "--random", "--out", str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, capture_output=True, cwd=Path(__file__).parent.parent, env=environment)
    return folder


def spec_text(folder: Path, model: str, **hardware: object) -> str:
    data = folder / "data.jsonl"
    rows = [{"instruction": f"say {n}", "input": "", "output": f"it is {n}"} for n in range(64)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec = {
        "model": model,
        "data": {"path": str(data), "max_length": 64},
        "train": {"steps": 100000},
        "hardware": {"device": "cpu", **hardware},
    }
    return json.dumps(spec)


def gpu(number: int, **more: object) -> wire.Gpu:
    return wire.Gpu(f"GPU-{number}", number, "NVIDIA H100 80GB HBM3", **more)  # type: ignore[arg-type]


def around(node: Node, *gpus: wire.Gpu, age_s: float | None = 0.0, taken: frozenset[str] = frozenset()) -> Surroundings:
    return Surroundings(node.state, {one.uuid: one for one in gpus}, age_s, "", taken)


def parsed(device: str = "cuda", processes: int = 1) -> Spec:
    return Spec.parse(f"model: org/m\ndata: {{path: d}}\nhardware: {{device: {device}, processes: {processes}}}")


def test_a_real_run_outlives_link_and_daemon_and_is_launched_once(node: Node, tmp_path: Path, model: Path) -> None:
    console = node.console()
    body = wire.Launch(spec_text(tmp_path, str(model), processes=2), "faults-lora.yaml")
    reply = console.ask(body, "launch-1")
    assert reply.ok, reply
    run = reply.result["run"]
    assert run.startswith("faults-lora-")
    folder = RunFolder.inside(node.state.runs, run)
    assert folder.spec.read_text() == body.spec_text
    assert (folder.path / "jobs" / "spec.py").is_file() and (folder.path / "configs").is_dir()
    until(lambda: console.run_phase(run) == "training" and console.state().runs[run].step, 120)
    console.process.kill()
    daemon = node.daemon()
    assert daemon.send(signal.SIGKILL)
    until(lambda: daemon.state() == "gone")
    again = node.console()
    assert again.ask(body, "launch-1") == reply
    until(lambda: again.run_phase(run) == "training")
    seen = again.state().runs[run]
    assert (seen.world_size, seen.method, seen.model) == (2, "lora", str(model)) and len(seen.memory_bytes) == 2
    assert seen.loss is not None and seen.tokens_per_s is not None and seen.total_steps == 100000
    members = [one.identity for one in kept.rank_records(folder)]
    killed = again.ask(wire.Kill(run, grace_s=60), deadline_s=120)
    assert killed.ok and killed.result["reason"] == "stopped" and killed.result["alive"] == []
    assert [one.state() for one in members if one] == ["gone", "gone"]
    assert (folder.output / "adapter_model.safetensors").is_file()
    assert [one["run"] for one in again.ask(wire.ListRuns()).result["runs"]] == [run]


def test_the_same_order_finds_its_run_when_the_daemon_died_before_it_could_write_so(node: Node) -> None:
    folder = node.prepare("short")
    record = json.loads(folder.record.read_text())
    folder.record.write_text(json.dumps({**record, "order": "launch-7"}))
    assert launch.launch(wire.Launch("not even a spec"), "launch-7", "me", around(node)) == folder.name
    with pytest.raises(SpecError):
        launch.launch(wire.Launch("not even a spec"), "launch-8", "me", around(node))


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("model: /nowhere/model\ndata: {path: /nowhere/data}", "/nowhere/model does not exist on this node"),
        ("model: org/m\ndata: {path: /nowhere/data}", "/nowhere/data is not a file on this node"),
        ("model: org/m\nmodle: x\ndata: {path: d}", "modle is not a setting"),
        ("model: org/m\nname: ../../x\ndata: {path: d}", "name"),
        ("{", ""),
    ],
)
def test_wrong_specs_are_refused_by_the_node_with_their_line(node: Node, spec: str, words: str) -> None:
    reply = node.console().ask(wire.Launch(spec, "mine.yaml"))
    assert not reply.ok and words in reply.error and reply.error.startswith("mine.yaml") and reply.hint
    assert list(node.state.runs.iterdir()) == []


def test_an_interpreter_without_torch_is_refused(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text('#!/bin/sh\necho \'{"version": [3, 11], "missing": ["torch"], "cuda": null}\'\n')
    bare.chmod(0o755)
    with pytest.raises(Refusal, match="lacks torch"):
        interpreters.choose(str(bare), tmp_path)
    old = tmp_path / "old"
    old.write_text('#!/bin/sh\necho noise\necho \'{"version": [3, 8], "missing": [], "cuda": null}\'\n')
    old.chmod(0o755)
    with pytest.raises(Refusal, match=r"is Python 3\.8"):
        interpreters.choose(str(old), tmp_path)


def test_interpreters_are_tried_in_order_and_all_named_when_none_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / ".tunedeck/env/bin/python"
    broken.parent.mkdir(parents=True)
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    with pytest.raises(Refusal) as wrong:
        interpreters.choose(None, tmp_path, {"PATH": str(tmp_path), "TUNEDECK_PYTHON": str(broken)})
    assert f"{broken}: is no working Python" in wrong.value.message and "TUNEDECK_PYTHON" in wrong.value.hint


def test_this_interpreter_can_train(tmp_path: Path) -> None:
    assert interpreters.choose(None, tmp_path, {"TUNEDECK_PYTHON": sys.executable}).path == sys.executable


def test_a_python_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreters, "DEADLINE_S", 0.2)
    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\nexec sleep 600\n")
    slow.chmod(0o755)
    with pytest.raises(Refusal, match="did not answer"):
        interpreters.choose(str(slow), tmp_path)


def test_free_gpus_are_chosen_and_busy_ones_named(node: Node) -> None:
    gpus = (
        gpu(0, processes=(wire.GpuProcess(4711),)),
        gpu(1, memory_used_bytes=5 << 30),
        gpu(2, memory_used_bytes=100 << 20),
        gpu(3),
        gpu(4, lost="GPU is lost"),
    )
    place = around(node, *gpus, taken=frozenset({"GPU-3"}))
    assert launch.pick_gpus(parsed(), CUDA, place, False) == ["GPU-2"]
    with pytest.raises(Refusal) as busy:
        launch.pick_gpus(parsed(processes=2), CUDA, place, False)
    for words in ("2 GPUs wanted, 1 free", "pid 4711", "GPU 1 has 5.0 GiB", "GPU 3 belongs to a run"):
        assert words in busy.value.message
    assert launch.pick_gpus(parsed(processes=1), CUDA, place, True) == ["GPU-2"], "free ones first, also by force"
    assert len(launch.pick_gpus(parsed(processes=4), CUDA, place, True)) == 4
    with pytest.raises(SpecError, match="4 usable GPUs"):
        launch.pick_gpus(parsed(processes=5), CUDA, place, True)


def test_where_a_run_goes_without_usable_gpus(node: Node) -> None:
    simulated = wire.Gpu("GPU-9", 0, "SIMULATED H100 80GB")
    assert launch.pick_gpus(parsed("auto"), CUDA, around(node), False) == []
    assert launch.pick_gpus(parsed("auto"), CUDA, around(node, simulated), False) == []
    assert launch.pick_gpus(parsed("auto"), Interpreter("p", None), around(node, gpu(0)), False) == []
    assert launch.pick_gpus(parsed("cpu"), CUDA, around(node, gpu(0)), False) == []
    assert launch.pick_gpus(parsed("auto"), CUDA, around(node, gpu(0)), False) == ["GPU-0"]
    broken = Surroundings(node.state, {}, None, "Driver/library version mismatch: reboot", frozenset())
    with pytest.raises(Refusal, match="mismatch"):
        launch.pick_gpus(parsed("auto"), CUDA, broken, False)
    assert launch.pick_gpus(parsed("auto"), Interpreter("p", None), broken, False) == []
    with pytest.raises(SpecError, match="SIMULATED"):
        launch.pick_gpus(parsed(), CUDA, around(node, simulated), False)
    with pytest.raises(SpecError, match="CPU build"):
        launch.pick_gpus(parsed(), Interpreter("p", None), around(node, gpu(0)), False)
    with pytest.raises(Refusal, match="NVML does not answer"):
        launch.pick_gpus(parsed(), CUDA, around(node, gpu(0), age_s=60.0), False)


def test_a_disk_nearly_full_is_refused_and_one_that_fills_up_leaves_nothing(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the copy fits: the staging folder has to go again."""
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k,mode=0700", "tmpfs", str(small)], check=True)
    try:
        monkeypatch.setenv("TUNEDECK_HOME", str(small))
        state = type(node.state)(small, "n")
        state.create()
        place = Surroundings(state, {}, None, "", frozenset())
        text = spec_text(tmp_path, "org/model")
        with pytest.raises(Refusal, match="nearly full"):
            launch.launch(wire.Launch(text), "launch-1", "me", place)
        with pytest.raises(Refusal, match="the disk is full"):
            launch.launch(wire.Launch(text, force=True), "launch-1", "me", place)
        assert list(state.runs.iterdir()) == []
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def test_a_keeper_that_does_not_start_leaves_no_run(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = node.prepare("short")
    monkeypatch.setattr(keepers, "command", lambda *_: [sys.executable, "-c", "import sys; sys.exit('no room')"])
    with pytest.raises(Refusal, match="did not start: no room"):
        keepers.start(folder)
    assert not folder.path.exists()


def test_a_run_whose_keeper_never_began_is_lost_and_not_forever_starting(node: Node) -> None:
    folder = node.prepare("short")
    record = json.loads(folder.record.read_text())
    folder.record.write_text(json.dumps({**record, "created_unix": 1.0}))
    console = node.console()
    until(lambda: console.run_phase(folder.name) == "ended")
    assert console.state().runs[folder.name].reason == "lost"


def test_a_run_of_another_container_is_unknown_and_left_alone(node: Node) -> None:
    folder = node.start("obedient")
    now = until(lambda: kept.read(folder))
    assert now.keeper is not None and now.keeper.send(signal.SIGSTOP)
    foreign = ProcessIdentity(now.keeper.boot_id, "pid:[1]", now.keeper.pid, now.keeper.start_ticks)
    kept.Kept("running", foreign, foreign, now.started_unix).write(folder)
    console = node.console()
    until(lambda: console.run_phase(folder.name) == "unknown")
    reply = console.ask(wire.Kill(folder.name, hard=True))
    assert not reply.ok and "another container" in reply.error
    assert len([one for one in kept.rank_records(folder) if one.identity and one.identity.state() == "alive"]) == 2
