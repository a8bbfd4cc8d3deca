"""What cards count and say of themselves: memory errors, Xids, slowing down."""

from __future__ import annotations

from collections.abc import Callable

from agent.checks.check import Told, fault, figure, good, probe, unknown, watch
from agent.checks.equals import each, label, listed, outliers
from agent.checks.scene import Scene
from agent.node_state import Gpu
from agent.triage.rules_gpu import XIDS

HARDWARE, SOFTWARE = ("hardware slowdown", "thermal (hardware)", "power brake"), ("thermal (software)",)
OURS = "gpu.app-fault"
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
    """As far as the agent was there to hear them; the kernel log tells older ones."""
    told = {label(gpu): gpu.xid for gpu in cards if gpu.xid is not None}
    kinds = {name: XIDS.get(code, "") for name, code in told.items()}
    hard = {name: told[name] for name, kind in kinds.items() if kind not in ("", OURS)}
    soft = {name: told[name] for name, kind in kinds.items() if kind == OURS}
    if hard:
        return fault(
            f"Xid on {listed(hard)}",
            "; ".join(f"{name}: Xid {code}, {kinds[name]}" for name, code in hard.items()),
            "`tunedeck triage RUN` says what it means; reset the card or drain the node.",
        )
    if soft:
        return watch(
            f"a program's own fault on {listed(soft)}",
            "; ".join(f"{name}: Xid {code}" for name, code in soft.items()),
            "An illegal access of a kernel: look at that run's log, not at the card.",
        )
    if all(gpu.xids is None for gpu in cards):
        return unknown("no Xid was told; whether this driver tells them is not known")
    return good("no Xid since the agent looks")


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
