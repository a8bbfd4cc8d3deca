"""What cards count and say of themselves: memory errors, Xids, slowing down."""

from __future__ import annotations

from collections.abc import Callable

from agent.checks.check import Told, fault, figure, good, probe, unknown, watch
from agent.checks.equals import each, label, listed, outliers
from agent.checks.scene import Scene
from agent.node_state import Gpu

HARDWARE, SOFTWARE = ("hardware slowdown", "thermal (hardware)", "power brake"), ("thermal (software)",)
RESET = "Let its runs end, then nvidia-smi --gpu-reset -i {i} (root), or reboot."


def on_cards(look: Callable[[Scene, list[Gpu]], Told | None]) -> Callable[[Scene], Told | None]:
    """A look at the cards that answer; it does not apply where there is none."""
    return lambda scene: look(scene, scene.cards) if scene.cards else None


def ecc(_scene: Scene, cards: list[Gpu]) -> Told | None:
    uncorrected = {label(gpu): gpu.ecc_uncorrected for gpu in cards if gpu.ecc_uncorrected}
    corrected = {label(gpu): gpu.ecc_corrected for gpu in cards}
    if uncorrected:
        return watch(
            f"uncorrectable memory errors on {listed(uncorrected)}",
            each(uncorrected, " over its life"),
            "One that grows ends runs (Xid 48, 94, 95): watch it, and exchange the card if it does.",
        )
    if many := outliers(corrected, figure("gpus.corrected_watch"), 10):
        return watch(
            f"many corrected memory errors on {listed(many)}",
            each(many, " over its life"),
            "Uncorrectable ones often follow; take snapshots often and watch it.",
        )
    if all(gpu.ecc_uncorrected is None for gpu in cards):
        return unknown("memory errors are not counted on these cards")
    return good("no memory errors that matter")


def remapping(_scene: Scene, cards: list[Gpu]) -> Told | None:
    """A pending one does no harm to what runs (NVML, nvmlDeviceGetRemappedRows); a failed one is for exchange."""
    failed, pending = [g for g in cards if g.remap_failed], [g for g in cards if g.remap_pending]
    pages = {label(g): g.retired_pages for g in cards if (g.retired_pages or 0) >= figure("gpus.retired_fault")}
    if failed or pages:
        bad = dict.fromkeys([*map(label, failed), *pages])
        return fault(
            f"{listed(bad)} has no spare memory left to replace what failed",
            "row remapping failed" if failed else f"{pages} retired pages",
            "Exchange the card: NVIDIA takes it back for this.",
        )
    if pending:
        return watch(
            f"memory of {listed(map(label, pending))} waits to be taken out of use",
            "remapping is pending",
            RESET.format(i=pending[0].index),
        )
    if all(gpu.remap_failed is None and gpu.retired_pages is None for gpu in cards):
        return unknown("row remapping and page retirement are not told")
    return good("no memory waits to be replaced")


def xid(_scene: Scene, cards: list[Gpu]) -> Told | None:
    """As far as the agent was there to see them. One of a program's own does not speak against the card."""
    hard = {label(gpu): gpu.xid_fault or f"Xid {gpu.xid}" for gpu in cards if gpu.xids_hardware}
    if hard:
        return fault(
            f"{listed(hard)} reported a fault of its own since the last boot",
            each(hard),
            "Do what stands there, then check again; `tunedeck triage RUN` tells what it did to a run.",
        )
    if all(gpu.xids is None for gpu in cards):
        return unknown("no Xid was told; whether this driver tells them is not known")
    programs = {label(gpu): f"Xid {gpu.xid}" for gpu in cards if gpu.xid is not None}
    return good("no Xid that the cards are to blame for", f"of programs: {each(programs)}" if programs else "")


def throttle(_scene: Scene, cards: list[Gpu]) -> Told | None:
    """A power cap under load is how cards work, and no fault."""
    hard = {label(g): ", ".join(t for t in g.throttle if t in HARDWARE) for g in cards if set(g.throttle) & {*HARDWARE}}
    soft = [label(g) for g in cards if set(g.throttle) & {*SOFTWARE}]
    if hard:
        return fault(
            f"{listed(hard)} is slowed down by its hardware",
            each(hard),
            "Cooling or power supply: airflow, fans, dust, cables; it is for the landlord.",
        )
    if soft:
        temperatures = {g.temperature_c for g in cards if label(g) in soft}
        return watch(
            f"{listed(soft)} is slowed down by heat",
            f"{sorted(t for t in temperatures if t)} °C",
            "Look at the room and the fans; a run goes at the pace of its slowest card.",
        )
    return good("no card is slowed down")


PROBES = (
    probe("ecc", on_cards(ecc)),
    probe("remapping", on_cards(remapping)),
    probe("xid", on_cards(xid)),
    probe("throttle", on_cards(throttle)),
)
