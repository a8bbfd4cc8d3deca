"""Bit equality: a rolled-back or resumed training is the undisturbed one, for the installed transformers and torch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs import orders, progress, snapshot
from jobs.run_folder import RunFolder
from tests import trainings
from tests.trainings import Scenario

pytestmark = pytest.mark.timeout(900)

STEPS = 12
WORLDS = (1, 2)
METHODS = ("lora", "full")
PLAIN = {"way": "train", "step": 5}
# rolled back at step 11: to 8 out of memory within the loop, to 4 from disk by a second train(); then one paused at 7
WAYS: dict[str, dict[str, list[tuple[str, dict[str, Any]]]]] = {
    "base": {},
    "memory": {"11": [("rollback", {"way": "in-place"})]},
    "disk": {"11": [("rollback", PLAIN)]},
    "pause": {"7": [("pause", {})]},
}
TEN = {"11": [("rollback", {"way": way}) for _ in range(5) for way in ("in-place", "train")]}


def spec(model: Path, data: Path, method: str, more: str = "") -> str:
    """An epoch is 21 examples, so that it ends between two steps of 2 or 4; it crosses the rollbacks in every case."""
    return f"""
model: {model}
data: {{path: {data}, max_length: 48}}
method: {method}
lora: {{rank: 4, dropout: 0.1}}
train: {{steps: {STEPS}, accumulation: 2, workers: 2, learning_rate: 1e-2, seed: 7}}
snapshots: {{every: 4}}
{more}"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunFolder]:
    """All trainings of this file, by name: WAY-METHOD-WORLD. What resumes does so in new processes."""
    home = tmp_path_factory.mktemp("rollback")
    model, data = trainings.MODEL, trainings.make_data(home)
    found: dict[str, RunFolder] = {}

    def planned(name: str, text: str, orders: Any = None, fault: str = "") -> Scenario:
        found[name] = trainings.make_run(home, name, text)
        return Scenario(str(found[name].path), orders or {}, fault)

    plans = {
        world: [
            planned(f"{way}-{method}-{world}", spec(model, data, method), wanted)
            for method in METHODS
            for way, wanted in WAYS.items()
        ]
        for world in WORLDS
    }
    text = spec(model, data, "lora")
    plans[3] = [planned("base-lora-3", text), planned("pause-lora-3", text, WAYS["pause"])]
    by_rule = spec(model, data, "lora", "rules: {on_nan: rollback, on_spike: rollback}")
    plans[1] += [
        planned("ten-lora-1", text, TEN),
        planned("control-lora-1", text, {"11": [("rollback", PLAIN)]}, fault="no-rng"),
        planned("nan-lora-1", by_rule, fault="nan"),
        planned("spike-lora-1", by_rule, fault="spike"),
        planned("change-lora-1", text, {"6": [("rollback", {"step": 4, "lr": 1e-3, "skip_data": True})]}),
        planned("fork-lora-1", text, {"4": [("snapshot", {"pin": True})], "6": [("stop", {})]}),
        planned("targets-lora-1", text.replace("dropout", "targets: [nothing_proj], dropout"), fault="refused"),
    ]
    newest = {"snapshot": "newest"}
    again = {
        world: [Scenario(str(found[f"pause-{method}-{world}"].path), resume=newest) for method in METHODS]
        for world in WORLDS
    }
    again[3] = [Scenario(str(found["pause-lora-3"].path), resume=newest)]
    forked, changed = str(found["fork-lora-1"].path), text.replace("seed: 7", "seed: 8")
    again[1] += [Scenario(forked, fault="refused", resume=newest, spec=changed)]
    again[1] += [Scenario(forked, resume={**newest, "fork": True})]
    trainings.run([plans, again], home / "stages.json")
    return found


def records(folder: RunFolder, kind: str) -> list[dict[str, Any]]:
    return [record for record in progress.records(folder.progress)[0] if record["kind"] == kind]


def curve(folder: RunFolder) -> dict[int, tuple[str, str, str]]:
    """Of each step the last time it was done: loss, gradient norm, learning rate, as exact hexadecimal."""
    keys = ("loss", "grad_norm", "learning_rate")
    return {one["step"]: tuple(float(one[key]).hex() for key in keys) for one in records(folder, "step")}  # type: ignore[misc]


