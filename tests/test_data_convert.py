"""What is converted reads back as the same examples, whatever the layout and kind of file; what cannot is refused."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from jobs.data import write
from jobs.data.convert import Conversion
from jobs.data.example import Example, Turn
from jobs.data.finding import REJECTED, Finding
from jobs.data.reading import Choices, DataSet, Read
from jobs.data.split import Amount, Split
from jobs.failure import JobError

CORPUS = Path(__file__).parent / "corpus" / "data"
LETTERS = some.characters(exclude_categories=["Cs"], exclude_characters="\x00")
WORDS = some.text(LETTERS, min_size=1, max_size=30).filter(lambda text: text.strip() != "")
CALLS = {"tool_calls": [{"type": "function", "function": {"name": "look", "arguments": {"at": [1, None, "ü"]}}}]}


@some.composite
def talks(draw: some.DrawFn, tools: bool = True) -> Example:
    turns = [Turn("system", draw(WORDS))] if draw(some.booleans()) else []
    for _number in range(draw(some.integers(1, 3))):
        turns.append(Turn("user", draw(WORDS)))
        if tools and draw(some.booleans()):
            turns += [Turn("assistant", "", CALLS), Turn("tool", draw(WORDS))]
        turns.append(Turn("assistant", draw(WORDS)))
    return Example("chat", tuple(turns), tools=[{"name": "look"}] if tools and draw(some.booleans()) else None)


@some.composite
def pairs(draw: some.DrawFn) -> Example:
    chosen, rejected = draw(some.lists(WORDS, min_size=2, max_size=2, unique=True))
    margin = draw(some.none() | some.floats(-5, 5))
    answers = (Turn("assistant", chosen),), (Turn("assistant", rejected),)
    return Example("preference", (Turn("user", draw(WORDS)),), *answers, margin=margin)


@some.composite
def labelled(draw: some.DrawFn) -> Example:
    turns = (Turn("user", draw(WORDS)), Turn("assistant", draw(WORDS)))
    return Example("kto", turns, label=draw(some.booleans()))


MADE: dict[str, Any] = {
    "alpaca": talks(tools=False),
    "sharegpt": talks(),
    "chat": talks(),
    "text": WORDS.map(lambda text: Example("text", text=text)),
    "preference": pairs(),
    "reward": pairs(),
    "kto": labelled(),
}


def read(path: Path, choices: Choices | None = None) -> list[Example]:
    found = list(DataSet([path], choices).read())
    assert not [item for item in found if isinstance(item, Finding) and item.level == REJECTED], found
    return [item.example for item in found if isinstance(item, Read)]


def convert(source: Path, layout: str, target: Path, **options: Any) -> list[Finding]:
    return list(Conversion(DataSet([source]), layout, target, **options).findings())


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv", ".tsv", ".jsonl.gz"])
@pytest.mark.parametrize("layout", MADE)
def test_round_trip(layout: str, suffix: str, tmp_path: Path) -> None:
    """Written by one, read by the other: the very same examples."""

    @settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(some.lists(MADE[layout], min_size=1, max_size=6))
    def there_and_back(examples: list[Example]) -> None:
        fitted = [write.fitted(example, layout)[0] for example in examples]
        source, target = tmp_path / "source.jsonl", tmp_path / f"target{suffix}"
        source.write_text("".join(json.dumps(write.row(e, layout)) + "\n" for e in fitted), encoding="utf-8")
        convert(source, layout, target, force=True)
        assert read(target, Choices(layout)) == fitted

    there_and_back()


def test_a_conversation_survives_every_layout_in_a_row(tmp_path: Path) -> None:
    source, before = CORPUS / "chat.jsonl", read(CORPUS / "chat.jsonl")
    for number, (layout, suffix) in enumerate(
        [("sharegpt", "parquet"), ("alpaca", "csv"), ("chat", "parquet"), ("sharegpt", "tsv"), ("chat", "json")]
    ):
        target = tmp_path / f"{number}.{suffix}"
        assert convert(source, layout, target) == []
        source = target
    assert read(source) == before


def test_pairs_with_and_without_their_prompt_are_the_same(tmp_path: Path) -> None:
    convert(CORPUS / "dpo-turns.jsonl", "reward", tmp_path / "reward.jsonl")
    convert(tmp_path / "reward.jsonl", "preference", tmp_path / "pairs.jsonl")
    found = [item.example for item in DataSet([CORPUS / "dpo-turns.jsonl"]).read() if isinstance(item, Read)]
    assert read(tmp_path / "pairs.jsonl") == found


@pytest.mark.parametrize(
    ("name", "layout", "reason"),
    [
        ("tools.jsonl", "alpaca", "alpaca has no place for tools"),
        ("parts.jsonl", "sharegpt", "sharegpt has no place for parts"),
        ("dpo.jsonl", "chat", "chat has no place for a pair of answers"),
        ("text.jsonl", "chat", "chat has no place for plain text"),
    ],
)
def test_what_a_layout_has_no_place_for_is_refused_by_row(name: str, layout: str, reason: str, tmp_path: Path) -> None:
    before = (CORPUS / name).read_bytes()
    source = tmp_path / name
    source.write_bytes(before)
    findings = []
    with suppress(JobError):  # where it is so with every row, nothing is written
        for finding in Conversion(DataSet([source]), layout, tmp_path / "out.jsonl").findings():
            findings.append(finding)
    assert any(reason in finding.reason for finding in findings), findings
    assert {path.name for path in tmp_path.iterdir()} <= {name, "out.jsonl"}


def test_ids_of_calls_that_sharegpt_cannot_hold_are_said_to_be_left_out(tmp_path: Path) -> None:
    findings = convert(CORPUS / "tools.jsonl", "sharegpt", tmp_path / "out.jsonl")
    assert [f.place for f in findings if f.kind == "left-out"] == [1]


def test_a_file_that_does_not_read_back_is_not_published(tmp_path: Path) -> None:
    """NUL cannot stand in a table of text: only reading back shows it."""
    source = tmp_path / "source.jsonl"
    source.write_text('{"instruction": "a", "output": "b"}\n{"instruction": "c", "output": "d\\u0000e"}\n')
    with pytest.raises(JobError, match="its line 3 would be wrong"):
        convert(source, "alpaca", tmp_path / "out.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["source.jsonl"]
    assert convert(source, "alpaca", tmp_path / "out.jsonl") == []


def test_nothing_is_overwritten_unasked_nor_onto_itself(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    source.write_text('{"instruction": "a", "output": "b"}\n')
    other = tmp_path / "b.jsonl"
    other.write_text("precious")
    with pytest.raises(JobError, match="is there already"):
        convert(source, "alpaca", other)
    with pytest.raises(JobError, match="both read and written"):
        convert(source, "alpaca", source, force=True)
    with pytest.raises(JobError, match="no kind of file"):
        convert(source, "alpaca", tmp_path / "c.doc")
    assert other.read_text() == "precious"


def test_repeated_rows_are_left_out_where_asked_and_columns_come_along(tmp_path: Path) -> None:
    findings = convert(CORPUS / "duplicates.jsonl", "chat", tmp_path / "out.jsonl", unique=True)
    assert sorted(f.place for f in findings) == [3, 5, 6]
    assert len(read(tmp_path / "out.jsonl")) == 3
    convert(CORPUS / "other-names.jsonl", "alpaca", tmp_path / "kept.jsonl", keep=["id"])
    rows = [json.loads(line) for line in (tmp_path / "kept.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == [1, 2]


def questions(path: Path) -> list[str]:
    return [json.loads(line)["instruction"] for line in path.read_text().splitlines()]


def split(source: Path, amount: str, folder: Path, seed: int = 42) -> tuple[list[str], list[str]]:
    train, held = folder / "train.jsonl", folder / "eval.jsonl"
    list(Split(DataSet([source]), Amount.parse(amount), seed, train, held, True).findings())
    return questions(train), questions(held)


def test_a_split_has_the_wanted_size_and_keeps_questions_on_one_side(tmp_path: Path) -> None:
    source = tmp_path / "all.jsonl"
    rows = [{"instruction": f"q{i % 150}", "output": f"a{i}"} for i in range(200)]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    train, held = split(source, "20", tmp_path)
    assert 20 <= len(held) <= 21 and len(train) + len(held) == 200
    assert not set(train) & set(held)
    assert split(source, "10%", tmp_path)[1] == held == split(source, "0.1", tmp_path)[1]
    assert split(source, "20", tmp_path, seed=1)[1] != held
    source.write_text("".join(json.dumps(row) + "\n" for row in reversed(rows)))
    assert sorted(split(source, "20", tmp_path)[1]) == sorted(held)


@pytest.mark.parametrize("amount", ["0", "1.0", "-3", "many", "0%", "100%"])
def test_amounts_that_make_no_sense(amount: str) -> None:
    with pytest.raises(JobError, match="Write a number of rows"):
        Amount.parse(amount)


def test_a_split_that_leaves_nothing_to_train_on_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="leave nothing to train on"):
        split(CORPUS / "plain.jsonl", "3", tmp_path)
    assert list(tmp_path.iterdir()) == []
