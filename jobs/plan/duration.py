"""How long a run takes: steps and hours from the speed and the data."""

from __future__ import annotations

from dataclasses import dataclass, replace

from jobs.plan import speed
from jobs.plan.architecture import Architecture
from jobs.plan.hardware import Card
from jobs.plan.lengths import Lengths
from jobs.plan.speed import Pace
from jobs.plan.workload import Workload


@dataclass(frozen=True, slots=True)
class Duration:
    """``tokens`` are real ones, over all epochs; hours exclude loading, evaluation, snapshots and failures."""

    tokens: float
    steps: float
    hours: float
    low_hours: float
    high_hours: float
    useful_share: float
    pace: Pace


def of(
    shape: Architecture, work: Workload, card: Card, samples: int, epochs: float, lengths: Lengths | None, packed: bool
) -> Duration:
    """Duration on ``work.cards`` such cards. Without lengths every sample is taken to be ``work.seq_len`` tokens
    long.
    """
    known = (lengths or Lengths((work.seq_len,))).cut(work.seq_len)
    share = 1.0 if packed else known.useful_share(work.micro_batch)
    computed = work.seq_len if packed else max(1, round(known.padded_mean(work.micro_batch)))
    pace = speed.pace(shape, replace(work, seq_len=computed), card)
    tokens = known.mean * samples * epochs
    copies = max(1, work.cards // (work.tensor_parallel * work.pipeline_parallel * work.context_parallel))
    rate = pace.tokens_per_s_per_card * work.cards * share
    per_step = work.micro_batch * (work.accumulation or 1) * copies * (computed / known.mean if packed else 1.0)
    hours = tokens / rate / 3600
    return Duration(
        tokens, samples * epochs / per_step, hours, hours * pace.tokens_per_s_per_card / pace.high,
        hours * pace.tokens_per_s_per_card / pace.low, share, pace,
    )  # fmt: skip
