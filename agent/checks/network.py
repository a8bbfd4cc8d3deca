"""What NCCL and gloo would take for talking to other nodes, where nobody says NCCL_SOCKET_IFNAME."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from agent.checks import rdma
from agent.checks.check import Told, fault, figure, good, probe, unknown, watch
from agent.checks.equals import each, listed, odd_ones, others
from agent.checks.scene import Scene

NET = "sys/class/net"
VARIABLE = "NCCL_SOCKET_IFNAME"
VIRTUAL = ("docker", "veth", "br-", "virbr", "cni", "flannel", "cali", "tunl", "lxc", "podman", "tailscale", "wg")


@dataclass(frozen=True, slots=True)
class Device:
    name: str
    index: int
    address: str
    """First IPv4 one; empty: none"""
    real: bool
    """There is a device behind it"""
    speed_mbit_s: int | None
    mtu: int | None

    @property
    def words(self) -> str:
        speed = f", {self.speed_mbit_s / 1000:g} Gb/s" if self.speed_mbit_s else ""
        return f"{self.name} {self.address or 'without an address'}{speed}, MTU {self.mtu or 'unknown'}"

    @property
    def loopback(self) -> bool:
        return self.name == "lo" or self.address.startswith("127.")

    @property
    def virtual(self) -> bool:
        return self.name.startswith(VIRTUAL)


def number(text: str | None) -> int | None:
    """None also for the -1 of a link that has no speed."""
    return int(text) if text is not None and text.isdecimal() else None


def interfaces(scene: Scene) -> list[Device]:
    """Those that are up, in the kernel's order, which is also that of getifaddrs."""
    found, addresses = [], scene.addresses()
    for name in scene.names(NET):
        if scene.text(f"{NET}/{name}/operstate") in ("down", "lowerlayerdown", "notpresent", None):
            continue
        index, mtu = number(scene.text(f"{NET}/{name}/ifindex")), number(scene.text(f"{NET}/{name}/mtu"))
        real = scene.path(f"{NET}/{name}/device").exists()
        speed = number(scene.text(f"{NET}/{name}/speed"))
        found.append(Device(name, index or 0, addresses.get(name, ""), real, speed, mtu))
    return sorted(found, key=lambda one: one.index)


def chosen(devices: Sequence[Device], wanted: str = "") -> list[Device]:
    """As NCCL chooses (src/misc/socket.cc): ib*, else all but docker* and lo, else docker*, else lo.

    `wanted` is NCCL_SOCKET_IFNAME: prefixes, with = whole names, with ^ all others.
    """
    having = [one for one in devices if one.address]
    if wanted:
        return [one for one in having if named(one.name, wanted)]
    steps = (
        [one for one in having if one.name.startswith("ib")],
        [one for one in having if not one.name.startswith(("docker", "lo"))],
        [one for one in having if one.name.startswith("docker")],
        [one for one in having if one.name.startswith("lo")],
    )
    return next((step for step in steps if step), [])


def named(name: str, wanted: str) -> bool:
    exact, others = wanted[:1] == "=" or wanted[:2] == "^=", wanted[:1] == "^"
    words = [word for word in wanted.lstrip("^=").split(",") if word]
    return any(name == word if exact else name.startswith(word) for word in words) != others


def interface(scene: Scene) -> Told:
    devices, wanted = interfaces(scene), scene.variables.get(VARIABLE, "")
    if not devices:
        return unknown("no network interface is told")
    found = chosen(devices, wanted)
    if wanted and not found:
        return fault(
            f"{VARIABLE} names no interface with an address: NCCL will not start",
            f"{VARIABLE}={wanted}; there are {listed(one.words for one in devices)}",
            "Unset it, or name one of these.",
        )
    if not found or found[0].loopback:
        return watch(
            "no interface but the loopback has an IPv4 address: runs stay on this node",
            "",
            "Give an interface an address before runs over several nodes.",
        )
    return judged(scene, found[0], devices)


def judged(scene: Scene, pick: Device, devices: Sequence[Device]) -> Told:
    better = best([one for one in devices if one is not pick])
    export = f"export {VARIABLE}={better.name} GLOO_SOCKET_IFNAME={better.name} on every node" if better else ""
    address, evidence = ipaddress.ip_address(pick.address), f"would be picked: {pick.words}"
    if better:
        evidence += f"; there is also {better.words}"
    if pick.virtual and better:
        return fault(f"NCCL would pick {pick.name}, which no other node reaches", evidence, export)
    if address.is_link_local:
        return watch(f"NCCL would pick {pick.name}, whose address no router passes on", evidence, export)
    if address.is_global:
        return watch(
            f"NCCL would pick {pick.name} with a public address: its ports are open without a password",
            evidence,
            export or "Let a firewall admit only the nodes of the run.",
        )
    slow = better is not None and (better.speed_mbit_s or 0) >= figure("network.faster_times") * (
        pick.speed_mbit_s or 1e9
    )
    if slow and not any(port.active for port in rdma.ports(scene)):
        return watch(f"NCCL would pick {pick.name}, although another interface is faster", evidence, export)
    return good("NCCL would pick an interface with a private address", evidence)


def best(devices: Sequence[Device]) -> Device | None:
    """The fastest real one with a private address."""
    fit = [one for one in devices if one.address and one.real and not one.loopback and not one.virtual]
    fit = [one for one in fit if not ipaddress.ip_address(one.address).is_global]
    return max(fit, key=lambda one: one.speed_mbit_s or 0, default=None)


def hostname(scene: Scene) -> Told:
    """Gloo and torchrun tell other nodes the address that the host name means."""
    name = scene.host.hostname
    if not name:
        return unknown("the host name is not told")
    found = scene.resolve(name)
    action = (
        f"Put the node's own address before {name} in /etc/hosts (root), or set GLOO_SOCKET_IFNAME and MASTER_ADDR."
    )
    if not found:
        return watch("the host name has no address: gloo and torchrun on several nodes will not find it", name, action)
    evidence = f"{name}: {', '.join(found)}"
    if ipaddress.ip_address(found[0].partition("%")[0]).is_loopback:
        return watch(
            "the host name means the loopback: gloo would give other nodes an address of their own", evidence, action
        )
    return good("the host name means this node's address", evidence)


def mtu(scene: Scene) -> Told | None:
    """Equal among interfaces of one speed, for these are rails; two that differ may be two networks."""
    groups: dict[int, dict[str, int | None]] = {}
    for one in interfaces(scene):
        if one.real and one.speed_mbit_s:
            groups.setdefault(one.speed_mbit_s, {})[one.name] = one.mtu
    for rails in groups.values():
        usual, odd = odd_ones(rails)
        if odd and usual is not None:
            return watch(
                f"interfaces of one speed have different MTUs: {listed(odd)}",
                each(odd) + others(usual),
                "ip link set dev NAME mtu N (root), the same on every node and switch port.",
            )
    known = {name: size for rails in groups.values() for name, size in rails.items()}
    if not known:
        return None
    return good("equal MTU on interfaces of one speed", ", ".join(f"{name} {size}" for name, size in known.items()))


PROBES = (probe("interface", interface), probe("hostname", hostname, 8.0), probe("mtu", mtu))