def last_state(folder: RunFolder) -> dict[str, str]:
    """Digests of weights, optimizer, and of random generators, schedule and place in the data, at the last step."""
    return {part: digest for part, (_, digest) in snapshot.listing(folder)[-1].files.items()}


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("way", ["memory", "disk", "pause"])
def test_equal_to_the_bit(runs: dict[str, RunFolder], way: str, method: str, world: int) -> None:
    base, other = runs[f"base-{method}-{world}"], runs[f"{way}-{method}-{world}"]
    assert snapshot.listing(base)[-1].step == STEPS == len(curve(base))
    assert curve(other) == curve(base)
    assert last_state(other) == last_state(base)
    for found in snapshot.listing(other):
        snapshot.verify(other, found.name)


def test_three_ranks_resume_to_the_bit(runs: dict[str, RunFolder]) -> None:
    """Among three the order of sums matters, and DDP has one of its own in the first step of a process."""
    assert curve(runs["pause-lora-3"]) == curve(runs["base-lora-3"])
    assert last_state(runs["pause-lora-3"]) == last_state(runs["base-lora-3"])


@pytest.mark.parametrize("world", WORLDS)
def test_the_branch_is_on_record(runs: dict[str, RunFolder], world: int) -> None:
    memory, disk = (records(runs[f"{way}-lora-{world}"], "rollback")[0] for way in ("memory", "disk"))
    assert (memory["from_step"], memory["to_step"], memory["method"], memory["source"]) == (11, 8, "in-place", "memory")
    assert (disk["from_step"], disk["to_step"], disk["method"], disk["source"]) == (11, 4, "train", "disk")
    steps = records(runs[f"disk-lora-{world}"], "step")
    assert [one["step"] for one in steps if one["branch"] == 0] == list(range(1, 12))
    assert [one["step"] for one in steps if one["branch"] == 1] == list(range(5, STEPS + 1))
    names = [found.name for found in snapshot.listing(runs[f"disk-lora-{world}"])]
    assert names == ["b0-s00000004", "b0-s00000008", "b1-s00000008", "b1-s00000012"]


@pytest.mark.parametrize("world", WORLDS)
def test_a_pause_publishes_nothing_and_resumes_exactly(runs: dict[str, RunFolder], world: int) -> None:
    folder = runs[f"pause-full-{world}"]
    ends = records(folder, "end")
    assert [one["outcome"] for one in ends] == ["stopped", "completed"]
    assert ends[0]["detail"] == "paused at step 7, resumes from b0-s00000007"
    resumed = records(folder, "resume")[0]
    assert (resumed["badge"], resumed["from_step"], resumed["to_step"], resumed["branch"]) == ("exact", 7, 7, 0)
    assert [one["step"] for one in records(folder, "step")] == list(range(1, STEPS + 1))


def test_every_order_is_answered(runs: dict[str, RunFolder]) -> None:
    for name, folder in runs.items():
        assert orders.pending(folder) == [], name
    answers = [json.loads(path.read_text()) for path in runs["ten-lora-1"].orders.glob("*.result.json")]
    assert [one["outcome"] for one in answers] == ["done"] * 10


def test_ten_rollbacks_leak_nothing(runs: dict[str, RunFolder]) -> None:
    folder = runs["ten-lora-1"]
    assert last_state(folder) == last_state(runs["base-lora-1"])
    assert [one["new_branch"] for one in records(folder, "rollback")] == list(range(1, 11))
    visits = [one for one in json.loads((folder.path / "counts.json").read_text()) if one["step"] == 10]
    assert len(visits) == 11
    early, late = visits[1:6], visits[6:]  # batches under way from the loader's workers hold up to a few handles each
    for kind in ("handles", "threads"):
        assert max(one[kind] for one in late) <= max(one[kind] for one in early)
    assert late[-1]["rss"] - early[0]["rss"] < 16 << 20


def test_control_without_random_state_differs(runs: dict[str, RunFolder]) -> None:
    """The comparison bites: a rollback that forgets the generators is told from a right one."""
    assert last_state(runs["control-lora-1"]) != last_state(runs["base-lora-1"])
    assert curve(runs["control-lora-1"])[STEPS] != curve(runs["base-lora-1"])[STEPS]


