"""RDMA ports as sysfs shows them. One that is down is a fault only where its equals are up: others are not cabled."""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass

from agent.checks.check import Told, fault, good, probe, unknown, watch
from agent.checks.equals import each, listed, odd_ones, others
from agent.checks.scene import Scene

DEVICES = "sys/class/infiniband"
EMPTY_GID = "0000:0000:0000:0000:0000:0000:0000:0000"
MAPPED, LOCAL = "0000:0000:0000:0000:0000:ffff:", "fe80:"
RATE = re.compile(r"([\d.]+) Gb/sec")


@dataclass(frozen=True, slots=True)
class RdmaPort:
    name: str
    """mlx5_0/1"""
    path: str
    state: str
    """ACTIVE | DOWN | INIT | ARMED"""
    physical: str
    ethernet: bool
    rate_gbit_s: float | None
    firmware: str
    equals: Hashable
    """The same for ports that serve the same purpose: kind of adapter, PCI function, number of the port, link layer"""

    @property
    def active(self) -> bool:
        return self.state == "ACTIVE"

    @property
    def words(self) -> str:
        return f"{self.name} {self.state or 'unknown'} ({self.physical or 'unknown'})"


def ports(scene: Scene) -> list[RdmaPort]:
    return [
        port(scene, device, number)
        for device in scene.names(DEVICES)
        for number in scene.names(f"{DEVICES}/{device}/ports")
    ]


def port(scene: Scene, device: str, number: str) -> RdmaPort:
    """`state` is written as "4: ACTIVE", `rate` as "400 Gb/sec (4X NDR)"."""
    path = f"{DEVICES}/{device}/ports/{number}"

    def word(name: str) -> str:
        return (scene.text(f"{path}/{name}") or "").rpartition(":")[2].strip()

    ethernet = word("link_layer") == "Ethernet"
    rate = RATE.match(scene.text(f"{path}/rate") or "")
    kind = scene.text(f"{DEVICES}/{device}/hca_type") or scene.text(f"{DEVICES}/{device}/device/device") or ""
    address = scene.path(f"{DEVICES}/{device}/device").resolve().name
    return RdmaPort(
        name=f"{device}/{number}",
        path=path,
        state=word("state"),
        physical=word("phys_state"),
        ethernet=ethernet,
        rate_gbit_s=float(rate[1]) if rate else None,
        firmware=scene.text(f"{DEVICES}/{device}/fw_ver") or "",
        equals=(kind, address.rpartition(".")[2] if "." in address else "", number, ethernet),
    )


def groups(scene: Scene) -> list[list[RdmaPort]]:
    found: dict[Hashable, list[RdmaPort]] = {}
    for one in ports(scene):
        found.setdefault(one.equals, []).append(one)
    return list(found.values())


def state(scene: Scene) -> Told | None:
    every = groups(scene)
    if not every:
        return None
    odd = [one for group in every for one in group if not one.active and 2 * sum(o.active for o in group) > len(group)]
    waiting = [one for group in every for one in group if one.state in ("INIT", "ARMED")]
    if waiting:
        return fault(
            f"{listed(one.name for one in waiting)} waits for a subnet manager",
            listed(one.words for one in waiting),
            "Start opensm, or look at the switch that runs the subnet manager (root).",
        )
    if odd:
        told = fault if len(odd) == 1 else watch  # several may never have been cabled
        return told(
            f"{listed(one.name for one in odd)} is down while most of its kind are up",
            listed(one.words for one in odd),
            "Cable, optic or switch port; until then leave it out with NCCL_IB_HCA=^NAME.",
        )
    active = [one for group in every for one in group if one.active]
    idle = [one for group in every for one in group if not one.active]
    if not active:
        return good("no RDMA port is in use", listed(one.words for one in idle))
    unused = f"; not cabled, as it seems: {listed(one.name for one in idle)}" if idle else ""
    return good("RDMA ports are up", listed(one.name for one in active) + unused)


