"""Every awkward file of the corpus gives exactly the rows and findings, with their lines, that are written down."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.data.check import Check
from jobs.data.finding import NOTICED, REJECTED, REPAIRED, Finding
from jobs.data.near import Near
from jobs.data.reading import Choices, DataSet

CORPUS = Path(__file__).parent / "corpus" / "data"
CASES: list[dict[str, Any]] = yaml.safe_load((CORPUS / "expected.yaml").read_text(encoding="utf-8"))


def checked(case: dict[str, Any]) -> tuple[DataSet, Check, list[Finding]]:
    options = case.get("options", {})
    choices = Choices(None, options.get("map", {}), options.get("roles", {}))
    data = DataSet([CORPUS / case["file"]], choices)
    longest = options.get("max_chars")
    with Near() if options.get("near") else nullcontext() as near:
        check = Check(data, [False], near, (lambda example: len(example.flow())) if longest else None, longest)
        return data, check, list(check.findings())


@pytest.mark.parametrize("case", CASES, ids=[case["file"] for case in CASES])
def test_corpus(case: dict[str, Any]) -> None:
    data, check, findings = checked(case)

    def of(level: str) -> dict[int, str]:
        return {finding.place: finding.kind for finding in findings if finding.level == level}

    assert of(REJECTED) == case.get("rejected", {}), [str(f) for f in findings]
    assert list(of(REPAIRED)) == case.get("repaired", []), [str(f) for f in findings]
    assert of(NOTICED) == case.get("noticed", {})
    assert check.usable[0] == case["usable"]
    assert data.rows == case["usable"] + len(of(REJECTED))
    assert data.columns[0].layout == case["layout"]
    notes = "; ".join(data.sources[0].notes)
    assert [note for note in case.get("notes", []) if note not in notes] == [], notes
    assert bool(notes) == bool(case.get("notes")), notes


def test_every_file_of_the_corpus_is_expected_and_there_are_enough() -> None:
    files = {path.name for path in CORPUS.iterdir() if not path.name.startswith(".")} - {"expected.yaml"}
    assert files == {case["file"] for case in CASES}
    assert len(CASES) >= 60
