"""A run of tunedeck's own that goes on, but only as fast as one rank lets it: its records hold each rank's own time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from agent.formats.event import Event
from agent.triage.case import Case
from agent.triage.rule import SLOW, Finding, finding, rule

NEWEST = 64
LEAST = 16
"""Steps: fewer say nothing about the next ones."""
STEADY = 0.85
"""Of the steps in which it must be the slowest. Two healthy ranks on two shared cores come to 0.6."""
SHARE = 0.2
"""Of a step, and at least `LEAST_S`, that the others wait for it. Two healthy ranks of a tiny model come to 0.19."""
LEAST_S = 0.02
WITH_BACKWARD = 3.0
"""A pass backward costs twice the pass forward: Kaplan et al. 2020, arXiv:2001.08361, table 1."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Of one step: its length, and what each rank needed for itself."""

    step_s: float
    data_s: tuple[float, ...]
    compute_s: tuple[float, ...]

    @classmethod
    def of(cls, event: Event) -> Pace | None:
        """None where a rank's own time is not known."""
        data, forward = _figures(event.get("data_s")), _figures(event.get("forward_s"))
        step_s = event.number("step_s")
        if step_s is None or len(data) < 2 or len(data) != len(forward):
            return None
        return cls(step_s, data, tuple(WITH_BACKWARD * one for one in forward))

    @property
    def own_s(self) -> list[float]:
        return [data + compute for data, compute in zip(self.data_s, self.compute_s, strict=True)]

    @property
    def slowest(self) -> int:
        return self.own_s.index(max(self.own_s))


def _figures(text: str) -> tuple[float, ...]:
    return tuple(map(float, text.split()))


def _others(figures: tuple[float, ...] | list[float], rank: int) -> float:
    return median([one for at, one in enumerate(figures) if at != rank])


@rule("A step takes all ranks as long as the slowest: one that needs longer in step after step holds up all others.")
def slow_rank(case: Case) -> Iterator[Finding]:
    known = [(pace, e) for e in case.of("run.step")[-NEWEST:] if (pace := Pace.of(e))]
    known = [(pace, e) for pace, e in known if len(pace.data_s) == len(known[-1][0].data_s)]
    paces = [pace for pace, _ in known]
    if len(paces) < LEAST:
        return
    slow = [pace.slowest for pace in paces]
    rank = max(set(slow), key=slow.count)
    step_s = median(pace.step_s for pace in paces)
    lost_s = median(pace.own_s[rank] - _others(pace.own_s, rank) for pace in paces)
    if slow.count(rank) < STEADY * len(paces) or lost_s < max(LEAST_S, SHARE * step_s):
        return
    data = _usual([pace.data_s for pace in paces], rank)
    compute = _usual([pace.compute_s for pace in paces], rank)
    fed = data[0] - data[1] > compute[0] - compute[1]
    own_s, others_s = data if fed else compute
    why = (
        f"rank {rank} needs {_words(own_s)} of each step {'to get its data' if fed else 'to compute'}, where the others"
        f" need {_words(others_s)}; a step takes {_words(step_s)}"
    )
    yield finding("perf.data-slow" if fed else "perf.rank-slow", SLOW - 3, [e for _, e in known[-2:]], ranks=[rank],
                  nodes=[case.layout.node(rank)], why=why, confidence=0.85)  # fmt: skip


def _words(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.2g} s"


def _usual(figures: list[tuple[float, ...]], rank: int) -> tuple[float, float]:
    """(the rank's, the others') in the middle of all steps."""
    return median(one[rank] for one in figures), median(_others(one, rank) for one in figures)
