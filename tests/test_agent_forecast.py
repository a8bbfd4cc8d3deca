"""Memory before and after a launch: what does not fit is refused, what was measured corrects the next forecast."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agent import forecast, keepers, kept, launch, lessons, ram, wire
from agent.events import Events
from agent.interpreters import Interpreter
from agent.launch import Surroundings
from agent.lessons import Lessons
from agent.refusal import Refusal
from jobs import durable
from jobs.identity import ProcessIdentity
from jobs.plan.correction import Correction
from jobs.run_folder import RunFolder
from jobs.spec import Spec
from tests.fakes.node import Console, Node, until
from tests.test_agent_launch import model as model
from tests.test_agent_launch import spec_text

GIB = 1 << 30
SMALL = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96,
    "vocab_size": 128,
}  # fmt: skip


def card(number: int, used_gib: float | None = 0.0, total_gib: int = 24) -> wire.Gpu:
    used = None if used_gib is None else int(used_gib * GIB)
    total = None if used_gib is None else total_gib * GIB
    return wire.Gpu(f"GPU-{number}", number, memory_total_bytes=total, memory_used_bytes=used)


def spec(model: str = "meta-llama/Llama-3.1-8B", **data: object) -> Spec:
    return Spec.parse(json.dumps({"model": model, "data": {"path": "d", **data}, "train": {"batch_size": 4}}))


def of(asked: Spec, *cards: wire.Gpu, **learnt: Correction) -> forecast.Forecast:
    return forecast.of(asked, Path("/"), [one.uuid for one in cards], {one.uuid: one for one in cards}, learnt)


def test_the_fullest_card_decides() -> None:
    assert of(spec(max_length=64), card(0, total_gib=40), card(1, total_gib=40)).answer == "yes"
    unfit = of(spec(max_length=4096), card(0))
    assert unfit.answer == "no" and "does not fit" in unfit.text and "gradient_checkpointing: true" in unfit.hint
    assert of(spec(max_length=64), card(0), card(1, used_gib=20)).answer == "no"
    assert "cannot be read" in of(spec(), card(0), card(1, used_gib=None)).text


def test_the_hint_names_settings_that_a_spec_has_and_that_suffice() -> None:
    hint = of(spec(max_length=4096), card(0)).hint
    assert "`train.gradient_checkpointing: true`" in hint
    assert "batch_size: 1 and train.accumulation: 4" in hint and "data.max_length: 1024" in hint, hint
    train = {"batch_size": 1, "accumulation": 4, "gradient_checkpointing": True}
    again = {"model": "meta-llama/Llama-3.1-8B", "data": {"path": "d", "max_length": 1024}, "train": train}
    assert of(Spec.parse(json.dumps(again)), card(0)).answer in ("yes", "tight")


def test_of_an_unknown_model_nothing_is_said_and_nothing_refused() -> None:
    said = of(spec("some/thing"), card(0))
    assert said.need_bytes is None and said.text.startswith("no forecast: model 'some/thing' is not known")
    said.refuse_unfit()


def test_what_was_learnt_is_used_and_shown() -> None:
    plain, learnt = of(spec(max_length=64), card(0)), of(spec(max_length=64), card(0), cuda=Correction(1.25, 3))
    assert plain.need_bytes and learnt.need_bytes == pytest.approx(1.25 * plain.need_bytes, rel=1e-6)
    assert "x 1.25, learnt from 3 runs on this machine" in learnt.text
    assert of(spec(max_length=64), card(0), cuda=Correction(1.9, 3)).answer == "no"


def test_a_launch_that_does_not_fit_is_refused_but_not_by_force(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    huge = tmp_path / "huge"
    huge.mkdir()
    (huge / "config.json").write_text(json.dumps({**SMALL, "hidden_size": 16384, "num_hidden_layers": 200}))
    order = wire.Launch(spec_text(tmp_path, str(huge)))
    console = node.console()
    refused = console.ask(order)
    assert not refused.ok and "does not fit: each process needs about" in refused.error and "force" in refused.hint
    assert refused.result["kind"] == "does-not-fit" and refused.result["need_bytes"] > refused.result["room_bytes"]
    assert list(node.state.runs.iterdir()) == []
    monkeypatch.setattr(keepers, "start", lambda _folder: None)
    around = Surroundings(node.state, {}, None, "", frozenset())
    forced = launch.launch(wire.Launch(order.spec_text, force=True), "launch-2", "me", around)
    record = json.loads(RunFolder.inside(node.state.runs, forced).record.read_text())
    assert record["forecast"]["answer"] == "no" and record["forecast"]["kind"] == "rss"


@pytest.mark.parametrize(
    ("gpus", "age_s", "kind"), [((card(0, 5.0),), 0.0, "busy-gpus"), ((card(0),), 99.0, "stale-gpus")]
)
def test_refusals_that_force_overrides_say_their_kind(
    node: Node, gpus: tuple[wire.Gpu, ...], age_s: float, kind: str
) -> None:
    around = Surroundings(node.state, {one.uuid: one for one in gpus}, age_s, "", frozenset())
    asked = Spec.parse("model: org/m\ndata: {path: d}\nhardware: {device: cuda}")
    with pytest.raises(Refusal) as refused:
        launch.pick_gpus(asked, Interpreter("python", "12.8"), around, False)
    assert refused.value.result == {"kind": kind}
    assert launch.pick_gpus(asked, Interpreter("python", "12.8"), around, True) == ["GPU-0"]


def happened(console: Console, run: str, kind: str) -> list[wire.Event]:
    return [e for e in console.events if isinstance(e, wire.Event) and e.run == run and e.kind == kind]


def test_a_real_run_teaches_its_machine(node: Node, tmp_path: Path, model: Path) -> None:
    console = node.console()
    launched = console.ask(wire.Launch(spec_text(tmp_path, str(model))))
    assert launched.ok and "each process needs about 0.4 of" in launched.result["forecast"]
    run = launched.result["run"]
    told = until(lambda: happened(console, run, "run.memory"), 120)
    assert console.ask(wire.Kill(run, hard=True), deadline_s=120).ok
    assert "memory: forecast 0.3" in told[0].text and "correction now x" in told[0].text
    assert 0.8 < told[0].data["after"] < 1.25, "one process with hardly any model"
    learnt = lessons.corrections(node.state)["rss"]
    assert learnt.runs == 1 and learnt.factor == told[0].data["after"]
    assert "each process needs about" in happened(console, run, "run.started")[0].text


def written(node: Node, tokens_per_s: float, used: int, batch: int = 1, kind: str = "cuda") -> RunFolder:
    """A run on a card as its folder tells it after six steps of one second."""
    folder = node.prepare("short", ranks=1)
    text = {
        "model": "meta-llama/Llama-3.1-8B",
        "data": {"path": "d", "max_length": 512},
        "train": {"batch_size": batch},
    }
    folder.spec.write_text(json.dumps(text))
    record = json.loads(folder.record.read_text())
    durable.write_json(folder.record, {**record, "forecast": {"need_bytes": 1}})
    step = {"kind": "step", "memory_kind": kind, "memory_bytes": [used], "step_time_s": 1.0, "time_unix": 1.0}
    lines = [json.dumps({**step, "step": n, "tokens_per_s": tokens_per_s}) for n in range(1, 8)]
    folder.progress.write_text("\n".join(lines) + "\n")
    return folder


def taught(node: Node, folder: RunFolder) -> list[wire.Event]:
    record = json.loads(folder.record.read_text())
    events = Events(node.state.events)
    newest = {"start": {"first_step": 1}, "step": {"step": 7}}
    pupil = Lessons(node.state)
    for _ in range(2):
        pupil.look(folder, record, newest, events)
    Lessons(node.state).look(folder, record, newest, events)  # as after a restart of the daemon
    events.flush()
    return [event for event in events.kept if event.kind == "run.memory" and event.run == folder.name]


def test_a_reading_is_held_against_the_lengths_that_were_seen_and_told_once(node: Node) -> None:
    low, high = lessons.expected_bytes(
        folder := written(node, 100.0, 1), {"world_size": 1}, lessons.Reading("cuda", 1, 100.0)
    )
    assert low == high, "one example a step: its length is known"
    folder = written(node, 100.0, round(1.2 * low))
    (event,) = taught(node, folder)
    assert event.data["after"] == pytest.approx(1.2, rel=1e-3)
    (second,) = taught(node, written(node, 100.0, round(1.0 * low)))
    assert second.data["before"] == pytest.approx(1.2, rel=1e-3) and second.data["after"] == pytest.approx(
        1.1, rel=1e-3
    )


def test_lengths_that_nobody_knows_are_not_taken_for_the_machines_doing(node: Node) -> None:
    found = lessons.Reading("cuda", 1, 400.0)
    low, high = lessons.expected_bytes(written(node, 400.0, 1, batch=4), {"world_size": 1}, found)
    assert low < high, "four examples of 100 tokens on average, or one of 512 and three short ones padded to it"
    (event,) = taught(node, written(node, 400.0, round((low + high) / 2), batch=4))
    assert event.data["after"] == 1.0
    (event,) = taught(node, written(node, 400.0, round(1.3 * high), batch=4))
    assert event.data["after"] == pytest.approx(1.15, rel=1e-3)


def test_broken_lessons_are_none(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.state.create()
    node.state.lessons.write_text("{")
    assert lessons.corrections(node.state) == {} and "is not used" in caplog.text
    node.state.lessons.write_text('{"cuda": {"factor": 99, "runs": 3}}')
    assert lessons.corrections(node.state)["cuda"] == Correction()


def test_the_peak_of_a_process_is_read_while_it_lives() -> None:
    me = lessons.high_water_bytes(kept.RankRecord(0, ProcessIdentity.of(os.getpid()), None))
    assert me is not None and me > 10 << 20
    assert lessons.high_water_bytes(kept.RankRecord(0, None, None)) is None


def test_a_containers_limit_counts(tmp_path: Path) -> None:
    whole = ram.available_bytes(tmp_path)
    assert whole is not None and whole > 1 << 20
    for name, text in (
        ("memory.max", "5000"),
        ("memory.current", "4500"),
        ("memory.stat", "anon 3\ninactive_file 500"),
    ):
        (tmp_path / name).write_text(text + "\n")
    assert ram.available_bytes(tmp_path) == 1000
    (tmp_path / "memory.max").write_text("max\n")
    assert ram.left(tmp_path, *ram.UNIFIED) is None
