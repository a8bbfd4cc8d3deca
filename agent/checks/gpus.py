"""The cards: all there, alike, and sound by their own counters."""

from __future__ import annotations

import re

from agent.checks import identity, soundness
from agent.checks.check import Told, fault, figure, good, probe, unknown, watch
from agent.checks.driver import DISPLAYS, devices
from agent.checks.equals import each, label, listed, odd_ones, others, short
from agent.checks.scene import Scene
from agent.checks.soundness import on_cards
from agent.node_state import Gpu
from jobs.plan import hardware

GIB = 1 << 30


def answering(scene: Scene) -> Told | None:
    if not scene.gpus:
        return None
    lost = [gpu for gpu in scene.all_cards if gpu.lost]
    if lost:
        evidence = "; ".join(f"{label(gpu)} {gpu.pci_bus_id or gpu.uuid}: {gpu.lost}" for gpu in lost)
        return fault(
            f"{listed(map(label, lost))} does not answer",
            evidence,
            "Drain the node and reboot it; if the card stays away, it is for the landlord.",
        )
    return good("all cards answer", f"{len(scene.gpus)} GPUs")


def count(scene: Scene) -> Told | None:
    """NVML against the bus; in a container or a job sysfs shows cards that are not ours."""
    if not scene.gpus:
        return None
    there = [] if scene.contained else devices(scene, *DISPLAYS)
    if not there:
        return unknown("the PCI bus does not say how many cards there should be", f"NVML counts {len(scene.gpus)}")
    if len(there) > len(scene.gpus):
        known = {short(gpu.pci_bus_id) for gpu in scene.all_cards}
        missing = ", ".join(name for name in there if short(name) not in known)
        return fault(
            f"NVML counts {len(scene.gpus)} cards, the PCI bus {len(there)}",
            f"not in NVML: {missing}",
            "Look for Xid 79 in the kernel log; reboot; if it stays away, it is for the landlord.",
        )
    return good("as many cards as the PCI bus shows", f"{len(scene.gpus)} GPUs")


def models(_scene: Scene, cards: list[Gpu]) -> Told | None:
    usual, odd = odd_ones({label(gpu): gpu.name for gpu in cards})
    if odd:
        return fault(
            f"cards differ: {listed(odd)}",
            each(odd) + others(usual),
            "All ranks go at the pace and with the memory of the smallest; give runs equal cards.",
        )
    return good("all cards are of one model", f"{len(cards)} × {usual}")


def expected_bytes(gpu: Gpu) -> int | None:
    """What NVML tells of a card of that name; where the name does not say its size, of the nearest variant."""
    told = None if re.search(r"\d ?GB", gpu.name) else (gpu.memory_total_bytes or 0) / 1e9
    known = hardware.find(gpu.name, told or None)
    return known.memory_bytes if known is not None else None


def memory(_scene: Scene, cards: list[Gpu]) -> Told | None:
    """What NVML tells against what a card of that name has; of an unlisted one, against its neighbours."""
    sizes = {label(gpu): gpu.memory_total_bytes for gpu in cards}
    wanted = {label(gpu): expected_bytes(gpu) for gpu in cards}
    _usual, odd = odd_ones(sizes) if alike(cards) else (None, {})
    wrong = {name: gib(size) for name, size in odd.items() if not wanted[name]}
    for name, size in sizes.items():
        if size and (whole := wanted[name]) and abs(size / whole - 1) > figure("gpus.memory_share"):
            wrong[name] = f"{gib(size)} of {gib(whole)}"
    if wrong:
        return fault(
            f"{listed(wrong)} does not have the memory of its name",
            f"{cards[0].name}: {each(wrong)}",
            "The card is not what it is called, or its memory is partly off; it is for the landlord.",
        )
    if unlisted := [name for name, whole in wanted.items() if not whole]:
        return unknown(f"how much memory {listed(unlisted)} should have is not known here", cards[0].name)
    return good("as much memory as cards of that name have", "told by NVML; whether it can all be used is not tested")


def gib(size_bytes: int) -> str:
    return f"{size_bytes / GIB:.1f} GiB"


def alike(cards: list[Gpu]) -> bool:
    """Cards of different models differ in all else too, which says nothing."""
    return len({gpu.name for gpu in cards}) == 1


def power_limits(_scene: Scene, cards: list[Gpu]) -> Told | None:
    if not alike(cards):
        return None
    limits = {label(gpu): gpu.power_limit_w for gpu in cards if gpu.power_limit_w}
    if not limits:
        return unknown("power limits are not told")
    usual = max(limits.values())
    low = {name: limit for name, limit in limits.items() if limit < figure("gpus.power_limit_share") * usual}
    if low:
        return watch(
            f"{listed(low)} may take less power than the others, and will be slower",
            "; ".join(f"{name}: {limit:.0f} W" for name, limit in low.items()) + f"; others {usual:.0f} W",
            "nvidia-smi -pl sets it (root); it may be the landlord's cap.",
        )
    return good("equal power limits", f"{usual:.0f} W")


def vbios(_scene: Scene, cards: list[Gpu]) -> Told | None:
    if not alike(cards):
        return None
    usual, odd = odd_ones({label(gpu): gpu.vbios or None for gpu in cards})
    if usual is None and not odd:
        return unknown("the VBIOS is not told")
    if odd:
        return watch(
            f"another VBIOS on {listed(odd)}",
            each(odd) + others(usual),
            "Cards of different origin or firmware may differ in clocks and power.",
        )
    return good("equal VBIOS", str(usual))


def persistence(_scene: Scene, cards: list[Gpu]) -> Told | None:
    """Off everywhere is how drivers come, and harmless while an agent keeps the driver loaded."""
    off = [label(gpu) for gpu in cards if gpu.persistence is False]
    if all(gpu.persistence is None for gpu in cards):
        return unknown("persistence mode is not told")
    if off and len(off) < len(cards):
        return watch(
            f"persistence mode is off on {listed(off)} only",
            "the driver unloads when nobody uses the card, and its clocks and limits are set back",
            "systemctl enable --now nvidia-persistenced, or nvidia-smi -pm 1 (root)",
        )
    return good("persistence mode is off: a first start takes longer" if off else "persistence mode is on")


def mig(_scene: Scene, cards: list[Gpu]) -> Told | None:
    _usual, odd = odd_ones({label(gpu): gpu.mig_mode for gpu in cards})
    if odd:
        return watch(
            f"MIG differs: {listed(odd)}",
            "; ".join(f"{name}: {'on' if on else 'off'}" for name, on in odd.items()),
            "nvidia-smi -mig sets it (root); a run over slices and whole cards fails.",
        )
    if all(gpu.mig_mode is None for gpu in cards):
        return None
    on = cards[0].mig_mode
    return good("MIG is on: these are slices" if on else "MIG is off: whole cards")


PROBES = (
    probe("answering", answering),
    probe("count", count),
    probe("models", on_cards(models)),
    probe("memory", on_cards(memory)),
    probe("identity", identity.unchanged),
    probe("power-limits", on_cards(power_limits)),
    probe("vbios", on_cards(vbios)),
    probe("persistence", on_cards(persistence)),
    probe("mig", on_cards(mig)),
    *soundness.PROBES,
)
