"""Forecasts against public measurements: the bars of accuracy, memory, speed and fit."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from jobs.plan import batch, memory, table

CORPUS = Path(__file__).parent / "corpus" / "plan"
ANSWERS = ("peak_gb_per_gpu", "tokens_per_s_per_gpu", "peak_as_reported", "unit_as_reported", "fits", "notes", "source")


@lru_cache(maxsize=4)
def rows(name: str) -> tuple[dict[str, str], ...]:
    with (CORPUS / name).open(newline="", encoding="utf-8") as file:
        return tuple(csv.DictReader(file))


@lru_cache(maxsize=4)
def answered(name: str) -> dict[str, dict[str, Any]]:
    """Answers by row id; the answer columns are taken out first."""
    asked = ({k: v for k, v in row.items() if k not in ANSWERS} for row in rows(name))
    return {row["id"]: batch.answer(row) for row in asked}


def meter(metric: str) -> str:
    low = metric.lower()
    return "allocated" if low.startswith(("alloc", "active")) else "device" if low.startswith("device") else "reserved"


def errors(
    name: str, quality: str, said: Callable[[dict[str, str], dict[str, Any]], float], column: str
) -> list[float]:
    found = answered(name)
    return [said(r, found[r["id"]]) / float(r[column]) - 1 for r in rows(name) if r[column] and r["quality"] in quality]


def peak(row: dict[str, str], answer: dict[str, Any]) -> float:
    value: float = answer["peak_gib"][meter(row["metric"])]
    return value


def test_memory_keeps_its_bars() -> None:
    exact = errors("given.csv", "A", peak, "peak_gb_per_gpu")
    sizes = sorted(map(abs, exact))
    assert statistics.median(sizes) <= 0.07
    assert sizes[int(0.9 * len(sizes))] <= 0.22
    assert sum(e < -0.10 for e in exact) / len(exact) <= 0.04
    assert statistics.median(map(abs, errors("given.csv", "AB", peak, "peak_gb_per_gpu"))) <= 0.11


def test_throughput_keeps_its_bar() -> None:
    found = errors(
        "given-throughput.csv", "A", lambda _row, a: float(a["tokens_per_s_per_gpu"]), "tokens_per_s_per_gpu"
    )
    assert statistics.median(map(abs, found)) <= 0.18


def test_fit_keeps_its_bar() -> None:
    found = answered("given-fit.csv")
    right = sum(found[r["id"]]["fits"] == r["fits"].startswith("yes") for r in rows("given-fit.csv"))
    assert right / len(rows("given-fit.csv")) >= 0.9


def test_bands_hold_most_exact_readings() -> None:
    """The band says what it covers: four of five exact device or reserved readings."""
    inside = []
    for row in rows("given.csv"):
        if row["quality"] != "A":
            continue
        forecast = memory.forecast(table.shape(row), table.workload(row))
        inside.append(forecast.low_bytes <= float(row["peak_gb_per_gpu"]) * memory.GIB <= forecast.high_bytes)
    assert sum(inside) / len(inside) >= 0.75


@pytest.mark.parametrize("name", ["given.csv", "given-throughput.csv", "given-fit.csv"])
def test_every_row_is_answered(name: str) -> None:
    assert [a for a in answered(name).values() if "error" in a] == []
