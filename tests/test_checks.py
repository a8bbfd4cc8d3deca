"""A sound machine raises nothing; each fault is named, and only it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agent import wire
from agent.checks.checker import FAMILIES
from agent.checks.scene import Rank
from jobs.identity import ProcessIdentity
from tests.fakes.sound import BOUNDED, GIB, LIMITS, NOW, Sound

Spoil = Callable[[Sound], object]
V2, V2_LOCAL = "0000:0000:0000:0000:0000:ffff:0a01:0203", "fe80:0000:0000:0000:0202:c9ff:fe00:0001"
RAILS = [f"mlx5_{index}" for index in range(8)]


@pytest.fixture
def sound(tmp_path: Path) -> Sound:
    return Sound(tmp_path / "machine")


def raised(checks: list[wire.Check]) -> dict[str, wire.Check]:
    return {f"{one.family}/{one.name}": one for one in checks if one.health in ("watch", "fault")}


def test_a_sound_machine_raises_nothing(sound: Sound) -> None:
    found = sound.checks()
    assert raised(found) == {}
    assert {one.family for one in found} == set(BOUNDED)
    unknown = {f"{one.family}/{one.name}": one for one in found if one.health == "unknown"}
    assert set(unknown) == {"kernel/acs"} and "root" in unknown["kernel/acs"].reason
    assert all(one.reason for one in found)
    assert raised(sound.checks()) == {}, "the second time the cards are those seen before"


def test_figures_are_told_with_their_units(sound: Sound) -> None:
    told = {f"{one.family}/{one.name}": one.evidence for one in sound.checks()}
    assert told["memory/ram"] == "2048 GiB RAM, 637 GiB on 8 GPUs"
    assert told["memory/processors"] == "191 processors for 8 GPUs"
    assert told["memory/shm"] == "/dev/shm holds 1024.00 GiB for 8 GPUs"
    assert told["pcie/link"] == "gen 5 ×16 of gen 5 ×16"
    assert told["network/interface"] == "would be picked: eth0 10.0.0.11, 25 Gb/s, MTU 9000"
    assert told["clock/offset"] == "0.2 s ahead of the console, the order's way here included"
    assert "mlx5_8/1 DOWN (Disabled)" not in told["rdma/ports"] and "mlx5_8/1" in told["rdma/ports"]


def unreduced(one: wire.Gpu) -> wire.Gpu:
    return replace(one, utilisation_percent=0.0, pcie_gen=1)


QUIET: dict[str, Spoil] = {
    "links that rest at generation 1": lambda s: s.cards(unreduced),
    "links that are off on all cards alike": lambda s: s.cards(lambda one: replace(one, nvlinks_down=2)),
    "cards without NVLink": lambda s: s.cards(lambda one: replace(one, nvlinks=0, nvlinks_down=None)),
    "cards that tell nothing": lambda s: s.cards(
        lambda one: wire.Gpu(one.uuid, one.index, one.name, one.pci_bus_id, one.memory_total_bytes)
    ),
    "locked memory that nobody needs": lambda s: (
        s.write("proc/self/limits", LIMITS.replace("unlimited", "65536    ")),
        [s.write(f"sys/class/infiniband/mlx5_{n}/ports/1/state", "1: DOWN") for n in range(8)],
    ),
    "a container that sees the cards of others": lambda s: (
        s.write(".dockerenv", ""),
        s.change(gpus={"GPU-0000": s.scene.gpus["GPU-0000"]}),
    ),
    "a batch job with one card": lambda s: (
        s.write("proc/self/cgroup", "0::/system.slice/slurmstepd.scope/job_7/step_0"),
        s.change(gpus={"GPU-0003": s.scene.gpus["GPU-0003"]}),
    ),
    "persistence mode off everywhere": lambda s: s.cards(lambda one: replace(one, persistence=False)),
    "an address shared by carriers": lambda s: s.change(addresses=lambda: {"eth0": "100.64.3.4"}),
    "two interfaces of two networks": lambda s: (
        s.interface("ens1", 11, speed=100_000, mtu=1500),
        s.interface("ens2", 12, speed=100_000, mtu=9000),
    ),
    "a slower network for storage": lambda s: [
        s.port(f"mlx5_{n}").write(f"sys/class/infiniband/mlx5_{n}/ports/1/rate", "200 Gb/sec (2X NDR)") for n in (9, 10)
    ],
    "an Xid of a program": lambda s: s.spoil(3, xid=31, xids=1, xids_hardware=0),
    "a cgroup with room": lambda s: s.write("sys/fs/cgroup/user.slice/session-1.scope/memory.max", 1024 * GIB),
    "RoCE on all rails": lambda s: [
        s.roce(name, {0: (V2_LOCAL, "IB/RoCE v1"), 1: (V2_LOCAL, "RoCE v2"), 3: (V2, "RoCE v2")}) for name in RAILS
    ],
    "a variable that names the interface": lambda s: s.change(variables={"NCCL_SOCKET_IFNAME": "eth"}),
}


@pytest.mark.parametrize("name", QUIET)
def test_what_is_by_design_raises_nothing(sound: Sound, name: str) -> None:
    QUIET[name](sound)
    assert raised(sound.checks()) == {}


FAULTS: dict[str, tuple[str, str, Spoil]] = {
    "gpus/answering": ("fault", "GPU 3 does not answer", lambda s: s.spoil(3, lost="GPU is lost")),
    "gpus/count": (
        "fault",
        "NVML counts 7 cards, the PCI bus 8",
        lambda s: s.change(gpus={u: one for u, one in s.scene.gpus.items() if one.index != 5}),
    ),
    "gpus/models": (
        "fault",
        "cards differ: GPU 2",
        lambda s: s.spoil(2, name="NVIDIA H200", memory_total_bytes=143771 << 20),
    ),
    "gpus/memory": ("fault", "GPU 6 does not have the memory", lambda s: s.spoil(6, memory_total_bytes=40 * GIB)),
    "gpus/power-limits": ("watch", "GPU 1 may take less power", lambda s: s.spoil(1, power_limit_w=450.0)),
    "gpus/vbios": ("watch", "another VBIOS on GPU 7", lambda s: s.spoil(7, vbios="96.00.30.00.01")),
    "gpus/ecc": ("watch", "many corrected memory errors on GPU 4", lambda s: s.spoil(4, ecc_corrected=250_000)),
    "gpus/remapping": ("fault", "GPU 0 has no spare memory left", lambda s: s.spoil(0, remap_failed=1)),
    "gpus/xid": ("fault", "GPU 5 reported a fault", lambda s: s.spoil(5, xid=43, xids=2, xids_hardware=1)),
    "gpus/persistence": ("watch", "is off on GPU 0, 1 only", lambda s: [s.spoil(n, persistence=False) for n in (0, 1)]),
    "gpus/mig": ("watch", "MIG differs: GPU 2", lambda s: s.spoil(2, mig_mode=True)),
    "gpus/throttle": ("fault", "GPU 3 is slowed down", lambda s: s.spoil(3, throttle=("thermal (hardware)",))),
    "pcie/link": ("fault", "GPU 3 is on a reduced PCIe link", lambda s: s.spoil(3, pcie_width=8)),
    "pcie/replays": ("watch", "GPU 2 had to send again", lambda s: s.spoil(2, pcie_replays=90_000)),
    "nvlink/links": ("fault", "NVLinks are down on GPU 6", lambda s: s.spoil(6, nvlinks_down=2)),
    "nvlink/errors": ("watch", "GPU 1 has far more NVLink errors", lambda s: s.spoil(1, nvlink_errors=70_000)),
    "nvlink/fabric-manager": ("fault", "does not run", lambda s: s.write("proc/4242/comm", "bash")),
    "driver/nvml": ("fault", "a call is stuck in the driver", lambda s: s.change(gpu_age_s=90.0)),
    "driver/versions": (
        "fault",
        "kernel module differ",
        lambda s: s.write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.1.2 "),
    ),
    "limits/memlock": (
        "fault",
        "RDMA cannot register",
        lambda s: s.write("proc/self/limits", LIMITS.replace("unlimited", "8388608  ")),
    ),
    "limits/open-files": (
        "fault",
        "too few open files",
        lambda s: s.write("proc/self/limits", LIMITS.replace("1024 ", "256  ")),
    ),
    "limits/processes": (
        "fault",
        "too few processes",
        lambda s: s.write("proc/self/limits", LIMITS.replace("6190000", "1024   ")),
    ),
    "limits/cgroup-processes": (
        "fault",
        "the cgroup allows too few",
        lambda s: s.write("sys/fs/cgroup/user.slice/pids.max", 512),
    ),
    "limits/cgroup-memory": ("watch", "nearly used up", lambda s: cgroup(s, 1024 * GIB, 1020 * GIB)),
    "memory/shm": (
        "fault",
        "as small as Docker makes it",
        lambda s: s.write("proc/self/mounts", "shm /dev/shm tmpfs rw,size=65536k 0 0"),
    ),
    "memory/ram": ("watch", "less RAM than GPU memory", lambda s: meminfo(s, 512, 0, 0)),
    "memory/processors": (
        "watch",
        "few processors",
        lambda s: s.write("sys/fs/cgroup/user.slice/cpu.max", "800000 100000"),
    ),
    "memory/numa": (
        "watch",
        "no processor near GPU 4, 5, 6, 7",
        lambda s: s.write("proc/self/status", "Cpus_allowed_list:\t0-47"),
    ),
    "memory/swap": ("watch", "was swapped out", lambda s: meminfo(s, 2048, 64, 20)),
    "network/interface": ("fault", "NCCL would pick virbr0", lambda s: virtual_first(s)),
    "network/hostname": ("watch", "means the loopback", lambda s: s.change(resolve=lambda _name: ("127.0.1.1",))),
    "network/mtu": ("watch", "different MTUs: ens2", lambda s: rails(s)),
    "rdma/ports": (
        "fault",
        "mlx5_5/1 is down while most of its kind",
        lambda s: s.port("mlx5_5", state="1: DOWN"),
    ),
    "rdma/rate": (
        "fault",
        "mlx5_3/1 is slower",
        lambda s: s.write("sys/class/infiniband/mlx5_3/ports/1/rate", "200 Gb/sec (2X NDR)"),
    ),
    "rdma/roce": ("fault", "no RoCE v2 GID on mlx5_2/1", lambda s: s.roce("mlx5_2", {0: (V2, "IB/RoCE v1")})),
    "rdma/firmware": (
        "watch",
        "another firmware on mlx5_0/1",
        lambda s: s.write("sys/class/infiniband/mlx5_0/fw_ver", "28.35.0001"),
    ),
    "rdma/gpudirect": (
        "fault",
        "GPUDirect RDMA is off",
        lambda s: (s.root / "sys/module/nvidia_peermem").rename(s.root / "sys/module/other"),
    ),
    "clock/offset": ("watch", "differs from the console's", lambda s: s.change(console_unix=NOW + 9)),
    "kernel/log": (
        "fault",
        "a GPU or switch fault",
        lambda s: s.kmsg("NVRM: Xid (PCI:0000:13:00): 79, pid=1, gone", 9),
    ),
    "kernel/iommu": (
        "watch",
        "translates the cards' addresses",
        lambda s: s.write("sys/bus/pci/devices/0000:12:00.0/iommu_group/type", "DMA-FQ"),
    ),
    "kernel/acs": ("watch", "through the root complex", lambda s: redirecting_bridge(s)),
    "leftovers/gpu-memory": ("watch", "memory of GPU 2 is in use", lambda s: s.spoil(2, processes=())),
    "leftovers/orphans": ("fault", "still alive", lambda s: s.change(ended_ranks=lambda: [Rank("lora-1", here())])),
}


def here() -> ProcessIdentity:
    found = ProcessIdentity.of(os.getpid())
    assert found is not None
    return found


def meminfo(sound: Sound, ram: int, swap: int, swapped: int) -> None:
    kib = GIB // 1024
    text = f"MemTotal: {ram * kib} kB\nSwapTotal: {swap * kib} kB\nSwapFree: {(swap - swapped) * kib} kB"
    sound.write("proc/meminfo", text)


def cgroup(sound: Sound, most: int, used: int) -> None:
    for name, value in (("memory.max", most), ("memory.current", used), ("memory.stat", "inactive_file 4096")):
        sound.write(f"sys/fs/cgroup/user.slice/{name}", value)


def virtual_first(sound: Sound) -> None:
    sound.interface("virbr0", 1, real=False)
    sound.change(addresses=lambda: {"virbr0": "192.168.122.1", "eth0": "10.0.0.11"})


def rails(sound: Sound) -> None:
    for index in range(4):
        sound.interface(f"ens{index}", 10 + index, speed=200_000, mtu=1500 if index == 2 else 9000)


def redirecting_bridge(sound: Sound) -> None:
    """AER at 0x100, then ACS at 0x148 with source validation, request and completion redirect and forwarding on."""
    config = bytearray(4096)
    config[0x100:0x104] = (0x148 << 20 | 2 << 16 | 0x0001).to_bytes(4, "little")
    config[0x148:0x14C] = (1 << 16 | 0x000D).to_bytes(4, "little")
    config[0x14E:0x150] = (0x1D).to_bytes(2, "little")
    (sound.root / "sys/bus/pci/devices/0000:00:01.0/config").write_bytes(config)


def test_a_left_process_is_named_once_and_a_dead_one_not_at_all(sound: Sound) -> None:
    gone = ProcessIdentity("another boot", here().pid_namespace, 1, 1)
    sound.change(ended_ranks=lambda: [Rank("lora-1", here()), Rank("lora-1", here()), Rank("lora-2", gone)])
    told = raised(sound.checks("leftovers"))["leftovers/orphans"]
    assert told.evidence == f"pid {os.getpid()} of lora-1" and f"kill {os.getpid()}." in told.action


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_named_and_only_it(sound: Sound, name: str) -> None:
    health, words, spoil = FAULTS[name]
    spoil(sound)
    found = raised(sound.checks())
    assert set(found) == {name}, found
    assert (found[name].health, words in found[name].reason) == (health, True), found[name]
    assert found[name].action, "what is raised says what to do"


def test_every_check_that_reads_has_a_fault_that_it_names() -> None:
    names = {f"{family}/{name}" for family in BOUNDED for probe in FAMILIES[family] for name in probe.names}
    assert names - set(FAULTS) == {"driver/torch", "gpus/identity"}, "these two have tests of their own"


@pytest.mark.parametrize(
    ("gpu_note", "health", "words"),
    [
        ("no NVIDIA driver on this node", "unknown", "no NVIDIA GPU"),
        ("Driver/library version mismatch: reboot", "fault", "version mismatch"),
        ("", "unknown", "not been read yet"),
    ],
)
def test_a_machine_without_cards_says_what_is_so(tmp_path: Path, gpu_note: str, health: str, words: str) -> None:
    sound = Sound(tmp_path / "machine")
    (sound.root / "sys/bus/pci").rename(sound.root / "gone")
    sound.change(gpus={}, gpu_note=gpu_note, gpu_age_s=None)
    found = {f"{one.family}/{one.name}": one for one in sound.checks()}
    assert (found["driver/nvml"].health, words in found["driver/nvml"].reason) == (health, True)
    assert not {name for name in found if name.startswith(("gpus/", "pcie/", "nvlink/"))}
    assert set(raised(list(found.values()))) <= {"driver/nvml"}


def test_cards_on_the_bus_without_a_driver(sound: Sound) -> None:
    sound.change(gpus={}, gpu_note="no NVIDIA driver on this node", gpu_age_s=None)
    found = raised(sound.checks("driver"))
    assert "8 NVIDIA GPUs are on the PCI bus, but there is no driver" in found["driver/nvml"].reason


def test_a_swapped_card_is_told_for_a_month(sound: Sound) -> None:
    first = sound.checks("gpus")
    assert raised(first) == {}
    later = NOW + 20 * 86400
    sound.change(heard_unix=later, console_unix=later)
    sound.spoil(3, uuid="GPU-other", serial="1652999")
    told = raised(sound.checks("gpus"))
    assert set(told) == {"gpus/identity"}
    assert (
        told["gpus/identity"].reason == f"GPU 3 is not the card it was on {time.strftime('%d %B %Y', time.gmtime(NOW))}"
    )
    assert "serial 1652523000003, is NVIDIA H100 80GB HBM3 GPU-other serial 1652999" in told["gpus/identity"].evidence
    sound.change(heard_unix=later + 29 * 86400, console_unix=later + 29 * 86400)
    assert set(raised(sound.checks("gpus"))) == {"gpus/identity"}
    sound.change(heard_unix=later + 31 * 86400, console_unix=later + 31 * 86400)
    assert raised(sound.checks("gpus")) == {}
    (sound.scene.folder / "cards.json").write_text("{half")
    assert raised(sound.checks("gpus")) == {}, "a damaged memory is begun anew"
