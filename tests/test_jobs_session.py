"""A run from its launch to its export, through the real launcher: orders, death of the launcher, resume, result."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from jobs import launcher, orders, progress
from jobs.identity import ProcessIdentity
from jobs.orders import Order
from jobs.run_folder import RunFolder
from jobs.spec import Spec
from tests import trainings

pytestmark = pytest.mark.timeout(600)

DEADLINE_S = 240


@dataclass
class Home:
    """Where runs are made, and every launcher that was started, to be ended whatever happens."""

    path: Path
    model: Path
    data: Path
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def spec(self, more: str = "") -> str:
        return (
            f"model: {self.model}\ndata: {{path: {self.data}, max_length: 48}}\n"
            f"train: {{steps: 100000, learning_rate: 1e-3}}\nsnapshots: {{every: 10, keep_days: 0}}\n{more}"
        )

    def run(self, name: str, text: str) -> RunFolder:
        folder = RunFolder.inside(self.path, name)
        folder.create()
        launcher.stage(folder, text)
        return folder

    def launch(self, folder: RunFolder) -> subprocess.Popen[bytes]:
        spec = Spec.parse(folder.spec.read_text())
        environment = trainings.environment() | launcher.environment(spec, [])
        del environment["PYTHONPATH"]  # the run has its own copy of the code
        with folder.launcher_log.open("ab") as log:
            command = launcher.argv(spec, folder, sys.executable)
            made = subprocess.Popen(command, env=environment, cwd=folder.path, stdout=log, stderr=log)
        self.started.append(made)
        return made


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    path = tmp_path_factory.mktemp("session")
    made = Home(path, trainings.MODEL, trainings.make_data(path))
    yield made
    for process in made.started:
        if process.poll() is None:
            process.terminate()
        process.wait(60)


def records(folder: RunFolder, kind: str) -> list[dict[str, Any]]:
    return [one for one in progress.records(folder.progress, 0, 1 << 30)[0] if one["kind"] == kind]


def until(what: Callable[[], Any], folder: RunFolder) -> Any:
    """Waits for something true; when it does not come, the logs are the message."""
    deadline_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline_s:
        if found := what():
            return found
        time.sleep(0.05)
    raise AssertionError("\n".join(path.read_text()[-3000:] for path in sorted(folder.logs.iterdir())))


def ranks(folder: RunFolder, count: int) -> list[ProcessIdentity]:
    found = (json.loads(folder.rank(number).read_text())["identity"] for number in range(count))
    return [ProcessIdentity.from_json(identity) for identity in found]


def test_launcher_killed_ranks_gone_resumed_stopped_exported(home: Home) -> None:
    folder = home.run("whole", home.spec("hardware: {processes: 2}\n"))
    first = home.launch(folder)
    until(lambda: [one for one in records(folder, "snapshot") if one["state"] == "published"], folder)
    alive = ranks(folder, 2)
    assert [one.state() for one in alive] == ["alive", "alive"]
    first.send_signal(signal.SIGKILL)
    first.wait(60)
    until(lambda: [one.state() for one in alive] == ["gone", "gone"], folder)

    folder.resume.write_text('{"snapshot": "newest"}')
    second = home.launch(folder)
    resumed = until(lambda: records(folder, "resume"), folder)[0]
    branch = int(resumed["from_step"] > resumed["to_step"])  # killed right after a snapshot, nothing was abandoned
    assert (resumed["badge"], resumed["to_step"] % 10, resumed["new_branch"]) == ("exact", 0, branch)
    until(lambda: records(folder, "step")[-1]["time_unix"] > resumed["time_unix"], folder)
    orders.post(folder, Order("halt", "stop"))
    answer = until(lambda: orders.answer(folder, "halt"), folder)
    assert answer["outcome"] == "done" and answer["snapshot"].startswith(f"b{branch}-s")
    assert second.wait(DEADLINE_S) == 0
    assert [json.loads(folder.rank(n).read_text())["outcome"] for n in (0, 1)] == ["stopped", "stopped"]
    assert records(folder, "end")[-1]["outcome"] == "stopped"
    if branch:
        _twice_the_same_steps(folder)
    _exported(home, folder, answer["snapshot"])


def _twice_the_same_steps(folder: RunFolder) -> None:
    """What the killed ranks had done after their last snapshot was done again, to the same bits."""
    old, new = ({one["step"]: one["loss"] for one in records(folder, "step") if one["branch"] == b} for b in (0, 1))
    both = old.keys() & new.keys()
    assert {step: old[step] for step in both} == {step: new[step] for step in both}


def _export(folder: RunFolder, *more: str) -> subprocess.CompletedProcess[str]:
    environment = trainings.environment()
    del environment["PYTHONPATH"]
    command = [sys.executable, str(folder.export_script), *more]
    return subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, timeout=DEADLINE_S)


def _exported(home: Home, folder: RunFolder, name: str) -> None:
    done = _export(folder, "--snapshot", name, "--out", str(home.path / "exported"))
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["source"] == name and told["difference"] < 1e-4
    files = {path.name for path in (home.path / "exported").iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors", "SHA256SUMS"} <= files
    check = subprocess.run(["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=home.path / "exported", timeout=60)
    assert check.returncode == 0
    # the stop came at that very step: the published result and the snapshot are the same adapter
    final = folder.output / "adapter_model.safetensors"
    assert final.read_bytes() == (home.path / "exported" / "adapter_model.safetensors").read_bytes()


def _alone(home: Home, name: str, text: str) -> tuple[int, RunFolder]:
    """One rank without a launcher: enough where it is to fail before training."""
    folder = home.run(name, text)
    command = [sys.executable, str(folder.script)]
    done = subprocess.run(command, env=trainings.environment(), cwd="/", capture_output=True, timeout=DEADLINE_S)
    return done.returncode, folder


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("no-model", "model: /nowhere/x\ndata: {path: 'example:faults'}", "/nowhere/x does not exist on this node"),
        ("no-data", "model: MODEL\ndata: {path: /nowhere/rows.jsonl}", "/nowhere/rows.jsonl is not a file"),
        ("bad-row", "model: MODEL\ndata: {path: BAD}", "line 1: has no `output`"),
    ],
)
def test_what_is_wrong_is_said_before_torch_loads(home: Home, name: str, text: str, message: str) -> None:
    bad = home.path / "bad.jsonl"
    bad.write_text('{"instruction": "x"}\n')
    code, folder = _alone(home, name, text.replace("MODEL", str(home.model)).replace("BAD", str(bad)))
    assert code == 1
    wrong = records(folder, "error")[0]
    assert message in wrong["message"] and wrong["hint"] and wrong["rank"] == 0
    ended = json.loads(folder.rank(0).read_text())
    assert ended["outcome"] == "failed" and ended["error"]["message"] == wrong["message"]
    log = folder.rank_log(0).read_text()
    assert log.startswith("error: ") and "Traceback" not in log


def test_a_rank_whose_launcher_is_gone_does_not_train(home: Home) -> None:
    """Started by somebody who is no launcher, but told that it is one of two ranks."""
    folder = home.run("orphan", home.spec("hardware: {processes: 2}\n"))
    environment = trainings.environment() | {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}
    done = subprocess.run([sys.executable, str(folder.script)], env=environment, cwd="/", timeout=DEADLINE_S)
    assert done.returncode == 1
    assert "the launcher of this rank is gone" in folder.rank_log(1).read_text()
    assert not folder.rank(1).exists() and list(folder.orders.iterdir()) == []
