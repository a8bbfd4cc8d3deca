"""A sound machine with eight H100s, as checks see it: real files below a folder, and the cards' records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agent import wire
from agent.checks.checker import FAMILIES, Checker
from agent.checks.scene import Scene

GIB, MIB = 1 << 30, 1 << 20
NOW = 1_796_000_000.0
LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max processes             6190000              6190000              processes
Max open files            1024                 524288               files
Max locked memory         unlimited            unlimited            bytes
"""
BOUNDED = tuple(name for name in FAMILIES if name != "disk")
"""All families that only read; the disk is measured where that is what is tested"""


def card(index: int) -> wire.Gpu:
    return wire.Gpu(
        uuid=f"GPU-{index:04d}",
        index=index,
        name="NVIDIA H100 80GB HBM3",
        pci_bus_id=f"00000000:{16 + index:02X}:00.0",
        memory_total_bytes=81559 * MIB,
        memory_used_bytes=60 * GIB,
        utilisation_percent=97.0,
        temperature_c=61.0,
        power_limit_w=700.0,
        throttle=("power cap",),
        ecc_corrected=3 * index,
        ecc_uncorrected=0,
        remapped_rows=0,
        remap_pending=0,
        remap_failed=0,
        pcie_gen=5,
        pcie_gen_max=5,
        pcie_width=16,
        pcie_width_max=16,
        pcie_replays=index,
        nvlinks=18,
        nvlinks_down=0,
        nvlink_errors=2 * index,
        mig_mode=False,
        persistence=True,
        serial=f"16525230{index:05d}",
        vbios="96.00.74.00.1C",
        xids=0,
        processes=(wire.GpuProcess(1000 + index, 60 * GIB, "python", "ann"),),
    )


