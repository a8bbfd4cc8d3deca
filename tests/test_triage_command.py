"""`tunedeck triage` as it is typed: forms of output, exit status, own signatures, errors."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from console.__main__ import main as tunedeck
from tests.triage_grading import CORPUS

CASE = str(CORPUS / "t041")


def main(argv: list[str]) -> int:
    return tunedeck(["triage", *argv])


def test_json_has_the_agreed_shape(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json", CASE]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["verdict"] == "fault"
    first = said["faults"][0]
    assert set(first) >= {"kind", "confidence", "culprit", "cause", "remedy", "owner", "evidence"}
    assert first["culprit"] == {"node": ["gpu-c08"], "rank": [11], "gpu": [3], "nic": []}
    assert first["evidence"][0]["file"] == "dmesg_gpu-c08.txt" and first["evidence"][0]["line"] > 0


def test_the_page_names_cause_place_evidence_and_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([CASE]) == 1
    page = capsys.readouterr().out
    for part in ("gpu.fell-off-bus", "gpu-c08, GPU 3, rank 11", "dmesg_gpu-c08.txt:", "Xid", "drain the node",
                 "hardware", "Set aside", "watchdog timeouts"):  # fmt: skip
        assert part in page
    assert max(map(len, page.splitlines())) <= 240


def test_undetermined_says_what_to_collect(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(CORPUS / "t094")]) == 1
    page = capsys.readouterr().out
    assert page.startswith("undetermined") and "To collect next" in page and "dmesg -T of every node" in page


def test_healthy_ends_with_zero(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(CORPUS / "t090")]) == 0
    assert capsys.readouterr().out.startswith("healthy")


@pytest.mark.parametrize(("flag", "mark"), [("--html", "<!doctype html>"), ("--md", "## gpu.fell-off-bus")])
def test_other_forms(flag: str, mark: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([flag, CASE]) == 1
    assert mark in capsys.readouterr().out


def test_html_escapes_what_logs_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "job.log").write_text(
        "[rank1]: torch.OutOfMemoryError: CUDA out of memory. <script>alert(1)</script>\n"
    )
    assert main(["--html", str(tmp_path)]) == 1
    page = capsys.readouterr().out
    assert "<script>" not in page and "&lt;script&gt;" in page


def test_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    content = io.BytesIO(b"[rank1]: torch.OutOfMemoryError: CUDA out of memory.\n")
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=content))
    assert main(["--json", "-"]) == 1
    assert json.loads(capsys.readouterr().out)["faults"][0]["culprit"]["rank"] == [1]


def test_a_missing_path_is_one_line_and_status_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "gone")]) == 2
    assert "gone: not found; give a folder" in capsys.readouterr().err


OWN = """
kinds:
  site.storage-gone:
    title: The site's file system is gone
    owner: platform
    remedy: page the storage team
    source: local runbook 7
    signatures:
      - literal: lustre
        match: 'LustreError: .*evicted'
        names: printer
        weight: 99
        source: local runbook 7
"""


def test_own_signatures(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "dmesg_n7.txt"
    log.write_text("[ 10.000000] LustreError: 11-0: lustre-OST0001: this client was evicted\n")
    home = tmp_path / "home" / "tunedeck"
    home.mkdir(parents=True)
    (home / "faults.yaml").write_text(OWN)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    assert main(["--json", str(log)]) == 1
    first = json.loads(capsys.readouterr().out)["faults"][0]
    assert first["kind"] == "site.storage-gone" and first["culprit"]["node"] == ["n7"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("kinds: [", "not valid YAML"),
        ("{}", "has no `kinds:`"),
        ("kinds: {a.b: {title: x}}", "lacks owner, remedy, source"),
        ("kinds: {a.b: {title: x, owner: me, remedy: r, source: s}}", "use one of network"),
        (OWN.replace("LustreError: .*evicted", "(("), "is not an expression"),
        (OWN.replace("names: printer", "names: everyone"), "use one of printer"),
    ],
)
def test_a_wrong_faults_file_says_what_is_wrong(
    text: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(text)
    assert main(["--faults", str(file), CASE]) == 2
    assert told in capsys.readouterr().err
