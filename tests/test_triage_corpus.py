"""The verdict on every case of the corpus, and the same under changes that must not matter."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agent.triage import triage
from tests.triage_changes import CHANGES, healthy_variants
from tests.triage_grading import Incident, Score, incidents, write

BARS = {"kind": 0.97, "culprit": 0.95, "evidence": 0.95, "healthy": 1.0, "undetermined": 1.0}
LOST = 0.03  # of each figure that a change may cost
OTHER_NAMES = ("renamed", "merged")  # changes after which files bear other names than the truth knows


def score(cases: list[Incident], folder: Path, change: str = "") -> Score:
    found = Score()
    for incident in cases:
        changed = CHANGES[change](incident, folder) if change else incident
        verdict = triage([write(changed.files, folder / f"{change}-{incident.name}")])
        found.add(changed, verdict, same_names=change not in OTHER_NAMES)
    return found


def test_every_case_is_judged(tmp_path: Path) -> None:
    found = score(incidents(), tmp_path)
    assert found.totals["kind"] > 80 and found.totals["healthy"] >= 6 and found.totals["undetermined"] >= 2
    assert {f: found.rate(f) >= bar for f, bar in BARS.items()} == dict.fromkeys(BARS, True), found.missed


@pytest.mark.parametrize("change", sorted(set(CHANGES) - {"noisy"}))
def test_a_change_of_form_does_not_change_the_verdict(change: str, tmp_path: Path) -> None:
    found = score(incidents(), tmp_path, change)
    assert all(found.rate(f) >= 1 - LOST for f in BARS), found.missed


def test_noise_does_not_change_the_verdict(tmp_path: Path) -> None:
    found = score(incidents()[::5], tmp_path, "noisy")
    assert found.missed == []


@pytest.mark.slow
def test_noise_changes_no_verdict_of_the_whole_corpus(tmp_path: Path) -> None:
    found = score(incidents(), tmp_path, "noisy")
    assert all(found.rate(f) >= 1 - LOST for f in BARS), found.missed


def test_a_sieved_file_gives_the_same_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large files are read only where a literal stands: the literals must be enough."""
    monkeypatch.setattr(sys.modules["agent.triage.gather"], "LARGE", 20_000)
    found = score(incidents()[2::4], tmp_path, "noisy")
    assert found.missed == []


def raised(count: int, folder: Path) -> list[str]:
    """What was said about `count` logs of healthy runs."""
    seeds = [i for i in incidents() if i.truth.get("healthy")]
    said = []
    for number, files in zip(range(count), healthy_variants(seeds), strict=False):
        verdict = triage([write(files, folder / f"healthy-{number}")])
        if verdict.verdict != "healthy" or verdict.faults:
            said.append(f"{number}: {verdict.verdict} {verdict.faults}")
    return said


def test_healthy_runs_raise_nothing(tmp_path: Path) -> None:
    assert raised(60, tmp_path) == []


@pytest.mark.slow
def test_five_hundred_healthy_runs_raise_nothing(tmp_path: Path) -> None:
    assert raised(500, tmp_path) == []


def test_no_rule_knows_the_corpus() -> None:
    """Neither rules nor signatures hold a host name, address or process id of any case."""
    names: set[str] = set()
    for incident in incidents():
        for node in _told(incident, "node"):
            names.add(node)
    root = Path(__file__).resolve().parent.parent
    files = [
        *(root / "agent" / "triage").glob("*.py"),
        *(root / "agent" / "formats").glob("*.py"),
        root / "configs/faults.yaml",
    ]
    text = "\n".join(f.read_text(encoding="utf-8") for f in files)
    allowed = {"worker-0"}  # a word of its own in any cluster
    assert [n for n in names - allowed if n in text and len(n) > 3] == []


def _told(incident: Incident, what: str) -> list[str]:
    value = (incident.truth.get("culprit") or {}).get(what)
    return [str(v) for v in (value if isinstance(value, list) else [value] if value is not None else [])]
