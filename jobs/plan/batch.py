"""Many questions at once: the rows of a CSV table, answered one by one."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from jobs.plan import fit, hardware, memory, speed, table
from jobs.plan.architecture import Architecture
from jobs.plan.hardware import Card
from jobs.plan.memory import GIB, Forecast
from jobs.plan.refusal import PlanError
from jobs.plan.workload import Workload


def answers(path: Path) -> Iterator[dict[str, Any]]:
    """One answer for each row: memory, and speed and fit where the row names a card. A row in error carries ``error``.

    Raises PlanError where the file cannot be read or has no ``id`` column.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise PlanError(f"{path} cannot be read as CSV: {error}", "name a CSV file with a header line") from None
    if rows and "id" not in rows[0]:
        raise PlanError(f"{path} has no id column", "its header must name id, model, method and the rest")
    for row in rows:
        try:
            yield answer(row)
        except PlanError as error:
            yield {"id": row["id"], "error": str(error)}


def answer(row: table.Row) -> dict[str, Any]:
    """The answer for one row. Raises PlanError."""
    shape, work = table.shape(row), table.workload(row)
    card = _card(row)
    capacity = card.memory_bytes if card else (table.number(row, "gpu_mem_gb") or 0.0) * GIB
    forecast = memory.forecast(shape, _as_it_ran(shape, work, card))
    found: dict[str, Any] = {"id": row["id"], "peak_gib": _peaks(forecast, row.get("metric") or "")}
    if card:
        found["tokens_per_s_per_gpu"] = round(speed.pace(shape, work, card).tokens_per_s_per_card, 2)
    if capacity:
        found["fits"] = fit.judge(shape, _asked(row, work), capacity).fits
    if shape.assumptions:
        found["assumptions"] = list(shape.assumptions)
    return found


def _card(row: table.Row) -> Card | None:
    card = hardware.find(row.get("gpu_model") or "", table.number(row, "gpu_mem_gb"))
    if card and "no nvlink" in (row.get("interconnect") or "").lower():
        return replace(card, nvlink_bytes_per_s=0.0)
    return card


def _peaks(forecast: Forecast, metric: str) -> dict[str, float]:
    """GiB by meter. Where the table does not say which meter it read, the device figure (nvidia-smi) stands for it."""
    unnamed = metric.strip().lower() in ("unknown", "?")
    reserved = forecast.device_bytes if unnamed else forecast.reserved_bytes
    figures = {"allocated": forecast.allocated_bytes, "reserved": reserved, "device": forecast.device_bytes}
    return {name: round(value / GIB, 3) for name, value in figures.items()}


def _as_it_ran(shape: Architecture, work: Workload, card: Card | None) -> Workload:
    """A measured row did run: where even the low end of the band exceeds the card, parameters must have been
    offloaded.
    """
    sharded = work.sharding in ("fsdp", "zero3") and work.offload == "none"
    if card and sharded and memory.forecast(shape, work).low_bytes > card.memory_bytes:
        return replace(work, offload="all")
    return work


def _asked(row: table.Row, work: Workload) -> Workload:
    """Knobs that a row leaves open are free where it asks for a given length: the leanest recipe is judged.

    A row that states no length, or its attention, or that layers are not checkpointed, is judged as it stands.
    """
    stated = (row.get("flash_attn") or "").strip() or (row.get("grad_ckpt") or "").strip().lower() == "no"
    return work if stated or not (row.get("seq_len") or "").strip() else fit.lean(work)
