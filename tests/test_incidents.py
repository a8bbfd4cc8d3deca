"""Incidents made for real: agent, keeper, torchrun and gloo, a fault in the middle, and the verdict a console has.

Evidence comes by the order that the console's key sends; what is judged is the archive that it saves.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent import kept as agent_kept
from agent import wire
from agent.triage.verdict import Fault, Verdict
from console.incident import kept
from jobs import progress
from jobs.identity import ProcessIdentity
from jobs.run_folder import RunFolder
from tests import trainings
from tests.fakes import astray
from tests.fakes.node import Node, until, variables

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SPEC = """\
name: incident
model: {model}
python: {python}
data: {{path: {data}, max_length: 48}}
train: {{steps: 100000, learning_rate: 1e-3}}
snapshots: {{every: 10, keep_days: 0}}
hardware: {{processes: {ranks}, device: cpu}}
"""
NAME = "box"
"""What the console calls the node"""
CGROUPS = Path("/sys/fs/cgroup")
LIMIT_BYTES = 256 << 20


class Scene:
    """One run on a node of its own, and what becomes of it."""

    def __init__(self, node: Node, data: Path, ranks: int = 2) -> None:
        self.node, self.console = node, node.console()
        text = SPEC.format(model=trainings.MODEL, python=sys.executable, data=data, ranks=ranks)
        launched = self.console.ask(wire.Launch(text, "incident.yaml", force=True), deadline_s=120)
        assert launched.ok, launched
        self.folder = RunFolder.inside(node.state.runs, str(launched.result["run"]))

    def astray(self, act: str = "pass", first: str = "") -> None:
        """torchrun is still loading: its ranks will find another script."""
        self.folder.script.write_text(astray.script(act, first))

    def steps(self) -> int:
        return sum(one["kind"] == "step" for one in progress.records(self.folder.progress, 0, 1 << 24)[0])

    def rank(self, number: int) -> ProcessIdentity:
        found = until(lambda: agent_kept.rank_record(self.folder, number), 120)
        assert found.identity is not None
        return found.identity

    def ended(self) -> None:
        until(lambda: self.console.run_phase(self.folder.name) == "ended", 120)

    def verdict(self, place: Path) -> Verdict:
        reply = self.console.ask(wire.Evidence(self.folder.name, alias=NAME), deadline_s=120)
        assert reply.ok, reply
        return kept(reply.result, self.folder.name, time.time(), place).verdict()

    def fault(self, place: Path) -> Fault:
        found = self.verdict(place)
        assert found.faults, found.notes
        return found.faults[0]


@pytest.fixture
def scene(node: Node, tmp_path: Path) -> Scene:
    return Scene(node, trainings.make_data(tmp_path))


def test_a_rank_killed(scene: Scene, tmp_path: Path) -> None:
    until(lambda: scene.steps() > 4, 120)
    scene.rank(1).send(signal.SIGKILL)
    scene.ended()
    fault = scene.fault(tmp_path)
    assert (fault.kind, fault.culprit.ranks, fault.culprit.nodes) == ("app.rank-dead", (1,), (NAME,))


def test_the_launcher_and_its_store_killed(scene: Scene, tmp_path: Path) -> None:
    until(lambda: scene.steps() > 4, 120)
    found = agent_kept.read(scene.folder)
    assert found is not None and found.launcher is not None
    found.launcher.send(signal.SIGKILL)
    scene.ended()
    assert scene.fault(tmp_path).kind == "app.store-lost"


def test_an_interface_that_is_not_there(scene: Scene, tmp_path: Path) -> None:
    scene.astray(first='os.environ["GLOO_SOCKET_IFNAME"] = "ib7"')
    scene.ended()
    fault = scene.fault(tmp_path)
    assert fault.kind in ("gloo.interface", "net.socket-ifname-missing") and "ib7" in str(fault)


def test_one_rank_has_fewer_examples(scene: Scene, tmp_path: Path) -> None:
    scene.astray("dist.destroy_process_group(); os._exit(0)")
    scene.ended()
    fault = scene.fault(tmp_path)
    assert (fault.kind, fault.culprit.ranks) == ("app.uneven-inputs", (1,))


@pytest.fixture
def group() -> Iterator[Path]:
    """A memory cgroup with room for one rank and little more."""
    unified = (CGROUPS / "cgroup.controllers").exists()
    if unified:
        (CGROUPS / "cgroup.subtree_control").write_text("+memory")
    made = (CGROUPS if unified else CGROUPS / "memory") / "tunedeck-test"
    made.mkdir()
    (made / ("memory.max" if unified else "memory.limit_in_bytes")).write_text(str(LIMIT_BYTES))
    yield made
    until(lambda: not (made / "cgroup.procs").read_text().strip(), 60)
    made.rmdir()


def test_a_rank_out_of_host_memory(group: Path, scene: Scene, tmp_path: Path) -> None:
    scene.astray("[time.sleep(0.05) for _ in iter(lambda: pathlib.Path('go').exists(), True)]; bytearray(4 << 30)")
    until(lambda: scene.steps() > 5, 120)
    (group / "cgroup.procs").write_text(str(scene.rank(1).pid))
    (scene.folder.path / "go").touch()
    scene.ended()
    fault = scene.fault(tmp_path)
    assert (fault.kind, fault.culprit.ranks) == ("app.host-oom-kill", (1,))


def test_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables(tmp_path).items():
        monkeypatch.setenv(name, value)
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m,mode=700", "tmpfs", str(home)], check=True)
    node = Node(tmp_path)
    try:
        scene = Scene(node, trainings.make_data(tmp_path))
        until(lambda: scene.steps() > 12, 120)
        with (home / "filler").open("wb") as filler, pytest.raises(OSError, match="No space"):
            while True:
                filler.write(bytes(1 << 16))
                filler.flush()
        fault = until(lambda: next(iter(scene.verdict(tmp_path).faults), None), 120)
        assert fault.kind == "host.disk-full"
    finally:
        node.close()
        subprocess.run(["umount", "-l", str(home)], check=True)
