"""Does the accuracy carry over to what was never looked at: leave one model family out, then one source.

The planner's global constants (allocator slack, context, bytes per logit, shares of peak ...) are chosen anew on the
remaining rows, by the same criterion, and judged on the rows left out. `python -m tests.bench.plan_holdout` prints the
error with all rows, the error of groups left out, and the drop; `--bar` exits 1 when a bar is missed on rows left out.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import re
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from jobs.plan import activation, batch, hardware, memory, speed, table

CORPUS = Path(__file__).resolve().parent.parent / "corpus" / "plan"
Row = dict[str, str]
Choice = tuple[float, ...]
MEMORY_GRID: tuple[tuple[float, ...], ...] = ((1.06, 1.08, 1.10), (0.9, 1.1, 1.3), (12.0, 14.0), (2.0, 3.0, 4.0))
SPEED_GRID: tuple[tuple[float, ...], ...] = ((0.7, 0.75, 0.8), (0.62, 0.68, 0.74), (4.0, 6.0, 8.0), (0.35, 0.42, 0.5))


def rows(name: str) -> list[Row]:
    with (CORPUS / name).open(newline="", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["quality"] == "A"]


@contextmanager
def memory_constants(choice: Choice) -> Iterator[None]:
    slack, context, logit, four_bit = choice
    with (
        mock.patch.object(memory, "RESERVED", slack),
        mock.patch.object(memory, "CONTEXT_BYTES", context * memory.GIB),
        mock.patch.dict(activation.LOGIT_BYTES, unfused=logit),
        mock.patch.object(activation, "FOUR_BIT_INPUT_BYTES", four_bit),
    ):
        yield


@contextmanager
def speed_constants(choice: Choice) -> Iterator[None]:
    ampere, hopper, traffic, attention = choice
    with (
        mock.patch.dict(speed.MATMUL_SHARE, Ampere=ampere, Hopper=hopper),
        mock.patch.object(speed, "TRAFFIC", traffic),
        mock.patch.dict(speed.ATTENTION_SHARE, Ampere=attention),
    ):
        yield


def memory_error(row: Row) -> float:
    low = row["metric"].lower()
    meter = "allocated" if low.startswith(("alloc", "active")) else "device" if low.startswith("device") else "reserved"
    peak: float = batch.answer(row)["peak_gib"][meter]
    return peak / float(row["peak_gb_per_gpu"]) - 1


def speed_error(row: Row) -> float:
    card = hardware.find(row["gpu_model"])
    assert card
    pace = speed.pace(table.shape(row), table.workload(row), card)
    return pace.tokens_per_s_per_card / float(row["tokens_per_s_per_gpu"]) - 1


def criterion(errors: Sequence[float]) -> float:
    """Median absolute error, with a price on forecasts that are more than a tenth too low."""
    return statistics.median(map(abs, errors)) + 0.5 * sum(e < -0.10 for e in errors) / len(errors)


def errors_by_choice(
    data: list[Row],
    grid: tuple[tuple[float, ...], ...],
    constants: Callable[[Choice], Any],
    error: Callable[[Row], float],
) -> dict[Choice, list[float]]:
    found = {}
    for choice in itertools.product(*grid):
        with constants(choice):
            found[choice] = [error(row) for row in data]
    return found


def left_out(groups: list[str], by_choice: dict[Choice, list[float]]) -> list[float]:
    """The error of each row with constants chosen without its group."""
    result = [0.0] * len(groups)
    for group in set(groups):
        kept = [i for i, g in enumerate(groups) if g != group]
        best = min(by_choice, key=lambda choice: criterion([by_choice[choice][i] for i in kept]))
        for i in (i for i, g in enumerate(groups) if g == group):
            result[i] = by_choice[best][i]
    return result


def family(row: Row) -> str:
    return re.split(r"[-\d]", row["model"].lower())[0]


def source(row: Row) -> str:
    return row["source"].split()[0]


def line(label: str, errors: list[float]) -> tuple[float, float, str]:
    sizes = sorted(map(abs, errors))
    median, p90 = statistics.median(sizes), sizes[int(0.9 * len(sizes))]
    under = sum(e < -0.10 for e in errors) / len(errors)
    return median, p90, f"  {label:<28} median {median:6.1%}  p90 {p90:6.1%}  more than 10 % too low {under:5.1%}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bar", action="store_true")
    args = parser.parse_args()
    missed = 0
    for title, name, grid, constants, error, bar in (
        ("memory", "given.csv", MEMORY_GRID, memory_constants, memory_error, (0.08, 0.25)),
        ("throughput", "given-throughput.csv", SPEED_GRID, speed_constants, speed_error, (0.20, 1.0)),
    ):
        data = rows(name)
        by_choice = errors_by_choice(data, grid, constants, error)
        shipped = [error(row) for row in data]
        print(f"{title}, {len(data)} exact rows")
        print(line("as shipped", shipped)[2])
        base = statistics.median(map(abs, shipped))
        for label, key in (("one family left out", family), ("one source left out", source)):
            median, p90, text = line(label, left_out([key(row) for row in data], by_choice))
            print(f"{text}  drop {median - base:+.1%}", flush=True)
            missed += median > bar[0] or p90 > bar[1]
    return 1 if args.bar and missed else 0


if __name__ == "__main__":
    sys.exit(main())
