"""What the kernel says and how it was started: its log, address translation, access control between PCIe devices."""

from __future__ import annotations

from collections.abc import Iterator

from agent.checks.check import Told, fault, good, probe, unknown, watch
from agent.checks.driver import DISPLAYS, devices
from agent.checks.equals import listed
from agent.checks.scene import Scene
from agent.formats import kernel
from agent.formats.event import Event
from agent.formats.line import Line
from agent.kmsg import Kmsg
from agent.xid import meaning

DAY_S = 86400.0
"""Older lines are history: a fault of last month must not drain a node for ever."""
LOOKS = 16
"""Each of up to 4,096 records"""
PCI = "sys/bus/pci/devices"
BRIDGES, ACS_CAPABILITY, HEADERS = "0x0604", 0x000D, 0x100
REDIRECTS = 0x04 | 0x08 | 0x10
"""ACS control: P2P request redirect, completion redirect, upstream forwarding (PCI Express base specification)"""


def recent(scene: Scene, device: Kmsg) -> Iterator[Event]:
    """Events of the last day. Records tell the time since boot."""
    up_s = float((scene.text("proc/uptime") or "inf").split()[0])
    for _look in range(LOOKS):
        records, whole = device.read()
        for one in records:
            if up_s == float("inf") or up_s - one.at_us / 1e6 <= DAY_S:
                yield from kernel.read(Line("kmsg", one.sequence, one.text, one.text, kernel=True))
        if whole:
            return


def log(scene: Scene) -> Told:
    device = Kmsg(scene.path("dev/kmsg"))
    if not device.open(0.0):
        return unknown(
            "the kernel log is not to be read: older Xids, OOM kills and link failures cannot be seen",
            device.why,
            "root, kernel.dmesg_restrict=0 or membership in adm (journalctl -k) would show them.",
        )
    try:
        events = list(recent(scene, device))
    finally:
        device.close()
    hard = [event for event in events if serious(event)]
    if hard:
        return fault(
            "the kernel reports a GPU or switch fault within the last day",
            quoted(hard),
            "`tunedeck triage` with the output of dmesg tells the cause and whom to call.",
        )
    killed = [event for event in events if event.kind == "kernel.oom"]
    if killed:
        return watch(
            "the kernel ended a process for want of memory within the last day",
            quoted(killed),
            "See what filled the memory; `tunedeck triage RUN` tells whether it was a run.",
        )
    return good("no fault in the kernel log of the last day")


def serious(event: Event) -> bool:
    if event.kind == "kernel.xid":
        return meaning(int(event.get("xid"))).hardware
    if event.kind == "kernel.sxid":
        return "non-fatal" not in event.get("what").lower()
    return event.kind == "kernel.gpu_lost"


def quoted(events: list[Event]) -> str:
    more = f" (and {len(events) - 1} more)" if len(events) > 1 else ""
    return events[-1].line.body[:160] + more


def iommu(scene: Scene) -> Told | None:
    """By what sits under the cards: translation sends what cards say to each other through the root complex."""
    cards = devices(scene, *DISPLAYS)
    if not cards:
        return None
    kinds = {name: scene.text(f"{PCI}/{name}/iommu_group/type") for name in cards}
    words = " ".join(word for word in (scene.text("proc/cmdline") or "").split() if "iommu" in word)
    evidence = f"boot: {words}" if words else "boot: nothing about iommu"
    translated = [name for name, kind in kinds.items() if kind is not None and kind.startswith("DMA")]
    if translated and len(cards) > 1:
        action = "Boot with iommu=pt (root), or switch VT-d/AMD-Vi off in the BIOS; meanwhile NCCL_P2P_DISABLE=1."
        return watch(
            "the IOMMU translates the cards' addresses: peer-to-peer is slow or hangs",
            f"{listed(translated)}: {kinds[translated[0]]}; {evidence}",
            action,
        )
    if any(kind is not None for kind in kinds.values()):
        return good("the IOMMU passes the cards' addresses through", evidence)
    return good("no IOMMU is between the cards, as far as is seen from here", evidence)


def acs_control(configuration: bytes) -> int | None:
    """The ACS control register of a device's whole PCI configuration; None where it has no such capability."""
    at, seen = HEADERS, 0
    while at >= HEADERS and at + 8 <= len(configuration) and seen < 64:
        header = int.from_bytes(configuration[at : at + 4], "little")
        if header & 0xFFFF == ACS_CAPABILITY:
            return int.from_bytes(configuration[at + 6 : at + 8], "little")
        at, seen = header >> 20, seen + 1
    return None


def acs(scene: Scene) -> Told | None:
    """Only root reads beyond the first 64 bytes of a device's configuration."""
    if len(devices(scene, *DISPLAYS)) < 2:
        return None
    bridges = [name for name in scene.names(PCI) if (scene.text(f"{PCI}/{name}/class") or "").startswith(BRIDGES)]
    told = {name: scene.path(f"{PCI}/{name}/config").read_bytes() for name in bridges}
    if not any(len(configuration) > HEADERS for configuration in told.values()):
        return unknown(
            "PCIe access control (ACS) is for root only to read",
            f"{len(bridges)} bridges",
            "As root: lspci -vvv | grep ACSCtl; SrcValid+ ReqRedir+ on a bridge means it is on.",
        )
    on = [name for name, configuration in told.items() if (acs_control(configuration) or 0) & REDIRECTS]
    if on:
        return watch(
            "PCIe access control (ACS) sends traffic between cards through the root complex",
            listed(on),
            "setpci -s BRIDGE ECAP_ACS+6.w=0000 (root), or off in the BIOS",
        )
    return good("PCIe access control (ACS) is off between the cards", f"{len(bridges)} bridges")


PROBES = (probe("log", log), probe("iommu", iommu), probe("acs", acs))
