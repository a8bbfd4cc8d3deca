"""Steering from the command line, over real SSH, a real training at the other end: what is asked, said and left."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from jobs import progress
from tests import trainings
from tests.fakes.node import until
from tests.test_cli import ROOT, Desk, refused
from tests.test_steer_agent import random_model

pytestmark = pytest.mark.timeout(600)

SPEC = """\
name: steered
model: ~/random-llama
data: {path: ~/rows.jsonl, max_length: 48}
train: {steps: 100000}
snapshots: {every: 50}
hardware: {device: cpu}
"""
Done = subprocess.CompletedProcess[str]


@dataclass
class Story:
    """All commands of one run's life, in order, with what they said."""

    desk: Desk
    run: str = ""
    said: dict[str, Done] = field(default_factory=dict)

    def call(self, key: str, *argv: str) -> Done:
        self.said[key] = self.desk.call(*argv)
        return self.said[key]

    def json(self, key: str) -> dict[str, Any]:
        done = self.said[key]
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    def on_terminal(self, key: str, answer: str, *argv: str) -> Done:
        """With a terminal for questions."""
        ours, theirs = pty.openpty()
        environ = {"HOME": str(self.desk.home), "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "console", *argv]
        os.write(ours, answer.encode())
        try:
            self.said[key] = subprocess.run(
                command, stdin=theirs, capture_output=True, text=True, env=environ, cwd=self.desk.home, timeout=120
            )
        finally:
            os.close(ours)
            os.close(theirs)
        return self.said[key]

    def steps(self) -> int:
        """Looked up on the node's disk: a command for every look would cost more than the training."""
        (folder,) = self.desk.node_home.glob(f".tunedeck/nodes/*/runs/{self.run}")
        return sum(one["kind"] == "step" for one in progress.records(folder / "progress.jsonl")[0])


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    desk = Desk(tmp_path_factory.mktemp("steer"))
    one = Story(desk)
    try:
        tell(one)
        yield one
    finally:
        desk.call("kill", one.run, "--now", "--yes")
        desk.stop()


def tell(one: Story) -> None:
    desk = one.desk
    random_model(desk.node_home)
    trainings.make_data(desk.node_home)
    (desk.home / "spec.yaml").write_text(SPEC)
    one.call("run", "run", "spec.yaml", "--json")
    one.run = str(one.json("run")["run"])
    until(lambda: one.steps() > 110, 120)
    one.call("now", "snapshots", one.run, "--now")
    one.call("rollback unasked", "rollback", one.run)
    one.call("resume live", "resume", one.run, "--yes")
    one.on_terminal("rollback no", "\n", "rollback", one.run, "--to", "100")
    one.call("rollback", "rollback", one.run, "--to", "100", "--lr", "1e-4", "--skip-data", "--yes", "--json")
    one.call("pause", "pause", one.run)
    one.call("triage", "triage", one.run, "--save", "kept")
    one.call("triage nothing", "triage", "no-such-run")
    one.call("rollback ended", "rollback", one.run, "--yes")
    one.call("list", "snapshots", one.run, "--verify", "--pin", "b0-s00000100")
    one.call("check", "resume", one.run, "--check")
    one.on_terminal("resume no", "n\n", "resume", one.run, "--from", "100")
    one.call("no such step", "resume", one.run, "--from", "77", "--yes")
    one.call("no result", "export", one.run)
    one.call("export", "export", one.run, "--snapshot", "newest", "--out", "here", "--json")
    one.call("resume", "resume", one.run, "--yes", "--json")


def test_a_snapshot_now(story: Story) -> None:
    done = story.said["now"]
    assert done.returncode == 0 and f"{story.run} on n1: snapshot b0-s" in done.stdout, done.stderr


def test_triage_of_a_run_asks_its_node_and_keeps_the_evidence(story: Story) -> None:
    done = story.said["triage"]
    assert done.returncode == 0 and "healthy" in done.stdout, (done.stdout, done.stderr)
    (kept,) = (story.desk.home / "kept").iterdir()
    assert kept.name.startswith(f"incident-{story.run}-") and str(kept.name) in done.stderr
    refused(story.said["triage nothing"], 1, "no-such-run is neither a file here nor a run that was found")


def test_questions_default_to_no_and_need_a_terminal(story: Story) -> None:
    refused(story.said["rollback unasked"], 2, "no terminal to ask on", "--yes")
    done = story.said["rollback no"]
    assert done.returncode == 1 and "nothing was rolled back" in done.stdout, done.stderr
    for words in (f"Roll {story.run} on n1 back from step ", "to step 100, the newest snapshot at or before step 100"):
        assert words in done.stdout
    done = story.said["resume no"]
    assert done.returncode == 1 and "nothing was started" in done.stdout, done.stderr
    assert f"Resume {story.run} on n1 from b1-s00000100, at step 100?" in done.stdout
    assert "stay as a branch" in done.stdout


def test_a_rollback(story: Story) -> None:
    said = story.json("rollback")
    assert (said["node"], said["outcome"], said["snapshot"]) == ("n1", "done", "b0-s00000100")


def test_what_does_not_fit_the_state_of_the_run_is_refused_with_the_way_that_does(story: Story) -> None:
    refused(story.said["resume live"], 1, "n1", "is live", "pause it first")
    refused(story.said["rollback ended"], 1, "has ended", f"tunedeck resume {story.run}")


def test_a_pause_ends_with_all_processes_gone(story: Story) -> None:
    done = story.said["pause"]
    assert done.returncode == 0, done.stderr
    assert "paused at step" in done.stdout and "its processes are gone" in done.stdout


def test_the_list_tells_what_is_verified_and_how_a_resume_would_be(story: Story) -> None:
    done = story.said["list"]
    assert done.returncode == 0, done.stderr
    head, *rows = done.stdout.splitlines()
    assert head.split()[:4] == ["NAME", "STEP", "AGE", "SIZE"]
    assert len(rows) >= 4 and all(" yes " in row and " exact " in row for row in rows)
    assert [row.split()[0] for row in rows if " pinned " in row] == ["b0-s00000100"]


def test_a_resume_says_first_what_it_would_be(story: Story) -> None:
    done = story.said["check"]
    assert done.returncode == 0 and done.stdout.startswith("exact from b1-s"), done.stderr
    assert "compared only when it starts: cpu" in done.stdout and "to read" in done.stdout
    refused(story.said["no such step"], 1, "no snapshot of step 77", "50", "100")


def test_an_export_comes_home_verified(story: Story) -> None:
    refused_words = story.said["no result"]
    assert refused_words.returncode == 1 and "no result yet" in refused_words.stderr
    said = story.json("export")
    here = story.desk.home / "here"
    for entry in said["files"]:
        assert hashlib.sha256((here / entry["path"]).read_bytes()).hexdigest() == entry["sha256"]
    assert sorted(path.name for path in here.iterdir()) == sorted(entry["path"] for entry in said["files"])
    assert said["difference"] < 1e-3 and Path(said["folder"]) == here
    subprocess.run(["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=here, check=True)


def test_a_resume(story: Story) -> None:
    said = story.json("resume")
    assert (said["run"], said["node"], said["label"]) == (story.run, "n1", "exact")
    assert said["snapshot"].startswith("b1-s") and said["step"] == said["from_step"] > 100
