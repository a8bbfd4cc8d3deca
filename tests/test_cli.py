"""The command line as its users meet it: real processes, real SSH to a node on this machine, one clear error each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.demo.server import DemoServer

ROOT = Path(__file__).resolve().parent.parent
GOOD = "model: ~/models/x\ndata: {path: ~/data/x.jsonl}\n"


class Desk:
    """A user's machine with one node in its fleet.yaml."""

    def __init__(self, folder: Path) -> None:
        self.home, self.node_home = folder / "home", folder / "node"
        runtime = folder / "runtime"
        for path in (self.home, self.node_home, runtime):
            path.mkdir(mode=0o700)
        path_with_python = f"{Path(sys.executable).parent}:/usr/bin:/bin"
        environ = {"HOME": str(self.node_home), "PATH": path_with_python, "TUNEDECK_RUNTIME": str(runtime)}
        self.server = DemoServer(folder / "server", {"n1": environ})
        self.server.start()
        self.write_fleet()

    def write_fleet(self) -> None:
        (target,) = self.server.targets()
        fleet = self.home / ".config" / "tunedeck" / "fleet.yaml"
        fleet.parent.mkdir(parents=True)
        node = {"name": "n1", "host": target.address, "port": target.port, "user": "n1"}
        node |= {"identity": str(target.identity_files[0]), "known_hosts": str(target.known_hosts[0])}
        fleet.write_text(json.dumps({"nodes": [node]}))

    def call(self, *argv: str) -> subprocess.CompletedProcess[str]:
        environ = {"HOME": str(self.home), "PATH": os.environ["PATH"], "USER": "tester", "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            [sys.executable, "-m", "console", *argv],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            cwd=self.home,
            env=environ,
            timeout=120,
        )

    def stop(self) -> None:
        for enter in self.node_home.glob(".tunedeck/bundles/*/enter.py"):
            subprocess.run([sys.executable, str(enter), "stop"], env=self.server.environment("n1"), check=True)
        self.server.stop()


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    made = Desk(tmp_path_factory.mktemp("desk"))
    yield made
    made.stop()


def refused(done: subprocess.CompletedProcess[str], status: int, *words: str) -> None:
    """One clear error on stderr, nothing else, and the exit status that belongs to it."""
    assert done.returncode == status, done.stdout + done.stderr
    for word in words:
        assert word in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_nodes_as_json_has_units_and_unknown_as_null(desk: Desk) -> None:
    done = desk.call("nodes", "--json")
    assert done.returncode == 0, done.stderr
    (node,) = json.loads(done.stdout)["nodes"]
    assert node["link"]["phase"] == "live"
    assert node["host"]["ram_total_bytes"] > 0
    assert node["gpus"] == []


def test_without_a_terminal_the_console_is_one_plain_frame(desk: Desk) -> None:
    done = desk.call()
    assert done.returncode == 0, done.stderr
    assert "n1" in done.stdout and "No runs." in done.stdout
    assert "\x1b" not in done.stdout


def test_ps_says_that_there_is_nothing(desk: Desk) -> None:
    assert json.loads(desk.call("ps", "--all", "--json").stdout) == {"runs": []}
    assert "No runs are live" in desk.call("ps").stdout


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model: m\nmodle: x\ndata: {path: d}\n", ("spec.yaml:2", "modle", "model")),
        ("model: m\ndata: {path: d}\ntrain:\n  batch_size: many\n", ("spec.yaml:4", "batch_size")),
        ("model: m\ndata: {path: d}\ntrain: {batch_size: -1}\n", ("spec.yaml:3", "batch_size")),
        ("data: {path: d}\n", ("model",)),
        ("model: [\n", ("spec.yaml:",)),
        ("name: ../../etc\n" + GOOD, ("spec.yaml:1", "name")),
        ("name: a; rm -rf ~\n" + GOOD, ("spec.yaml:1", "name")),
    ],
    ids=["key", "type", "range", "missing", "yaml", "path", "shell"],
)
def test_a_wrong_spec_is_refused_before_anything_is_asked(desk: Desk, text: str, words: tuple[str, ...]) -> None:
    (desk.home / "spec.yaml").write_text(text)
    refused(desk.call("run", "spec.yaml"), 2, *words)


def test_what_only_the_node_can_see_is_refused_by_the_node(desk: Desk) -> None:
    (desk.home / "spec.yaml").write_text(GOOD)
    refused(desk.call("run", "spec.yaml"), 1, "n1", "models/x", "does not exist")
    model = desk.node_home / "models" / "x"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    refused(desk.call("run", "spec.yaml"), 1, "data/x.jsonl")
    (desk.node_home / "data").mkdir()
    (desk.node_home / "data" / "x.jsonl").write_text("")
    refused(desk.call("run", "spec.yaml"), 1, "is empty")
    assert list(desk.node_home.glob(".tunedeck/nodes/*/runs/*")) == []


def test_read_only_refuses_to_launch(desk: Desk) -> None:
    (desk.home / "spec.yaml").write_text(GOOD)
    refused(desk.call("run", "spec.yaml", "--read-only"), 1, "read-only")


@pytest.mark.parametrize("command", ["logs", "kill"])
def test_a_run_that_nobody_knows(desk: Desk, command: str) -> None:
    refused(desk.call(command, "nothing", *(["--yes"] if command == "kill" else [])), 1, "no run is called nothing")


def test_usage_and_configuration_mistakes(desk: Desk) -> None:
    refused(desk.call("run", "absent.yaml"), 2, "absent.yaml", "No such file")
    (desk.home / "any.yaml").write_text("model: m\ndata: {path: example:faults}\n")
    refused(desk.call("run", "--on", "n9", "any.yaml"), 2, "n9", "n1")
    refused(desk.call("-w", "-oProxyCommand=touch /tmp/x", "nodes"), 2)
    refused(desk.call("frobnicate"), 2, "frobnicate")
    refused(desk.call("-w", "nodes[3-1]", "ps"), 2)


def test_a_host_that_does_not_exist_is_an_ssh_failure(desk: Desk) -> None:
    done = desk.call("-w", "no-such-host.invalid", "ps")
    refused(done, 255, "no-such-host.invalid")


def test_a_command_word_may_also_be_a_host_name(desk: Desk) -> None:
    refused(desk.call("-w", "nodes.invalid", "ps", "--all"), 255, "nodes.invalid")
    refused(desk.call("-w", "run", "kill"), 2, "required: run")


def test_a_reader_that_leaves_early_is_no_failure_of_ours(desk: Desk) -> None:
    environ = {"HOME": str(desk.home), "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    script = f"{sys.executable} -m console --help | true"
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, env=environ, cwd=ROOT, timeout=30)
    assert done.stderr == ""