@pytest.mark.parametrize("fault", ["nan", "spike"])
def test_rules_roll_back_by_themselves(runs: dict[str, RunFolder], fault: str) -> None:
    folder = runs[f"{fault}-lora-1"]
    back = records(folder, "rollback")
    assert [(one["from_step"], one["to_step"], one["skip_data"]) for one in back] == [(6, 4, True)]
    assert any("rolling back by rule" in one["message"] for one in records(folder, "warning"))
    losses = [float(one["loss"]) for one in records(folder, "step") if one["branch"] == 1]
    assert len(losses) == STEPS - 4 and max(losses) < 6
    assert records(folder, "end")[0]["outcome"] == "completed"


def test_a_changed_rollback_takes_other_data_at_another_rate(runs: dict[str, RunFolder]) -> None:
    folder, base = runs["change-lora-1"], runs["base-lora-1"]
    changed, before = curve(folder), curve(base)
    assert {step: changed[step] for step in range(1, 5)} == {step: before[step] for step in range(1, 5)}
    rates = {one["step"]: one["learning_rate"] for one in records(folder, "step") if one["branch"] == 1}
    usual = {one["step"]: one["learning_rate"] for one in records(base, "step")}
    for step in range(6, STEPS + 1):
        assert rates[step] == pytest.approx(usual[step] / 10)
    epochs = {one["step"]: one["epoch"] for one in records(folder, "step") if one["branch"] == 1}
    assert epochs[5] == pytest.approx((6 + 1) * 2 / trainings.ROWS, abs=1e-3)
    assert "b1-s00000004" in [found.name for found in snapshot.listing(folder)]


def failure(folder: RunFolder) -> list[str]:
    told: list[str] = json.loads((folder.path / "failure.json").read_text())
    return told


def stopped(runs: dict[str, RunFolder]) -> int:
    """The step at which fork-lora-1 was stopped: 5 or 6, as orders are also looked at while a snapshot is under way."""
    step: int = records(runs["fork-lora-1"], "end")[0]["step"]
    assert step in (5, 6)
    return step


def test_a_changed_spec_is_a_fork(runs: dict[str, RunFolder]) -> None:
    folder = runs["fork-lora-1"]
    message, hint = failure(folder)
    stop = stopped(runs)
    assert message == f"the spec changed since b0-s0000000{stop}: train.seed 7 → 8" and "fork" in hint
    resumed = records(folder, "resume")[0]
    assert (resumed["badge"], resumed["to_step"], resumed["reasons"]) == ("weights-only", 0, ["train.seed 7 → 8"])
    losses = [(one["branch"], one["step"], one["loss"]) for one in records(folder, "step")]
    assert [pair[:2] for pair in losses] == [(0, at) for at in range(1, stop + 1)] + [
        (1, at) for at in range(1, STEPS + 1)
    ]
    assert losses[stop][2] < losses[0][2] - 0.1  # what had been learned was taken over


def test_targets_that_do_not_exist_are_named(runs: dict[str, RunFolder]) -> None:
    message, hint = failure(runs["targets-lora-1"])
    assert message.startswith("lora.targets does not fit the model") and "all-linear" in hint


def test_a_snapshot_by_order_is_pinned_and_not_taken_twice(runs: dict[str, RunFolder]) -> None:
    """The order came at a step at which one was due anyway, and while it was written it was not carried out again."""
    folder, stop = runs["fork-lora-1"], stopped(runs)
    taken = [(one["name"], one["reason"], one["state"]) for one in records(folder, "snapshot") if one["branch"] == 0]
    assert taken == [("b0-s00000004", "order", "published"), (f"b0-s0000000{stop}", "stop", "published")]
    assert [found.pinned for found in snapshot.listing(folder)][:2] == [True, False]
    answers = [json.loads(path.read_text()) for path in folder.orders.glob("*.result.json")]
    assert {one["snapshot"] for one in answers} == {"b0-s00000004", f"b0-s0000000{stop}"}


def test_stop_publishes_what_there_is(runs: dict[str, RunFolder]) -> None:
    folder = runs["fork-lora-1"]
    stop = stopped(runs)
    assert records(folder, "end")[0]["detail"] == f"stopped at step {stop}, resumes from b0-s0000000{stop}"
    assert (folder.output / "adapter_config.json").is_file()
    assert (runs["base-full-2"].output / "model.safetensors").is_file()


@pytest.fixture(autouse=True)
def nothing_left(runs: dict[str, RunFolder]) -> Iterator[None]:
    yield
    for name, folder in runs.items():
        assert [path.name for path in folder.snapshots.iterdir() if path.name.startswith(".")] == [], name
