"""Where rows come from, and that memory and time stay bounded whatever is in the files."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import textwrap
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from jobs.data import json_stream, source
from jobs.data.check import Check
from jobs.data.finding import Finding
from jobs.data.near import Near
from jobs.data.reading import Choices, DataSet, Read
from jobs.data.source import Source
from jobs.data.spill import Place, Spill
from jobs.data.text import Text
from jobs.failure import JobError

ROOT = Path(__file__).resolve().parent.parent
CORPUS = ROOT / "tests" / "corpus" / "data"


def row(i: int) -> str:
    return json.dumps({"instruction": f"question {i}", "output": f"answer {i}"})


def write(path: Path, rows: int, start: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{row(i)}\n" for i in range(start, start + rows)))
    return path


def findings(paths: list[Path], held_back: list[bool] | None = None) -> list[Finding]:
    return list(Check(DataSet(paths), held_back or [False] * len(paths)).findings())


def test_folders_and_patterns(tmp_path: Path) -> None:
    names = ("a.jsonl", "b/c.json", "b/d.csv")
    made = [write(tmp_path / name, 1) for name in names]
    for name in (".hidden.jsonl", "b/dataset_info.json", "notes.doc", ".cache/x.jsonl"):
        write(tmp_path / name, 1)
    assert source.found([str(tmp_path)]) == made
    assert source.found([str(tmp_path / "**" / "*.json*")]) == made[:2]
    assert source.found([str(made[0]), str(tmp_path)]) == made
    for wrong in (str(tmp_path / "none.jsonl"), str(tmp_path / "*.parquet")):
        with pytest.raises(JobError, match="is not there"):
            source.found([wrong])
    (tmp_path / "empty").mkdir()
    with pytest.raises(JobError, match="holds no data files"):
        source.found([str(tmp_path / "empty")])


@pytest.mark.parametrize(
    ("name", "held_back"),
    [("test.jsonl", True), ("my-eval-2.csv", True), ("validation-00000-of-1.parquet", True), ("latest.jsonl", False)],
)
def test_held_back_files_are_known_by_name(name: str, held_back: bool) -> None:
    assert source.held_back(Path(name)) is held_back


def test_what_is_held_back_and_trained_on_is_named(tmp_path: Path) -> None:
    train, held = write(tmp_path / "train.jsonl", 20), write(tmp_path / "eval.jsonl", 4, start=17)
    with held.open("a") as more:
        more.write('{"instruction": "question 3", "output": "another answer"}\n')
    found = findings([train, held], [False, True])
    assert {(f.kind, Path(f.file).name, f.place) for f in found} == {
        ("leak", "eval.jsonl", 1),
        ("leak", "eval.jsonl", 2),
        ("leak", "eval.jsonl", 3),
        ("leak-question", "eval.jsonl", 5),
    }
    assert any(f"{train}, line 18" in f.reason for f in found)


def test_rows_over_the_edges_of_pieces_keep_their_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read in pieces of any size, a list gives the same rows at the same lines, broken ones included."""
    text = "[\n" + ",\n".join(f'{{"n": {i},\n "t": "\\u00fc{"x" * (i % 7)} 漢"}}' for i in range(60)) + ",\n{broken},\n"
    text += '{"n": 60}\n]\n'
    path = tmp_path / "list.json"
    path.write_text(text, encoding="utf-8")
    whole = [(r.place, r.value, bool(r.fault)) for r in Source(path).rows()]
    assert [place for place, _value, fault in whole if fault] == [122]
    assert [value["n"] for _place, value, fault in whole if not fault] == list(range(61))
    for size in (1, 2, 3, 7, 64, 129):
        monkeypatch.setattr("jobs.data.charset.CHUNK_BYTES", size)
        assert [(r.place, r.value, bool(r.fault)) for r in json_stream.rows(Text(path, "utf-8"))] == whole


def test_a_row_without_end_is_skipped_and_the_next_ones_are_read(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    with path.open("w") as file:
        file.write(row(0) + "\n" + '{"instruction": "' + "x" * (17 << 20) + '", "output": "y"}\n' + row(1) + "\n")
    rows = list(Source(path).rows())
    assert [(r.place, r.fault.kind if r.fault else "") for r in rows] == [(1, ""), (2, "too-long"), (3, "")]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["lines", "list on one line", "objects", "csv"])
def test_memory_does_not_grow_with_the_file(form: str, tmp_path: Path) -> None:
    def peak(rows: int) -> int:
        path = tmp_path / f"{rows}.{'csv' if form == 'csv' else 'jsonl'}"
        if form == "csv":
            path.write_text("instruction,output\n" + "".join(f"question {i},{'x' * 2000}\n" for i in range(rows)))
        else:
            made = [json.dumps({"instruction": f"question {i}", "output": "x" * 2000}) for i in range(rows)]
            between = {"lines": "\n", "list on one line": ", ", "objects": "\n\n"}[form]
            if form == "objects":
                made = [json.dumps(json.loads(text), indent=1) for text in made]
            joined = between.join(made)
            path.write_text(f"[{joined}]" if form.startswith("list") else joined)
        tracemalloc.start()
        data = DataSet([path])
        assert sum(1 for _item in data.read()) == rows
        _now, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    assert peak(4_500) < peak(1_500) + 3 * 1024**2


