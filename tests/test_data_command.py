"""`tunedeck data` as a user runs it: what is printed, what is written, how it exits."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from console.__main__ import main
from console.data.progress import line

ROOT = Path(__file__).resolve().parent.parent
CORPUS = ROOT / "tests" / "corpus" / "data"
FAULTS = ROOT / "configs" / "examples" / "faults.jsonl"
MODEL = Path(__file__).parent / "corpus" / "random-llama"


def said(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    status = main(["data", *argv])
    out = capsys.readouterr()
    return status, out.out, out.err


def document(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, Any]:
    status, out, _err = said(capsys, *argv, "--json")
    return status, json.loads(out)


def test_check_shows_layout_columns_findings_and_the_sum(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _err = said(capsys, "check", str(CORPUS / "dpo.jsonl"))
    assert status == 1
    assert "preference: prompt ← prompt, chosen ← chosen, rejected ← rejected" in out
    assert f"rejected  {CORPUS / 'dpo.jsonl'}:2: chosen and rejected are the same" in out
    assert "4 rows: 1 usable, 3 rejected" in out
    assert "near-duplicates were not looked for" not in out  # there is but one row left to compare


def test_check_without_fault_exits_0_and_says_what_it_left_aside(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _err = said(capsys, "check", str(CORPUS / "other-names.jsonl"))
    assert status == 0
    assert "instruction ← question, output ← response" in out
    assert "columns without use here: id" in out
    assert "near-duplicates were not looked for: add --near" in out


def test_json_is_one_document_with_every_finding(capsys: pytest.CaptureFixture[str]) -> None:
    status, found = document(capsys, "check", str(CORPUS / "html.jsonl"), str(CORPUS / "gbk.csv"))
    assert status == 1
    assert [f["place"] for f in found["findings"]] == [1, 2, 3, 4]
    assert [(f["format"], f["encoding"]) for f in found["files"]] == [(None, "utf-8"), ("alpaca", "gb18030")]
    assert (found["rows"], found["usable"], found["rejected"]) == (7, 3, 4)
    assert document(capsys, "check", str(CORPUS / "plain.jsonl"))[1]["findings"] == []


def test_many_findings_are_counted_and_all_of_them_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, kept = tmp_path / "many.jsonl", tmp_path / "report.jsonl"
    path.write_text('{"instruction": "a", "output": "b"}\n' + '{"instruction": "a", "output": ""}\n' * 50)
    status, out, _err = said(capsys, "check", str(path), "--report", str(kept))
    assert status == 1 and out.count("is empty") == 20
    assert "… and 30 more of kind empty-answer" in out
    assert [json.loads(text)["place"] for text in kept.read_text().splitlines()] == list(range(2, 52))
    assert said(capsys, "check", str(path), "--all")[1].count("is empty") == 50


def test_leaks_alone_are_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(CORPUS / "plain.jsonl", tmp_path / "train.jsonl")
    shutil.copy(CORPUS / "plain.jsonl", tmp_path / "held.jsonl")
    status, out, _err = said(capsys, "check", str(tmp_path / "train.jsonl"), "--eval", str(tmp_path / "held.jsonl"))
    assert status == 1 and "3 held-back rows are trained on" in out
    status, out, _err = said(capsys, "check", str(tmp_path))
    assert status == 0 and "duplicate" in out  # without being told, it is the same file twice


def test_over_long_rows_in_tokens_and_characters(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(CORPUS / "over-long.jsonl")
    status, out, _err = said(capsys, "check", path, "--tokenizer", str(MODEL), "--max-length", "450")
    assert status == 0 and ":2: has " in out and "more than 450: training cuts it" in out and ":1: has" not in out
    assert ":2: has 3" in said(capsys, "check", path, "--max-chars", "200")[1]
    for wrong in (["--max-length", "600"], ["--tokenizer", str(MODEL)]):
        assert said(capsys, "check", path, *wrong)[0] == 2


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["check", "nowhere.jsonl"], "nowhere.jsonl is not there"),
        (["check", str(CORPUS / "own-names.jsonl")], "the columns are frage, antwort"),
        (["check", str(CORPUS / "plain.jsonl"), "--map", "instruction"], "is no pair"),
        (["check", str(CORPUS / "plain.jsonl"), "--role", "a=king"], "king is no role"),
        (["check", str(CORPUS / "plain.jsonl"), "--encoding", "klingon"], "klingon is no encoding"),
        (["check", str(CORPUS / "plain.jsonl"), "--near", "3"], "is no share"),
        (["split", str(CORPUS / "plain.jsonl"), "--eval", "0", "-o", "x"], "holds back nothing"),
        (["convert", str(CORPUS / "plain.jsonl"), "--to", "chat", "-o", "x.doc"], "says no kind of file"),
        (["stats", str(CORPUS / "plain.jsonl"), "--tokenizer", "nowhere"], "holds no tokenizer.json"),
    ],
)
def test_wrong_usage_is_one_sentence_and_status_2(
    argv: list[str], words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = said(capsys, *argv)
    assert (status, out) == (2, "")
    assert words in err and "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_own_names_and_roles(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(CORPUS / "own-names.jsonl")
    assert said(capsys, "check", path, "--map", "instruction=frage", "--map", "output=antwort")[0] == 0
    path = str(CORPUS / "own-roles.jsonl")
    assert said(capsys, "check", path)[0] == 1
    assert said(capsys, "check", path, "--role", "customer=user", "--role", "agent=assistant")[0] == 0


def test_convert_and_split_say_what_they_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "out.json"
    status, out, _err = said(capsys, "convert", str(CORPUS / "tools.jsonl"), "--to", "sharegpt", "-o", str(target))
    assert status == 1 and "1 of 4 rows written" in out and "ids of tool calls are left out" in out
    assert len(json.loads(target.read_text())) == 1
    argv = [
        "split",
        str(CORPUS / "ascii-then-gbk.jsonl"),
        "--eval",
        "30%",
        "-o",
        str(tmp_path / "parts"),
        "--as",
        "csv",
    ]
    status, found = document(capsys, *argv)
    assert status == 0 and (found["train"]["rows"], found["eval"]["rows"]) == (7, 3)
    assert said(capsys, *argv)[0] == 2  # both files are there already
    assert said(capsys, "check", str(tmp_path / "parts"))[0] == 0


def test_stats_and_what_they_mean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, lengths = str(CORPUS / "ascii-then-gbk.jsonl"), tmp_path / "lengths.txt"
    argv = ["stats", path, "--tokenizer", str(MODEL), "--max-length", "200", "--lengths", str(lengths)]
    status, out, _err = said(capsys, *argv)
    assert status == 0 and "10 examples" in out and "max_length 200 cuts" in out
    assert max(len(text) for text in out.splitlines() if "%" in text) <= 80
    again = tmp_path / "again.txt"
    status, found = document(capsys, *argv[:-1], str(again))
    assert again.read_text() == lengths.read_text()
    counted = [int(word) for word in lengths.read_text().split()]
    assert found["tokens"]["total"] == sum(counted) and found["tokens"]["longest"] == max(counted)
    cut = next(c for c in found["cuts"] if c["seq_len"] == 200)
    assert cut["rows_cut"] == pytest.approx(sum(n > 200 for n in counted) / 10)
    assert cut["tokens_lost"] == pytest.approx(sum(max(n - 200, 0) for n in counted) / sum(counted))
    assert cut["packed_blocks"] == -(-sum(min(n, 200) for n in counted) // 200)
    assert "tokens: unknown without a tokenizer" in said(capsys, "stats", path)[1]
    assert "fewer than 500 examples" in out and "a seller's guide" in out


def test_stats_take_the_tokenizer_and_length_of_a_spec(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(f"model: {MODEL}\ndata: {{path: ~/x.jsonl, max_length: 300}}\nmethod: lora\n")
    status, out, _err = said(capsys, "stats", str(CORPUS / "plain.jsonl"), "--spec", str(spec))
    assert status == 0 and "← max_length" in out


def test_preview_shows_the_mask_by_more_than_colour(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(CORPUS / "plain.jsonl")
    status, out, _err = said(capsys, "preview", path, "--tokenizer", str(MODEL), "--line", "2")
    assert status == 0
    assert "│ Which port does SSH use?↵" in out and "▌ Port 22 by default.<|end|>" in out
    assert "▌ learned · " in out and "Memory against" not in out
    _status, found = document(capsys, "preview", path, "--tokenizer", str(MODEL), "--line", "2")
    assert [(p["learned"], p["text"][-7:]) for p in found[0]["pieces"][""]] == [(False, "ponse:\n"), (True, "<|end|>")]
    assert "▌ assistant: Port 22" in said(capsys, "preview", path, "--line", "2")[1]
    status, out, err = said(capsys, "preview", str(CORPUS / "dpo.jsonl"), "--line", "2")
    assert status == 1 and "chosen and rejected are the same" in err


def test_what_is_in_the_data_cannot_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.jsonl"
    rows: list[dict[str, Any]] = [
        {"instruction": "a\x1b]0;title\x07", "output": "b\x1b[2J", "c\x1b[31m": 1},
        {"c\x1b[31m": 2},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for part in ("check", "preview"):
        assert "\x1b" not in said(capsys, part, str(path))[1]


def test_progress_says_how_far_and_how_long() -> None:
    assert line(512 * 1024**2, 2 * 1024**3, 1_234_567, 8.0) == (
        "25%  0.50/2.00 GiB  64.0 MiB/s  ETA 24 s  1\u202f234\u202f567 rows"
    )
    assert "ETA –" in line(0, 1000, 0, 2.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["convert", str(FAULTS), "--to", "chat", "-o", "out.jsonl"], "out.jsonl cannot be written: File too large"),
        (["check", str(FAULTS), "--near"], "TMPDIR names another place"),
    ],
)
def test_a_disk_that_takes_no_more_is_one_sentence(argv: list[str], words: str, tmp_path: Path) -> None:
    code = "import resource, sys\nfrom console.__main__ import main\n"
    code += f"resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\nsys.exit(main(['data', *{argv!r}]))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=100,
    )
    assert done.returncode in (1, 2) and words in done.stderr and "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("asked", [("check", "--report"), ("stats", "--lengths")])
def test_nothing_that_is_there_is_written_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], asked: tuple[str, str]
) -> None:
    data, kept, link = tmp_path / "rows.jsonl", tmp_path / "kept.txt", tmp_path / "link.jsonl"
    data.write_bytes((CORPUS / "other-names.jsonl").read_bytes())
    kept.write_text("mine")
    link.symlink_to(data)
    for target, why in ((data, "both read and written"), (link, "both read and written"), (kept, "there already")):
        status, _out, err = said(capsys, asked[0], str(data), asked[1], str(target))
        assert status == 2 and why in err
    assert data.read_bytes() == (CORPUS / "other-names.jsonl").read_bytes() and kept.read_text() == "mine"


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    status, _out, err = said(capsys, "check", str(tmp_path / "pipe.jsonl"))
    assert status == 2 and "is no file" in err


@pytest.mark.parametrize("name", ["rot13", "hex", "nonsense"])
def test_what_is_no_encoding_of_text_is_refused(capsys: pytest.CaptureFixture[str], name: str) -> None:
    status, _out, err = said(capsys, "check", str(CORPUS / "other-names.jsonl"), "--encoding", name)
    assert status == 2 and f"{name} is no encoding" in err


def test_a_number_beyond_all_bounds_costs_no_more_than_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"prompt": "Why?", "chosen": "Because.", "rejected": "No.", "margin": 1}
    lines = [json.dumps(row), json.dumps(row).replace("Why", "How").replace(": 1}", ": " + "9" * 400 + "}")]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines) + "\n")
    status, found = document(capsys, "check", str(tmp_path / "rows.jsonl"))
    assert (status, found["rows"], found["usable"]) == (0, 2, 2)


def test_an_error_carries_no_escapes_of_the_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows.csv").write_text("\x1b[31mred,other\n1,2\n")
    _status, out, err = said(capsys, "check", str(tmp_path / "rows.csv"), "--map", "instruction=nowhere")
    assert "\x1b" not in out + err and "red" in err


def test_a_terminal_without_arrows_gets_question_marks() -> None:
    command = [sys.executable, "-m", "console", "data", "check", str(CORPUS / "other-names.jsonl")]
    told = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, env=told, cwd=ROOT, timeout=120, check=False)
    assert done.returncode == 0 and b"instruction ? question" in done.stdout