@dataclass
class Sound:
    """`scene` is what is checked; tests spoil the files or the records of it, one at a time."""

    root: Path
    scene: Scene = field(init=False)

    def __post_init__(self) -> None:
        folder = self.root / "state"
        folder.mkdir(parents=True)
        cards = {one.uuid: one for one in map(card, range(8))}
        host = wire.Host(
            hostname="gpu01",
            driver_version="550.54.15",
            cuda_version="12.4",
            disks=(wire.Disk("/", 1000 * GIB, 600 * GIB),),
        )
        self.scene = Scene(
            folder=folder,
            host=host,
            gpus=cards,
            gpu_age_s=0.0,
            heard_unix=NOW,
            console_unix=NOW - 0.2,
            root=self.root,
            addresses=lambda: {"lo": "127.0.0.1", "eth0": "10.0.0.11", "docker0": "172.17.0.1"},
            resolve=lambda _name: ("10.0.0.11",),
            variables={},
        )
        self.processes()
        self.pci()
        self.network()
        self.rdma()

    def write(self, name: str, text: object) -> Sound:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
        return self

    def processes(self) -> None:
        self.write("proc/self/limits", LIMITS)
        self.write("proc/self/cgroup", "0::/user.slice/session-1.scope")
        for name in ("memory.max", "pids.max"):
            self.write(f"sys/fs/cgroup/user.slice/session-1.scope/{name}", "max")
        self.write("proc/meminfo", f"MemTotal: {2048 * GIB // 1024} kB\nSwapTotal: 0 kB\nSwapFree: 0 kB")
        self.write("proc/self/mounts", "/dev/nvme0n1p2 / ext4 rw 0 0\ntmpfs /dev/shm tmpfs rw,nosuid 0 0")
        self.write("proc/self/status", "Name:\tpython\nCpus_allowed_list:\t0-95,97-191")
        self.write("proc/uptime", "500000.00 1.0")
        self.write("proc/cmdline", "BOOT_IMAGE=/vmlinuz ro iommu=pt")
        self.write("proc/4242/comm", "nv-fabricmanage")
        self.write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue")
        self.write("sys/module/nvidia_peermem/refcnt", 0)
        self.kmsg("NVRM: Xid (PCI:0000:11:00): 43, pid=77, name=python, Ch 00000008", 60)
        self.kmsg("NVRM: Xid (PCI:0000:12:00): 79, pid=77, GPU has fallen off the bus.", 2 * 86400)

    def kmsg(self, text: str, ago_s: float) -> None:
        path = self.root / "dev/kmsg"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as log:
            log.write(f"4,100,{int((500000 - ago_s) * 1e6)},-;{text}\n SUBSYSTEM=pci\n")

    def pci(self) -> None:
        for index in range(8):
            self.device(f"0000:{16 + index:02x}:00.0", "0x030200")
            self.write(f"sys/bus/pci/devices/0000:{16 + index:02x}:00.0/iommu_group/type", "identity")
            self.write(f"sys/bus/pci/devices/0000:{16 + index:02x}:00.0/numa_node", index // 4)
        for node in range(2):
            self.write(
                f"sys/devices/system/node/node{node}/cpulist",
                f"{48 * node}-{48 * node + 47},{96 + 48 * node}-{143 + 48 * node}",
            )
        for index in range(4):
            self.device(f"0000:0{index}:00.0", "0x068000")
        self.device("0000:00:01.0", "0x060400", vendor="0x8086")
        (self.root / "sys/bus/pci/devices/0000:00:01.0/config").write_bytes(bytes(64))

    def device(self, address: str, kind: str, vendor: str = "0x10de") -> None:
        self.write(f"sys/bus/pci/devices/{address}/vendor", vendor)
        self.write(f"sys/bus/pci/devices/{address}/class", kind)

    def network(self) -> None:
        for index, name in enumerate(("lo", "eth0", "docker0")):
            self.interface(name, index + 1, real=name == "eth0")

    def interface(self, name: str, index: int, real: bool = True, speed: int = 25000, mtu: int = 9000) -> Sound:
        place = f"sys/class/net/{name}"
        self.write(f"{place}/operstate", "up" if real else "unknown")
        self.write(f"{place}/ifindex", index)
        self.write(f"{place}/mtu", mtu)
        self.write(f"{place}/speed", speed if real else -1)
        if real:
            self.write(f"{place}/device/vendor", "0x15b3")
        return self

    def rdma(self) -> None:
        for index in range(8):
            self.port(f"mlx5_{index}")
        self.port("mlx5_8", state="1: DOWN", kind="MT4125")

    def port(self, device: str, state: str = "4: ACTIVE", kind: str = "MT4129", layer: str = "InfiniBand") -> Sound:
        place = f"sys/class/infiniband/{device}"
        up = state.endswith("ACTIVE")
        self.write(f"{place}/hca_type", kind)
        self.write(f"{place}/fw_ver", "28.39.1002")
        self.write(f"{place}/ports/1/state", state)
        self.write(f"{place}/ports/1/phys_state", "5: LinkUp" if up else "3: Disabled")
        self.write(f"{place}/ports/1/link_layer", layer)
        self.write(f"{place}/ports/1/rate", "400 Gb/sec (4X NDR)" if up else "10 Gb/sec (4X SDR)")
        return self

    def roce(self, device: str, gids: dict[int, tuple[str, str]]) -> Sound:
        """An Ethernet port with these GIDs and their types."""
        self.port(device, layer="Ethernet")
        for index, (gid, kind) in gids.items():
            self.write(f"sys/class/infiniband/{device}/ports/1/gids/{index}", gid)
            self.write(f"sys/class/infiniband/{device}/ports/1/gid_attrs/types/{index}", kind)
        return self

    def change(self, **changes: Any) -> Sound:
        self.scene = replace(self.scene, **changes)
        return self

    def cards(self, change: Callable[[wire.Gpu], wire.Gpu]) -> Sound:
        self.change(gpus={uuid: change(one) for uuid, one in self.scene.gpus.items()})
        return self

    def spoil(self, index: int, **changes: Any) -> Sound:
        """One card's figures."""
        self.cards(lambda one: replace(one, **changes) if one.index == index else one)
        return self

    def checks(self, *families: str) -> list[wire.Check]:
        return Checker().run(self.scene, families or BOUNDED)
