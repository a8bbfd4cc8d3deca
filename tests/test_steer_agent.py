"""Steering a real training through a real agent: orders, snapshots, pause, resume, fork and export."""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent import kept, wire
from jobs import durable, progress, snapshot
from jobs.run_folder import RunFolder
from tests import trainings
from tests.fakes.node import Console, Node, until, variables

pytestmark = pytest.mark.timeout(600)

SPEC = """
name: steered
model: {model}
data: {{path: {data}, max_length: 48}}
lora: {{rank: 4, dropout: 0.1}}
train: {{steps: {steps}, learning_rate: {rate}, seed: 7}}
snapshots: {{every: 50}}
hardware: {{device: cpu}}
"""


@dataclass
class Story:
    """One run's life, told once for all tests of this file: what was answered, and what was on disk at that time."""

    node: Node
    console: Console
    folder: RunFolder
    replies: dict[str, wire.Reply] = field(default_factory=dict)
    states: dict[str, wire.RunState] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    phases: list[str] = field(default_factory=list)
    fork: RunFolder | None = None

    def ask(self, key: str, body: wire.Body, order_id: str = "", deadline_s: float = 120.0) -> wire.Reply:
        self.replies[key] = self.console.ask(body, order_id, deadline_s)
        return self.replies[key]

    def steer(self, key: str, verb: str, **args: Any) -> wire.Reply:
        return self.ask(key, wire.Steer(self.folder.name, verb, args))

    def state(self) -> wire.RunState | None:
        return self.console.state().runs.get(self.folder.name)

    def when(self, what: Callable[[wire.RunState], object]) -> wire.RunState:
        """The run's state as soon as it is so."""

        def now() -> wire.RunState | None:
            state = self.state()
            return state if state is not None and what(state) else None

        return until(now, 120)

    def reach(self, step: int) -> wire.RunState:
        return self.when(lambda now: now.phase == "training" and (now.step or 0) >= step)

    def records(self, kind: str, folder: RunFolder | None = None) -> list[dict[str, Any]]:
        return [one for one in progress.records((folder or self.folder).progress)[0] if one["kind"] == kind]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    home = tmp_path_factory.mktemp("steer")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables(home).items():
            patch.setenv(name, value)
        node = Node(home)
        try:
            yield tell(node, home)
        finally:
            node.close()


def random_model(folder: Path) -> Path:
    """A small Llama that knows nothing, made in a process of its own: the test process stays free of torch."""
    model = folder / "random-llama"
    command = [sys.executable, "-m", "jobs.train.pretrained", "--random", "--out", str(model), "--hidden", "32"]
    subprocess.run(command, cwd=trainings.ROOT, env=trainings.environment(), check=True, capture_output=True)
    return model


def tell(node: Node, home: Path) -> Story:
    text = SPEC.format(model=random_model(home), data=trainings.make_data(home), steps=100_000, rate=1e-3)
    console = node.console()
    launched = console.ask(wire.Launch(text, "steered.yaml"), deadline_s=120)
    assert launched.ok, launched
    one = Story(node, console, RunFolder.inside(node.state.runs, launched.result["run"]))
    live(one)
    paused(one)
    resumed(one)
    forked(one, text)
    return one


def live(one: Story) -> None:
    one.reach(120)
    one.steer("snapshot", "snapshot", pin=True)
    step = one.replies["snapshot"].result["step"]
    one.states["after snapshot"] = one.when(lambda now: (now.snapshot_step or 0) >= step)
    one.steer("rollback", "rollback", step=100, lr=5e-4)
    one.states["rolled back"] = one.when(lambda now: now.branch == 1 and now.step is not None)
    one.steer("bad rate", "rollback", lr="fast")
    one.steer("ahead", "rollback", step=10**7)
    one.ask("resume live", wire.Resume(one.folder.name))
    one.ask("list live", wire.ListSnapshots(one.folder.name, verify=True))
    one.reach(170)  # a snapshot on the new branch too
    one.steer("pause", "pause")


