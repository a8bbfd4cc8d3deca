"""`tunedeck bench`: a run of its own kind over real SSH with real torchrun and gloo; nothing of it stays."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from jobs.fabric.collectives import COLLECTIVES, bus_factor
from tests.fakes.node import until
from tests.test_cli import ROOT, Desk, refused

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
QUICK = ("--ranks", "2", "--device", "cpu", "--timeout", "60")


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    made = Desk(tmp_path_factory.mktemp("bench"))
    yield made
    made.stop()


def runs(desk: Desk) -> list[Path]:
    return list(desk.node_home.glob(".tunedeck/nodes/*/runs/bench-*"))


def of_run(run: str) -> list[int]:
    """Pids with the run's id in their command line."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if any(run in word for word in words) and process.status() != psutil.STATUS_ZOMBIE:
            found.append(process.pid)
    return found


def test_all_collectives_are_measured_and_their_values_are_right(desk: Desk) -> None:
    done = desk.call("bench", "all", *QUICK, "--largest-mib", "1", "--json")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row["collective"] for row in rows} == set(COLLECTIVES), done.stderr
    for row in rows:
        assert row["wrong"] == 0 and row["ranks"] == 2 and row["backend"] == "gloo" and row["card"] is None
        assert row["algbw_gb_s"] == pytest.approx(row["size_bytes"] / row["time_us"] / 1e3)
        assert row["busbw_gb_s"] == pytest.approx(row["algbw_gb_s"] * bus_factor(row["collective"], 2))
    assert max(row["size_bytes"] for row in rows) == 1 << 20
    assert until(lambda: not of_run(str(rows[0]["run"])))


def test_an_interrupted_bench_is_ended_on_the_node(desk: Desk) -> None:
    before = set(runs(desk))
    environ = {"HOME": str(desk.home), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    # whoever runs the tests in the background may have had SIGINT ignored, which is inherited
    heeding = ["env", "--default-signal=INT", sys.executable]
    command = [*heeding, "-m", "console", "bench", "allreduce", *QUICK]
    process = subprocess.Popen(command, cwd=desk.home, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    (folder,) = until(lambda: set(runs(desk)) - before)
    until(
        lambda: b"measuring" in (folder / "progress.jsonl").read_bytes() if (folder / "progress.jsonl").exists() else 0
    )
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130 and b"Traceback" not in err and out == b""
    assert until(lambda: json.loads((folder / "state.json").read_text())["phase"] == "ended")
    assert until(lambda: not of_run(folder.name))


def test_more_gpus_than_there_are_is_refused(desk: Desk) -> None:
    before = runs(desk)
    refused(desk.call("bench", "allreduce", "--ranks", "9", "--device", "cuda"), 1, "n1:", "cuda")
    assert runs(desk) == before
