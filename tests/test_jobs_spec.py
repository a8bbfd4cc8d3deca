"""Run specs: what is taken, and that every mistake is one error with its line and what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import configs
from jobs import examples, launcher
from jobs.run_folder import RunFolder, run_id
from jobs.spec import Spec, SpecError

SHORT = "model: ~/models/x\ndata: {path: rows.jsonl}\n"


def test_defaults() -> None:
    spec = Spec.parse(SHORT, "my faults.yaml")
    assert (spec.name, spec.method, spec.python) == ("my faults", "lora", None)
    assert (spec.lora.rank, spec.lora.targets, spec.train.learning_rate) == (8, "all-linear", 2e-4)
    assert (spec.train.steps, spec.train.epochs, spec.hardware.processes, spec.snapshots.every) == (None, 1.0, 1, 100)
    assert Spec.parse(SHORT + "method: full").train.learning_rate == 2e-5


def test_numbers_as_people_write_them() -> None:
    spec = Spec.parse(
        SHORT + "train: {learning_rate: 2e-4, steps: 200, warmup: .1}\nlora: {targets: [q_proj, v_proj]}\n"
    )
    assert (spec.train.learning_rate, spec.train.steps, spec.train.warmup) == (2e-4, 200, 0.1)
    assert spec.lora.targets == ("q_proj", "v_proj")


WRONG = {
    "unknown key": (SHORT + "train:\n  leaning_rate: 1\n", 4, "train.leaning_rate is not a setting", "`learning_rate`"),
    "unknown section": (SHORT + "trian: {}\n", 3, "trian is not a setting", "`train`"),
    "type": (SHORT + "lora:\n  rank: eight\n", 4, "lora.rank is 'eight', expected a whole number", "from 1 to 4096"),
    "range": (SHORT + "lora: {rank: 0}\n", 3, "lora.rank is 0, out of range", "from 1 to 4096"),
    "not a number": (SHORT + "train: {learning_rate: nan}\n", 3, "learning_rate is nan, out of range", "from 0"),
    "twice": (SHORT + "data: {path: x}\n", 3, "data is given twice", "Remove"),
    "flag": ("model: a/b\ndata: {path: x, shuffle: maybe}\n", 2, "data.shuffle is 'maybe'", "shuffle: true"),
    "choice": (SHORT + "train: {schedule: cosin}\n", 3, "train.schedule is 'cosin'", "`cosine`"),
    "list for a number": (SHORT + "train: {steps: [1]}\n", 3, "train.steps is a list", "steps: 8"),
    "text for a section": (SHORT + "train: fast\n", 3, "train is not a mapping", "key: value"),
    "both": (
        SHORT + "train: {steps: 3, epochs: 1}\n",
        3,
        "train.steps and train.epochs exclude each other",
        "Keep one",
    ),
    "planned": (SHORT + "method: qlora\n", 3, "method qlora is not supported yet", "method: lora"),
    "name": ("name: ../up\n" + SHORT, 1, "name is '../up'", "letters"),
    "shell": ("name: a;rm\n" + SHORT, 1, "name is 'a;rm'", "letters"),
    "model": ("model: $(x)\ndata: {path: x}\n", 1, "model is '$(x)'", "hub id"),
    "no model": ("data: {path: x}\n", 1, "model is missing", "model: ~/models/NAME"),
    "no data": ("model: a/b\n", 1, "data.path is missing", "data: {path:"),
    "empty": ("", 1, "the spec is empty or no mapping", "key: value"),
    "broken": ("model: [a\n", 2, "not YAML", "brackets"),
    "tab": ("model: a/b\n\tdata: x\n", 2, "not YAML", "indentation"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_one_error_with_line_and_remedy(kind: str) -> None:
    text, line, message, hint = WRONG[kind]
    with pytest.raises(SpecError) as caught:
        Spec.parse(text, "run.yaml")
    wrong = caught.value
    assert message in wrong.message and hint in wrong.hint
    assert (wrong.file, wrong.line) == ("run.yaml", line)
    assert str(wrong).startswith(f"run.yaml:{line}: ")


@given(st.text(max_size=200))
def test_any_text_is_a_spec_or_a_spec_error(text: str) -> None:
    for candidate in (text, SHORT + text):
        try:
            Spec.parse(candidate)
        except SpecError as wrong:
            assert wrong.hint


def test_files_are_looked_for_on_the_node(tmp_path: Path) -> None:
    def fails(text: str) -> SpecError:
        with pytest.raises(SpecError) as caught:
            Spec.parse(text).check_files(tmp_path)
        return caught.value

    assert "models/x does not exist" in fails(SHORT).message and fails(SHORT).line == 1
    (tmp_path / "models/x").mkdir(parents=True)
    assert "has no config.json" in fails(SHORT).message
    (tmp_path / "models/x/config.json").write_text("{}")
    assert "rows.jsonl is not a file" in fails(SHORT).message and fails(SHORT).line == 2
    (tmp_path / "rows.jsonl").touch()
    assert "is empty" in fails(SHORT).message
    (tmp_path / "rows.jsonl").write_text("{}")
    assert "cannot be executed" in fails(SHORT + "python: ~/none/bin/python").message
    Spec.parse(SHORT).check_files(tmp_path)


def test_what_decides_a_training_and_what_does_not() -> None:
    same = Spec.parse(SHORT + "name: other\nsnapshots: {every: 5}\nrules: {on_nan: rollback}\nhardware: {processes: 2}")
    assert same.deciding() == Spec.parse(SHORT).deciding()
    assert Spec.parse(SHORT + "train: {seed: 1}").deciding() != Spec.parse(SHORT).deciding()
    json.dumps(same.deciding())


@pytest.mark.parametrize("path", sorted((configs.FOLDER / "specs").glob("*.yaml")), ids=lambda path: path.name)
def test_every_shipped_spec_loads(path: Path) -> None:
    spec = Spec.parse(path.read_text(encoding="utf-8"), path.name)
    assert spec.name and path.read_text().startswith("# ")


def test_the_shipped_examples_are_worth_training_on() -> None:
    found = examples.read(Spec.parse("model: a/b\ndata: {path: 'example:faults'}").data_file(Path("/nowhere")))
    rows = [row for row in found.rows if isinstance(row, examples.Instruction)]
    assert len(rows) == len(found.rows) >= 300 and found.skipped == 0
    assert len({(row.instruction, row.input) for row in rows}) == len({row.output for row in rows}) == len(rows)
    assert all(row.instruction and row.input and len(row.output.split()) >= 5 for row in rows)


def test_run_ids_are_plain(tmp_path: Path) -> None:
    name = run_id("Été: faults/LoRA", 1_764_000_000)
    assert name.startswith("t-faults-lora-20251124-") and RunFolder.inside(tmp_path, name).name == name
    for bad in ("../x", "a/b", "", "A", "-x"):
        with pytest.raises(ValueError, match="is not a run id"):
            RunFolder.inside(tmp_path, bad)


def test_a_staged_run_has_its_own_code(tmp_path: Path) -> None:
    spec = Spec.parse(SHORT + "hardware: {processes: 2}")
    folder = RunFolder.inside(tmp_path, "staged")
    folder.create()
    launcher.stage(folder, SHORT + "# é\n")
    assert folder.spec.read_bytes() == (SHORT + "# é\n").encode()
    assert (folder.path / "jobs/train/session.py").is_file() and (folder.path / "configs/__init__.py").is_file()
    command = launcher.argv(spec, folder, "/opt/python")
    assert command[:3] == ["/opt/python", "-m", "torch.distributed.run"] and command[-1] == str(folder.script)
    assert "--rdzv-endpoint=127.0.0.1:0" in command and "--nproc-per-node=2" in command
    added = launcher.environment(spec, ["GPU-1", "GPU-2"])
    assert (added["CUDA_VISIBLE_DEVICES"], added["HF_HUB_OFFLINE"]) == ("GPU-1,GPU-2", "1")
    assert launcher.environment(spec, [])["CUDA_VISIBLE_DEVICES"] == ""