def paused(one: Story) -> None:
    one.states["paused"] = one.when(lambda now: now.phase == "ended")
    one.steer("snapshot ended", "snapshot")
    found = one.ask("list", wire.ListSnapshots(one.folder.name)).result["snapshots"]
    newest, older = found[0]["name"], found[1]["name"]
    one.names |= {"newest": newest, "older": older}
    one.ask("check", wire.Resume(one.folder.name, check=True))
    rows = one.node.folder / "rows.jsonl"
    before = rows.read_bytes()
    rows.write_bytes(before * 2)
    one.ask("other data", wire.Resume(one.folder.name, check=True))
    rows.write_bytes(before)
    keep = one.node.folder / "whole"
    shutil.copytree(one.folder.snapshots / newest, keep)
    weights = one.folder.snapshots / newest / "weights.safetensors"
    spoilt = bytearray(weights.read_bytes())
    spoilt[len(spoilt) // 2] ^= 1
    weights.write_bytes(spoilt)
    one.ask("resume damaged", wire.Resume(one.folder.name, newest))
    one.ask("passed over", wire.Resume(one.folder.name, check=True))
    one.ask("list damaged", wire.ListSnapshots(one.folder.name, verify=True))
    shutil.rmtree(one.folder.snapshots / newest)
    shutil.copytree(keep, one.folder.snapshots / newest)
    other = SPEC.format(model="x/y", data="/nowhere", steps=9, rate=1)
    one.ask("no such data", wire.Resume(one.folder.name, fork=True, spec_text=other))
    changed = one.folder.spec.read_text().replace("0.001", "0.002")
    one.ask("changed", wire.Resume(one.folder.name, spec_text=changed))
    one.ask("unpin", wire.Pin(one.folder.name, one.replies["snapshot"].result["snapshot"], pinned=False))
    one.ask("pin nothing", wire.Pin(one.folder.name, "b7-s00000001"))


def resumed(one: Story) -> None:
    # an order that nobody answered, a kill that nobody removed: neither may reach the next session
    durable.write_json(one.folder.order("late"), {"id": "late", "verb": "stop", "args": {}, "posted_unix": 1.0})
    durable.write_json(one.folder.path / "kill.json", {"order": "k", "grace_s": 0, "hard": True, "asked_unix": 1.0})
    began = len(one.console.levels)
    one.ask("resume", wire.Resume(one.folder.name), "resume-1")
    step = one.states["paused"].step or 0
    one.states["resumed"] = one.reach(step + 5)
    for level in one.console.levels[began:]:
        phase = level.changed.get("runs", {}).get(one.folder.name, {}).get("phase")
        one.phases += [phase] if phase else []
    one.ask("resume again", wire.Resume(one.folder.name), "resume-1")


def forked(one: Story, text: str) -> None:
    body = wire.Resume(one.folder.name, one.names["older"], fork=True, spec_text=text.replace("0.001", "0.002"))
    one.ask("fork check", wire.Resume(body.run, body.snapshot, True, True, body.spec_text))
    made = one.ask("fork", body, "fork-1")
    assert made.ok, made
    one.fork = RunFolder.inside(one.node.state.runs, made.result["run"])
    until(lambda: one.records("step", one.fork), 120)
    one.ask("fork again", body, "fork-1")
    for run in (one.folder.name, one.fork.name):
        one.ask(f"kill {run}", wire.Kill(run, grace_s=60), deadline_s=120)


def test_a_snapshot_on_demand_is_named_pinned_and_shown(story: Story) -> None:
    taken = story.replies["snapshot"]
    assert taken.ok and taken.result["outcome"] == "done", taken
    found = {one["name"]: one for one in story.replies["list live"].result["snapshots"]}
    mine = found[taken.result["snapshot"]]
    assert (mine["pinned"], mine["verified"], mine["badge"]) == (True, True, "exact")
    assert mine["size_bytes"] > 10_000 and mine["step"] == taken.result["step"]
    assert mine["why"] == "compared only when it starts: cpu"
    assert (story.states["after snapshot"].snapshot_step or 0) >= mine["step"]


def test_a_rollback_is_answered_and_seen(story: Story) -> None:
    back = story.replies["rollback"]
    assert back.ok and back.result["snapshot"] == "b0-s00000100", back
    state = story.states["rolled back"]
    assert state.branch == 1 and state.learning_rate is not None and state.learning_rate < 5.1e-4
    assert state.snapshot_step in (100, 150)
    told = [event.text for event in story.console.numbered() if event.kind == "run.rollback"]
    assert len(told) == 1 and "to step 100" in told[0]


def test_nonsense_never_reaches_the_job(story: Story) -> None:
    bad, ahead = story.replies["bad rate"], story.replies["ahead"]
    assert not bad.ok and bad.error == "rollback: lr is 'fast'" and bad.hint == "Give a positive number."
    assert not ahead.ok and "step 10000000 is ahead" in ahead.error


def test_a_live_run_is_not_resumed_and_an_ended_one_not_steered(story: Story) -> None:
    live, ended = story.replies["resume live"], story.replies["snapshot ended"]
    assert not live.ok and "is live" in live.error and "Roll it back" in live.hint
    assert not ended.ok and "has ended (stopped)" in ended.error and "tunedeck resume" in ended.hint
    assert len(list(story.folder.orders.glob("*.json"))) == 2 * len(list(story.folder.orders.glob("*.result.json")))


def test_a_pause_is_called_a_pause(story: Story) -> None:
    state = story.states["paused"]
    assert story.replies["pause"].ok
    assert state.reason == "stopped" and state.detail.startswith(f"paused at step {state.step}, resumes from b1-s")
    assert state.snapshot_step == state.step


def test_the_preflight_says_what_a_resume_would_be(story: Story) -> None:
    found = story.replies["check"]
    assert found.ok, found
    said, state = found.result, story.states["paused"]
    assert (said["run"], said["snapshot"]) == (story.folder.name, story.names["newest"])
    assert (said["step"], said["from_step"]) == (state.step, state.step)
    assert (said["label"], said["differences"], said["open"], said["refused"]) == ("exact", [], ["cpu"], [])
    assert said["forecast_s"] is None, "these are too small to measure a disk by"
    assert said["ready_s"] > 0, "this run has been seen to start"


def test_other_data_is_no_exact_resume(story: Story) -> None:
    said = story.replies["other data"].result
    assert said["label"] == "inexact" and [one.split()[0] for one in said["differences"]] == ["data"]


def test_a_damaged_snapshot_is_refused_and_the_next_older_one_offered(story: Story) -> None:
    newest, older = story.names["newest"], story.names["older"]
    refused = story.replies["resume damaged"]
    assert not refused.ok and "weights.safetensors was changed after it was written" in refused.error
    assert older in refused.hint and "next older good one" in refused.hint
    passed = story.replies["passed over"].result
    assert passed["snapshot"] == older and newest in passed["refused"][0]
    listed = story.replies["list damaged"].result
    assert [one["verified"] for one in listed["snapshots"]][:2] == [False, True]
    assert listed["refused"][0]["name"] == newest and "SHA-256" in listed["refused"][0]["reason"]


def test_a_changed_spec_is_a_fork(story: Story) -> None:
    changed = story.replies["changed"]
    assert not changed.ok and "train.learning_rate 0.001 → 0.002" in changed.error and "--fork" in changed.hint
    nowhere = story.replies["no such data"]
    assert not nowhere.ok and "/nowhere is not a file on this node" in nowhere.error


def test_pins_come_and_go(story: Story) -> None:
    assert story.replies["unpin"].ok
    assert not list(story.folder.snapshots.glob("*.pin")), "one order takes and pins one snapshot"
    assert "is missing" in story.replies["pin nothing"].error


def test_a_resumed_run_goes_on_where_it_paused(story: Story) -> None:
    done = story.replies["resume"]
    assert done.ok, done
    record = story.records("resume")[0]
    step = story.states["paused"].step
    assert (record["to_step"], record["badge"], record["snapshot"]) == (step, "exact", story.names["newest"])
    following = [one["step"] for one in story.records("step") if one["time_unix"] > record["time_unix"]]
    assert following[0] == (step or 0) + 1
    assert story.phases[0] == "starting" and story.phases[-1] == "training"
    assert story.states["resumed"].reason is None
    assert story.replies["resume again"].result == done.result and len(story.records("resume")) == 1
    late = durable.read_json(story.folder.answer("late")) or {}
    assert late["outcome"] == "refused"


def test_the_story_of_a_resumed_run_is_told_once_and_in_order(story: Story) -> None:
    kinds = [event.kind for event in story.console.numbered() if event.run == story.folder.name]
    told = [kind for kind in kinds if kind in ("run.started", "run.ended", "run.resumed")]
    assert told == ["run.started", "run.ended", "run.resumed", "run.ended"]
    last = kept.read(story.folder)
    assert last is not None and last.reason == "stopped"


def test_it_is_told_how_long_after_the_order_the_run_was_ready(story: Story) -> None:
    record = story.records("resume")[0]
    assert record["import_s"] > 0 and 0 < record["seconds"] < 60
    heard = [event for event in story.console.numbered() if event.run == story.folder.name]
    told = [event.text for event in heard if event.kind == "run.resume"]
    assert len(told) == 1 and re.search(r"; ready \d+\.\d s after the order, \d+\.\d s of it imports$", told[0]), told


@pytest.fixture(scope="module")
def exported(story: Story) -> Path:
    """An export as the job leaves it; beside it what somebody may have put there to lead a reader astray."""
    made = story.folder.path / "exports" / "final"
    made.mkdir(parents=True)
    (made / "weights").write_bytes(bytes(range(256)) * 4000)
    (made / "link").symlink_to(story.folder.spec)
    (made.parent / "linked").symlink_to(made)
    return made


def test_an_export_is_read_in_pieces(story: Story, exported: Path) -> None:
    content, size = b"", (exported / "weights").stat().st_size
    while len(content) < size:
        order = wire.ReadExport(story.folder.name, "final", "weights", len(content), 300_000)
        piece = story.console.ask(order).result
        content += base64.b64decode(piece["base64"])
        assert piece["next"] == len(content) and piece["size"] == size
    assert content == (exported / "weights").read_bytes()


@pytest.mark.parametrize(
    ("folder", "path"),
    [
        ("..", "spec.yaml"),
        ("final", "../../spec.yaml"),
        ("final", "/etc/passwd"),
        ("final", ""),
        ("final", "link"),
        ("final", "."),
        ("linked", "weights"),
        ("final", "nothing"),
    ],
)
@pytest.mark.usefixtures("exported")
def test_only_files_of_an_export_are_read(story: Story, folder: str, path: str) -> None:
    reply = story.console.ask(wire.ReadExport(story.folder.name, folder, path))
    assert not reply.ok and reply.error and reply.hint


def test_a_fork_is_a_run_of_its_own_that_takes_the_weights_only(story: Story) -> None:
    checked, made = story.replies["fork check"].result, story.replies["fork"].result
    assert checked["label"] == made["label"] == "weights-only"
    assert checked["differences"] == ["train.learning_rate 0.001 → 0.002"]
    assert story.fork is not None and story.fork.name != story.folder.name
    assert story.replies["fork again"].result == made
    record = story.records("resume", story.fork)[0]
    assert (record["badge"], record["to_step"], record["snapshot"]) == ("weights-only", 0, story.names["older"])
    assert story.records("step", story.fork)[0]["step"] == 1
    assert snapshot.verify(story.fork, story.names["older"]).meta["taken_by"] == story.folder.name
    told = [e.text for e in story.console.numbered() if e.kind == "run.started" and e.run == story.fork.name]
    assert len(told) == 1 and f"from {story.names['older']} of {story.folder.name}" in told[0]
    assert all(story.replies[f"kill {folder.name}"].ok for folder in (story.folder, story.fork))
