"""What holds GPUs without being anybody's: memory without a process, and ranks of runs that have ended."""

from __future__ import annotations

from agent.checks.check import Told, fault, figure, good, probe, watch
from agent.checks.equals import label, listed
from agent.checks.scene import Scene

GIB = 1 << 30


def orphans(scene: Scene) -> Told:
    """Recorded processes of ended runs that still live: pid and start time are theirs, so nobody else is meant."""
    known = {one.identity: one for one in scene.ended_ranks()}  # one may be recorded and bear the mark too
    alive = [one for who, one in known.items() if who.state() == "alive"]
    if alive:
        evidence = "; ".join(f"pid {one.identity.pid} of {one.run}" for one in alive)
        pids = " ".join(str(one.identity.pid) for one in alive)
        return fault(
            "processes of ended runs are still alive",
            evidence,
            f"They are this user's own: look at them with ps -f {pids}, then kill {pids}.",
        )
    return good("no process of an ended run is left")


def memory(scene: Scene) -> Told | None:
    if not scene.cards:
        return None
    limit = figure("leftovers.held_bytes")
    held = [gpu for gpu in scene.cards if (gpu.memory_used_bytes or 0) > limit and not gpu.processes and not gpu.mig]
    if held:
        return watch(
            f"memory of {listed(map(label, held))} is in use, but no process is seen",
            "; ".join(f"{label(gpu)}: {(gpu.memory_used_bytes or 0) / GIB:.1f} GiB" for gpu in held),
            "Somebody in another container, or what a crash left: fuser -v /dev/nvidia* as root tells.",
        )
    foreign = [
        f"{label(gpu)}: pid {one.pid} {one.name or 'unnamed'}" + (f" of {one.user}" if one.user else "")
        for gpu in scene.cards
        for one in gpu.processes
        if one.run is None
    ]
    return good("what is in use belongs to a process", "; ".join(["not of tunedeck:", *foreign]) if foreign else "")


PROBES = (probe("orphans", orphans), probe("gpu-memory", memory))
