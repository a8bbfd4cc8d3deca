"""The machine's figures, from files as kernels show them, and from this machine's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent import codec, wire
from agent.host import HostReader, disks
from tests.fakes.machine import FakeMachine
from tests.fakes.node import until


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    return FakeMachine.made(tmp_path / "root")


class Watch:
    """A reader of that machine, and the clock it believes."""

    def __init__(self, machine: FakeMachine) -> None:
        self.now_s = 1000.0
        self.reader = HostReader((), machine.root, lambda: self.now_s)

    def read(self, after_s: float) -> wire.Host:
        self.now_s += after_s
        return self.reader.read()


def test_steal_is_a_share_of_the_time_like_any_other(machine: FakeMachine) -> None:
    host = Watch(machine)
    machine.processors(user=50, idle=30, steal=20)
    told = host.read(1)
    assert (told.cpu_percent, told.cpu_steal_percent) == (70.0, 20.0)
    assert (told.ram_total_bytes, told.ram_used_bytes) == (1_024_000_000, 400_000 * 1024 // 2**24 * 2**24)
    assert host.read(1).cpu_steal_percent is None, "no time passed"


def test_disk_traffic_counts_each_whole_device_once(machine: FakeMachine) -> None:
    machine.drives(dict.fromkeys(("nvme0n1", "nvme0n1p1", "nvme1n1", "dm-0", "loop0", "md127"), (0, 0)))
    host = Watch(machine)
    assert host.read(0.01).disk_read_bytes_s is None
    assert host.read(0.99).disk_read_bytes_s == 0
    machine.drives(
        {"nvme0n1": (8000, 100), "nvme0n1p1": (8000, 100), "nvme1n1": (2000, 0), "dm-0": (8000, 100), "md127": (9, 9)}
    )
    assert host.read(2).disk_read_bytes_s == 0, "told in its own time"
    told = host.read(3)
    assert (told.disk_read_bytes_s, told.disk_write_bytes_s) == (1.0e6, 1.0e4), "512 B a sector, two digits"
    machine.drives({"nvme0n1": (5, 5), "nvme1n1": (12_000, 0)})
    assert host.read(5).disk_read_bytes_s == 1.0e6, "one that began anew has no rate"


def test_without_a_table_of_disks_their_traffic_is_unknown(machine: FakeMachine) -> None:
    told = Watch(machine).read(5)
    assert told.disk_read_bytes_s is None and told.disk_write_bytes_s is None


def test_shared_memory_is_told_where_it_is_one(machine: FakeMachine) -> None:
    told = Watch(machine).read(1)
    status = os.statvfs(machine.root / "dev/shm")
    assert told.shm_total_bytes == status.f_blocks * status.f_frsize
    assert told.shm_used_bytes is not None and 0 <= told.shm_used_bytes <= told.shm_total_bytes
    machine.write("proc/self/mounts", "overlay / overlay rw 0 0\n")
    assert Watch(machine).read(1).shm_total_bytes is None


def test_interfaces_are_the_real_ones_with_what_they_do(machine: FakeMachine) -> None:
    names = ("lo", "eno1", "eno2", "bond0", "ib0", "docker0", "vlan7")
    for name in names:
        machine.interface(name, name in ("eno1", "eno2", "ib0"), speed={"eno1": 25_000, "ib0": None}.get(name, -1))
    machine.interface("eno2", state="down", speed=None)
    machine.network(dict.fromkeys(names, (1000, 100, 7)))
    host = Watch(machine)
    machine.network(dict.fromkeys(names, (1000 + 5_200_000, 155, 9)))
    host.read(1)
    machine.network(dict.fromkeys(names, (1000 + 5_200_000 + 2_000_000, 155, 9)))
    told = host.read(5)
    assert sorted(told.interfaces) == ["eno1", "eno2", "ib0"], "bonds, VLANs and bridges pass on what these carried"
    assert told.interfaces["eno1"] == wire.Interface("eno1", True, 4.0e5, 0.0, 25_000_000_000, 9000, 9)
    assert told.interfaces["eno2"].up is False and told.interfaces["eno2"].speed_bits_s is None
    assert told.interfaces["ib0"].speed_bits_s is None
    assert told.net_rx_bytes_s == 1.2e6, "each of the three once, over the last tick"


def test_in_a_container_no_interface_has_a_device(machine: FakeMachine) -> None:
    machine.interface("eth0", real=False, state="unknown", speed=10_000)
    machine.network({"lo": (9, 9, 0), "eth0": (5, 5, 0)})
    told = Watch(machine).read(1)
    assert told.interfaces == {"eth0": wire.Interface("eth0", None, 0.0, 0.0, None, 9000, 0)}


def test_rates_that_tremble_are_not_news_each_second(machine: FakeMachine) -> None:
    machine.interface("eth0")
    machine.network({"eth0": (0, 0, 0)})
    host = Watch(machine)
    told = []
    for second in range(1, 11):
        machine.network({"eth0": (second * 1000 + 300 * (second % 3), 0, 0)})
        told.append(host.read(1).interfaces["eth0"])
    assert len(set(told)) <= 3


def test_a_card_that_hangs_keeps_only_its_speed_to_itself(machine: FakeMachine) -> None:
    machine.interface("eth0")
    machine.network({"eth0": (0, 0, 0)})
    hanging = machine.root / "sys/class/net/eth0/speed"
    hanging.unlink()
    os.mkfifo(hanging)  # whoever opens it waits until somebody writes
    host = Watch(machine)
    for second in range(1, 31):
        machine.network({"eth0": (second * 1000, 0, 0)})
        one = host.read(1).interfaces["eth0"]
        assert one.up and one.mtu == 9000 and one.speed_bits_s is None
    assert one.rx_bytes_s == 1000.0
    hanging.write_text("400000\n")
    until(lambda: not host.reader.interfaces.speeds.open())
    hanging.unlink()
    machine.interface("eth0", speed=400_000)
    assert host.read(5).interfaces["eth0"].speed_bits_s == 400_000_000_000


def test_the_machine_at_hand_tells_itself() -> None:
    told = HostReader().read()
    assert told.cpu_count and told.ram_total_bytes and told.disks
    assert all(not name.startswith(("lo", "veth")) for name in told.interfaces)


def test_a_mount_point_in_another_encoding_is_one_like_others(tmp_path: Path) -> None:
    (tmp_path / "proc" / "self").mkdir(parents=True)
    lines = b"/dev/sdb1 /mnt/d\xe9p\xf4t ext4 rw 0 0\n/dev/sda1 / ext4 rw 0 0\n"
    (tmp_path / "proc" / "self" / "mounts").write_bytes(lines)
    (tmp_path / os.fsdecode(b"mnt/d\xe9p\xf4t")).mkdir(parents=True)
    found = disks((), tmp_path)
    assert [os.fsencode(disk.mount) for disk in found] == [b"/mnt/d\xe9p\xf4t"], "both are of one device here"
    told = wire.Host(disks=found)
    assert codec.unpack(wire.Host, codec.parse(codec.encode(told))).disks[0].free_bytes == found[0].free_bytes