def test_digests_beyond_memory_go_to_disk_and_give_the_same_groups() -> None:
    def groups(memory_bytes: int) -> list[tuple[bytes, list[tuple[bytes, Place]]]]:
        with Spill(memory_bytes) as spill:
            for i in range(5_000):
                spill.add((i % 1_700).to_bytes(2, "big") * 8, i.to_bytes(8, "big"), 0, i)
            assert sum(1 for _key in spill.in_order()) == 5_000
            return list(spill.groups())

    small, large = groups(4_096), groups(1 << 24)
    assert small == large and len(large) == 1_700
    assert [place.place for _detail, place in large[0][1]] == [0, 1_700, 3_400]


def test_near_duplicates_are_found_where_words_overlap(tmp_path: Path) -> None:
    words = [f"word{i}" for i in range(80)]
    texts = [" ".join(words), " ".join(words[:-2]), " ".join(words[:40]), " ".join(reversed(words))]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    with Near() as near:
        found = list(Check(DataSet([path]), [False], near).findings())
    assert [(f.kind, f.place) for f in found] == [("near-duplicate", 2)]


def test_a_broken_file_is_one_sentence(tmp_path: Path) -> None:
    made = {
        "cut.jsonl.gz": gzip.compress(row(0).encode() * 50)[:-20],
        "cut.parquet": (CORPUS / "nulls.parquet").read_bytes()[:200],
        "pointer.parquet": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
        "cut.arrow": (CORPUS / "stream.arrow").read_bytes()[:100],
        "cut.xlsx": (CORPUS / "sheet.xlsx").read_bytes()[:900],
        "old.xlsx": b"\xd0\xcf\x11\xe0" + b"\0" * 600,
        "packed.json": b"PK\x03\x04" + b"\0" * 60,
        "picture.bin": b"\x89PNG\r\n" + bytes(range(256)),
    }
    for name, content in made.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(JobError) as wrong:
            findings([tmp_path / name])
        assert name in str(wrong.value) and "\n" not in str(wrong.value)


def test_wrong_choices_are_said_with_what_is_there() -> None:
    for choices, expected in (
        (Choices("preference"), "no column for prompt, chosen, rejected of preference"),
        (Choices(None, {"instruction": "frage"}), "the layout is not known; the columns are frage, antwort"),
        (Choices(None, {"instruction": "nothing"}), "no row has a column nothing"),
        (Choices(None, {"instrution": "frage"}), "Did you mean instruction"),
    ):
        with pytest.raises(JobError) as wrong:
            list(DataSet([CORPUS / "own-names.jsonl"], choices).read())
        assert expected in str(wrong.value)


@pytest.mark.parametrize(
    ("missing", "name"),
    [("pyarrow", "nulls.parquet"), ("openpyxl", "sheet.xlsx"), ("charset_normalizer", "gbk.jsonl")],
)
def test_a_library_that_is_missing_is_named_with_its_extra(missing: str, name: str) -> None:
    code = f"""
    import sys
    sys.modules[{missing!r}] = None
    from pathlib import Path
    from jobs.data.reading import DataSet
    from jobs.failure import JobError
    try:
        list(DataSet([Path({str(CORPUS / name)!r})]).read())
    except JobError as wrong:
        print(wrong)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    assert f"needs {missing}, which is not installed. Run: pip install 'tunedeck[data]'" in done.stdout, done.stderr


def test_plain_files_need_no_library() -> None:
    """JSON, CSV and text are read by the standard library alone, and no torch comes along."""
    code = f"""
    import sys
    from pathlib import Path
    from jobs.data.check import Check
    from jobs.data.reading import DataSet
    data = DataSet([Path({str(CORPUS / "plain.jsonl")!r}), Path({str(CORPUS / "plain.tsv")!r})])
    assert not list(Check(data, [False, False]).findings())
    print([m for m in ("pyarrow", "numpy", "torch", "charset_normalizer", "yaml", "tokenizers") if m in sys.modules])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    assert done.stdout.strip() == "[]", done.stderr


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    some.sampled_from(["a.jsonl", "a.json", "a.csv", "a.txt", "a.jsonl.gz"]),
    some.lists(
        some.binary(max_size=30)
        | some.sampled_from(
            [b'{"instruction":"a","output":"b"}', b"[", b"]", b"{", b"}", b'"', b",", b"\n", b"\r", b"\0"]
        )
    ),
)
def test_no_bytes_make_it_fail(tmp_path: Path, name: str, parts: list[bytes]) -> None:
    """Every row is an example or a finding, whatever is in the file; else one clear error."""
    path = tmp_path / name
    path.write_bytes(b"".join(parts))
    try:
        data = DataSet([path])
        items = list(data.read())
    except JobError as wrong:
        assert wrong.hint
        return
    rejected = [item for item in items if isinstance(item, Finding) and item.level == "rejected"]
    assert data.rows == len(rejected) + sum(isinstance(item, Read) for item in items)