def rate(scene: Scene) -> Told | None:
    """One slower than all its equals; several slower ones may be another network, for storage."""
    active = [one for one in ports(scene) if one.active]
    for group in groups(scene):
        rates = {one.name: one.rate_gbit_s for one in group if one.active and one.rate_gbit_s}
        slow = {name: f"{gbit:g} Gb/s" for name, gbit in rates.items() if gbit < max(rates.values())}
        if len(slow) == 1 and len(rates) > 2:
            return fault(
                f"{listed(slow)} is slower than its equals",
                f"{each(slow)}; the others: {max(rates.values()):g} Gb/s",
                "Cable, optic or the switch port's speed; every collective goes at the slowest rail's pace.",
            )
    if not active:
        return None
    told = sorted({one.rate_gbit_s for one in active if one.rate_gbit_s})
    return good(
        "no port is slower than its equals", f"{len(active)} ports, " + ", ".join(f"{gbit:g} Gb/s" for gbit in told)
    )


def gids(scene: Scene, one: RdmaPort) -> dict[int, tuple[str, str]]:
    """Index → (GID, RoCE type) of those that are set. An entry without a type cannot be read, and is not there."""
    found = {}
    for index in scene.names(f"{one.path}/gids"):
        gid, kind = scene.text(f"{one.path}/gids/{index}"), scene.text(f"{one.path}/gid_attrs/types/{index}")
        if gid and gid != EMPTY_GID:
            found[int(index)] = (gid, kind or "")
    return found


def roce(scene: Scene) -> Told | None:
    """On Ethernet: a RoCE v2 GID over an address that routers pass on, at one index on all ports."""
    active = [one for one in ports(scene) if one.active and one.ethernet]
    if not active:
        return None
    routable: dict[str, tuple[int, ...] | None] = {}
    without, local = [], []
    for one in active:
        second = {index: gid for index, (gid, kind) in gids(scene, one).items() if kind == "RoCE v2"}
        indices = tuple(index for index, gid in sorted(second.items()) if not gid.startswith(LOCAL))
        routable[one.name] = indices or None
        if not second:
            without.append(one.name)
        elif not indices:
            local.append(one.name)
    if without:
        return fault(
            f"no RoCE v2 GID on {listed(without)}",
            "",
            "cma_roce_mode -d NAME -m 2, or the adapter's firmware settings (root)",
        )
    if local:
        return fault(
            f"{listed(local)} has only link-local GIDs: no other node is reached over it",
            "",
            "Give its network interface an IPv4 address.",
        )
    first, odd = odd_ones({name: indices[0] for name, indices in routable.items() if indices})
    if odd:
        return watch(
            f"RoCE v2 sits at another GID index on {listed(odd)}",
            each(odd) + f"; usual: {first}",
            "Leave NCCL_IB_GID_INDEX unset (NCCL 2.21 and newer finds it by itself).",
        )
    return good("RoCE v2 on all ports", f"GID index {first}")


def firmware(scene: Scene) -> Told | None:
    for group in groups(scene):
        usual, odd = odd_ones({one.name: one.firmware or None for one in group})
        if odd:
            return watch(
                f"another firmware on {listed(odd)}",
                each(odd) + others(usual),
                "mlxfwmanager, or the vendor's tool (root)",
            )
    told = sorted({one.firmware for one in ports(scene) if one.firmware})
    return good("equal firmware", ", ".join(told)) if told else None


def gpudirect(scene: Scene) -> Told | None:
    """By the module for it, or by DMA-BUF, which the open kernel driver brings."""
    if not scene.cards or not any(one.active for one in ports(scene)):
        return None
    if scene.path("sys/module/nvidia_peermem").exists() or scene.names("sys/kernel/mm/memory_peers"):
        return good("GPUDirect RDMA is possible", "nvidia-peermem is loaded")
    driver = scene.text("proc/driver/nvidia/version")
    if driver is None:
        return unknown("whether GPUDirect RDMA is possible is not told here")
    if "Open Kernel Module" in driver:
        return good("GPUDirect RDMA is possible", "the open kernel driver has DMA-BUF")
    return fault(
        "GPUDirect RDMA is off: everything between nodes goes through the host's memory",
        "no nvidia-peermem, and not the open kernel driver",
        "modprobe nvidia-peermem (root), after the RDMA driver was installed",
    )


PROBES = (
    probe("ports", state),
    probe("rate", rate),
    probe("roce", roce),
    probe("firmware", firmware),
    probe("gpudirect", gpudirect),
)
