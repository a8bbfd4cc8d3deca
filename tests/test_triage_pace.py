"""A rank that holds up the others, by the times that each rank takes for itself in a run's records."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from agent.triage.verdict import Verdict
from jobs.progress import Progress
from tests.test_triage_run import Told, first


def paced(told: Told, data_s: list[float], forward_s: list[float | None], step_s: float, steps: int = 20) -> Verdict:
    """Steps in which each rank needed so long for itself, give or take a tenth."""
    progress = Progress(told.folder.progress)
    for step in range(steps):
        sway = 1 + 0.1 * math.sin(step)
        own = {"data_s": [one * sway for one in data_s], "forward_s": [one and one / sway for one in forward_s]}
        progress.write("step", step=step, step_time_s=step_s * sway, **own)
    progress.close()
    return told.verdict()


@pytest.mark.parametrize(
    ("data_s", "forward_s", "step_s", "kind", "words"),
    [
        ([0.001, 0.3, 0.001], [0.05, 0.05, 0.05], 0.45, "perf.data-slow", "needs 0.3 s of each step to get its data"),
        ([0.001, 0.001, 0.001], [0.1, 0.15, 0.1], 0.5, "perf.rank-slow", "needs 0.45 s of each step to compute"),
    ],
)
def test_a_rank_that_holds_up_the_others(
    data_s: list[float], forward_s: list[float | None], step_s: float, kind: str, words: str, tmp_path: Path
) -> None:
    verdict = paced(Told(tmp_path, 3), data_s, forward_s, step_s)
    assert first(verdict) == (kind, (1,)) and words in verdict.faults[0].cause
    assert verdict.faults[0].evidence[0].file == "progress.jsonl"


@pytest.mark.parametrize(
    ("data_s", "forward_s", "step_s", "steps"),
    [
        ([0.001, 0.001], [0.1, 0.104], 0.5, 40),  # of no weight
        ([0.001, 0.001], [0.004, 0.007], 0.04, 40),  # of a tiny model, whose steps are mostly waiting anyway
        ([0.001, 0.3], [0.1, 0.1], 0.7, 8),  # too few steps to say it of the next ones
        ([0.001, 0.3], [None, 0.1], 0.7, 40),  # not known of all
        ([0.3], [0.1], 0.7, 40),  # nobody waits
        ([0.3, 0.3], [0.1, 0.1], 0.7, 40),
    ],
)
def test_ranks_of_which_none_holds_up_the_others(
    data_s: list[float], forward_s: list[float | None], step_s: float, steps: int, tmp_path: Path
) -> None:
    assert paced(Told(tmp_path, len(data_s)), data_s, forward_s, step_s, steps).verdict == "healthy"
