"""The node's clock against the console's: logs of several nodes are put in order by it, snapshots pruned by it."""

from __future__ import annotations

from agent.checks.check import Told, fault, figure, good, probe, unknown, watch
from agent.checks.scene import Scene


def offset(scene: Scene) -> Told:
    """The order's way here counts as offset too, so small ones mean nothing."""
    if scene.console_unix is None:
        return unknown("the console did not tell its time")
    ahead = scene.heard_unix - scene.console_unix
    evidence = f"{abs(ahead):.1f} s {'ahead of' if ahead >= 0 else 'behind'} the console, the order's way here included"
    action = "Let it be set by NTP: timedatectl set-ntp true, or chrony, as root; compare the console's clock too."
    if abs(ahead) >= figure("clock.fault_s"):
        return fault("the clock is far from the console's: certificates and time stamps are wrong", evidence, action)
    if abs(ahead) >= figure("clock.watch_s"):
        return watch(
            "the clock differs from the console's: lines of several nodes are put in wrong order", evidence, action
        )
    return good("agrees with the console's clock", evidence)


PROBES = (probe("offset", offset),)
