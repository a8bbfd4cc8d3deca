"""The cards' way to the host. Links rest at a low generation while cards idle, so they are judged under load only."""

from __future__ import annotations

from agent.checks.check import Told, fault, figure, good, probe, unknown, watch
from agent.checks.equals import each, label, listed, outliers
from agent.checks.scene import Scene
from agent.node_state import Gpu


def link(scene: Scene) -> Told | None:
    if not scene.cards:
        return None
    busy = [gpu for gpu in scene.cards if (gpu.utilisation_percent or 0) >= figure("pcie.load_percent")]
    told = [gpu for gpu in busy if None not in (gpu.pcie_gen, gpu.pcie_gen_max, gpu.pcie_width, gpu.pcie_width_max)]
    if not busy:
        return unknown("no card works now, and resting links are slow by design", "", "Check again while a run trains.")
    if not told:
        return unknown("the PCIe link is not told")
    if slow := [gpu for gpu in told if reduced(gpu)]:
        return fault(
            f"{listed(map(label, slow))} is on a reduced PCIe link under load",
            "; ".join(f"{label(gpu)}: {words(gpu)}" for gpu in slow),
            "Reseat the card or its riser, look at the BIOS's link speed; it is for the landlord.",
        )
    idle = len(scene.cards) - len(told)
    return good(
        "full PCIe generation and width under load", words(told[0]) + (f"; {idle} idle, not judged" if idle else "")
    )


def reduced(gpu: Gpu) -> bool:
    return (gpu.pcie_gen or 0) < (gpu.pcie_gen_max or 0) or (gpu.pcie_width or 0) < (gpu.pcie_width_max or 0)


def words(gpu: Gpu) -> str:
    return f"gen {gpu.pcie_gen} ×{gpu.pcie_width} of gen {gpu.pcie_gen_max} ×{gpu.pcie_width_max}"


def replays(scene: Scene) -> Told | None:
    counts = {label(gpu): gpu.pcie_replays for gpu in scene.cards}
    if not counts:
        return None
    if all(count is None for count in counts.values()):
        return unknown("PCIe replays are not told")
    if many := outliers(counts, figure("pcie.replays_watch"), 10):
        return watch(
            f"{listed(many)} had to send again over PCIe far more often than the others",
            each(many, " since the driver was loaded"),
            "A weak link: reseat the card or its riser; watch whether it grows.",
        )
    return good("few PCIe replays", f"at most {max(count or 0 for count in counts.values())}")


PROBES = (probe("link", link), probe("replays", replays))
