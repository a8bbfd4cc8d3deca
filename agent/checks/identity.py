"""Which card sits in which slot, kept in `cards.json`: a card that is not the one before is told of."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from agent.checks.check import Told, figure, good, watch
from agent.checks.scene import Scene
from agent.node_state import Gpu
from jobs import durable

KEPT = 4
"""Cards remembered for each slot"""
DAY_S = 86400.0


def file(folder: Path) -> Path:
    return folder / "cards.json"


def known(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Cards by slot (PCI address), newest first. A damaged file is begun anew."""
    try:
        found = durable.read_json(file(folder)) or {}
    except ValueError:
        return {}
    return {slot: list(cards) for slot, cards in found.items() if isinstance(cards, list)}


def entry(gpu: Gpu, now: float) -> dict[str, Any]:
    return {
        "uuid": gpu.uuid,
        "serial": gpu.serial,
        "name": gpu.name,
        "vbios": gpu.vbios,
        "memory_total_bytes": gpu.memory_total_bytes,
        "first_unix": now,
        "last_unix": now,
    }


def updated(slots: dict[str, list[dict[str, Any]]], cards: list[Gpu], now: float) -> dict[str, list[dict[str, Any]]]:
    slots = dict(slots)
    for gpu in cards:
        before = slots.get(gpu.pci_bus_id, [])
        if before and before[0].get("uuid") == gpu.uuid:
            slots[gpu.pci_bus_id] = [{**entry(gpu, now), "first_unix": before[0].get("first_unix", now)}, *before[1:]]
        else:
            slots[gpu.pci_bus_id] = [entry(gpu, now), *before][:KEPT]
    return slots


def unchanged(scene: Scene) -> Told | None:
    """Raises OSError when the disk does not take what is to be remembered."""
    cards = [gpu for gpu in scene.cards if gpu.pci_bus_id]
    if not cards:
        return None
    now = scene.heard_unix or time.time()
    before = known(scene.folder)
    slots = updated(before, cards, now)
    durable.write_json(file(scene.folder), slots)
    recent = now - figure("gpus.swapped_days") * DAY_S
    swapped = [
        (gpu, slots[gpu.pci_bus_id][1])
        for gpu in cards
        if len(slots[gpu.pci_bus_id]) > 1 and slots[gpu.pci_bus_id][0]["first_unix"] >= recent
    ]
    if swapped:
        first, old = swapped[0]
        reason = f"GPU {first.index} is not the card it was on {day(old.get('last_unix'))}"
        if len(swapped) > 1:
            reason += f", and {len(swapped) - 1} more"
        return watch(
            reason,
            "; ".join(difference(gpu, one) for gpu, one in swapped),
            "If nobody exchanged it for you, ask the landlord; snapshots resume on it all the same.",
        )
    since = min(float(slots[gpu.pci_bus_id][0]["first_unix"]) for gpu in cards)
    return good(
        "the cards are those seen before" if before else "the cards are remembered from now on", f"since {day(since)}"
    )


def difference(gpu: Gpu, old: dict[str, Any]) -> str:
    was = f"{old.get('name')} {old.get('uuid')}" + (f" serial {old['serial']}" if old.get("serial") else "")
    now = f"{gpu.name} {gpu.uuid}" + (f" serial {gpu.serial}" if gpu.serial else "")
    return f"slot {gpu.pci_bus_id}: was {was}, is {now}"


def day(unix: Any) -> str:
    try:
        return f"{datetime.fromtimestamp(float(unix), timezone.utc):%d %B %Y}"
    except (TypeError, ValueError, OverflowError, OSError):
        return "an unknown day"
