"""Sellers' claims: each contradiction is named, with the figures that show it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.plan import claims
from jobs.plan.refusal import PlanError

CLAIMS: list[dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parent / "corpus" / "plan" / "contradictions.yaml").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("entry", CLAIMS, ids=[entry["claim"] for entry in CLAIMS])
def test_a_claim_meets_arithmetic(entry: dict[str, Any]) -> None:
    found = claims.examine(entry["claim"])
    said = "\n".join(found.arithmetic)
    assert found.verdict == entry["verdict"], said
    assert [word for word in entry["says"] if word not in said] == []


def test_all_thirteen_contradictions_are_covered() -> None:
    assert len({entry["topic"] for entry in CLAIMS}) == 13


@pytest.mark.parametrize(
    "claim",
    [
        "65B QLoRA on 1 x A100 80G",
        "7B QLoRA on RTX4090 24GB",
        "H200 141 GB",
        "99.95% availability with 4 h down",
        "+35% time, +35% cost",
    ],
)
def test_a_true_claim_holds(claim: str) -> None:
    assert claims.examine(claim).verdict == "holds"


def test_a_claim_without_figures_is_refused() -> None:
    with pytest.raises(PlanError, match="nothing to compute"):
        claims.examine("the best cards in town")
