"""Messages in forms that the corpus of cases does not hold: each small incident has one right answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.triage import triage
from tests.triage_grading import write

FORMS: dict[str, dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parent / "corpus" / "triage-forms.yaml").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", FORMS)
def test_form(name: str, tmp_path: Path) -> None:
    kind, culprit, files = FORMS[name]["kind"], FORMS[name]["culprit"], FORMS[name]["files"]
    verdict = triage([write({n: t.encode() for n, t in files.items()}, tmp_path / "incident")])
    if kind in ("healthy", "undetermined"):
        assert verdict.verdict == kind, verdict.faults
        assert not any(f.culprit for f in verdict.faults)
        return
    assert [f.kind for f in verdict.faults][:1] == [kind], (verdict.verdict, verdict.faults)
    first = verdict.as_json()["faults"][0]
    assert {k: first["culprit"][k] for k in culprit} == culprit
    assert first["evidence"] and first["remedy"] and first["owner"]
    assert all(e["line"] >= 1 and e["text"] for e in first["evidence"])
