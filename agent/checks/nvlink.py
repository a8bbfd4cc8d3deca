"""Links between the cards, and what manages their switches. What is off on all cards alike is off by design."""

from __future__ import annotations

from agent.checks.check import Told, fault, figure, good, probe, unknown, watch
from agent.checks.driver import BRIDGE, devices
from agent.checks.equals import each, label, listed, odd_ones, outliers
from agent.checks.scene import Scene

MANAGER = "nv-fabricmanage"
"""As /proc/PID/comm cuts the name, 15 characters"""


def links(scene: Scene) -> Told | None:
    cards = [gpu for gpu in scene.cards if gpu.nvlinks is not None]
    if not cards:
        return unknown("NVLink is not told") if scene.cards else None
    if not any(gpu.nvlinks for gpu in cards):
        return good("these cards have no NVLink")
    usual, odd = odd_ones({label(gpu): (gpu.nvlinks or 0) - (gpu.nvlinks_down or 0) for gpu in cards})
    totals = {label(gpu): gpu.nvlinks for gpu in cards}
    if odd:
        return fault(
            f"NVLinks are down on {listed(odd)}",
            "; ".join(f"{name}: {up} of {totals[name]} up" for name, up in odd.items())
            + (f"; {usual} on the others" if usual is not None else ""),
            "Reset the cards or reboot; if they stay down, it is for the landlord.",
        )
    if usual == 0:
        return fault("all NVLinks are down", f"{len(cards)} cards", "Start the fabric manager, or reboot.")
    down = max(gpu.nvlinks_down or 0 for gpu in cards)
    return good("as many NVLinks on every card", f"{usual} up" + (f", {down} off on all alike" if down else ""))


def errors(scene: Scene) -> Told | None:
    counts = {label(gpu): gpu.nvlink_errors for gpu in scene.cards}
    if all(count is None for count in counts.values()):
        return None
    if many := outliers(counts, figure("nvlink.errors_watch"), 10):
        return watch(
            f"{listed(many)} has far more NVLink errors than the others",
            each(many),
            "Xid 74 often follows; reset the card, watch whether it grows.",
        )
    return good("few NVLink errors", f"at most {max(count or 0 for count in counts.values())}")


def fabric_manager(scene: Scene) -> Told | None:
    """Cards behind NVSwitches compute nothing together without it."""
    switches = devices(scene, BRIDGE)
    if not switches or not scene.cards:
        return None
    if any(scene.text(f"proc/{name}/comm") == MANAGER for name in scene.names("proc") if name.isdecimal()):
        return good("the fabric manager runs", f"{len(switches)} NVSwitches")
    if scene.contained:
        return unknown("the fabric manager runs outside of this container, where it cannot be seen")
    return fault(
        "the fabric manager does not run: CUDA ends with error 802 (system not yet initialized)",
        f"{len(switches)} NVSwitches",
        "systemctl start nvidia-fabricmanager (root), of the driver's version",
    )


PROBES = (probe("links", links), probe("errors", errors), probe("fabric-manager", fabric_manager))
