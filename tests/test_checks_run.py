"""Checks as they are run: beside each other, bounded, leaving nothing; and asked for over the wire."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent import wire
from agent.checks import disk, driver, kernel
from agent.checks.check import Probe, Told, good, probe
from agent.checks.checker import FAMILIES, Checker
from agent.checks.disk import Speed
from agent.checks.network import Device, chosen
from agent.checks.scene import Scene
from agent.codec import unpack
from agent.refusal import Refusal
from tests.fakes.node import Console, Node, until, variables
from tests.fakes.nvml import Card, Driver, Simulation, card, simulation
from tests.fakes.sound import Sound

DISK = ("space", "write", "read", "random-read", "fsync")


@pytest.fixture
def sound(tmp_path: Path) -> Sound:
    return Sound(tmp_path / "machine")


def test_one_that_hangs_is_unknown_and_no_second_is_sent_after_it(sound: Sound) -> None:
    release, begun = threading.Event(), list[int]()

    def hang(_scene: Scene) -> Told:
        begun.append(1)
        release.wait(60)
        return good("came back")

    stuck, quick = probe("stuck", hang, deadline_s=0.2), probe("quick", lambda _scene: good("fine"))
    checker = Checker({"some": (stuck, quick)})
    for _time in range(2):
        found = checker.run(sound.scene)
        assert [(one.name, one.health) for one in found] == [("stuck", "unknown"), ("quick", "good")]
        assert found[0].reason == "did not answer within 0 s" and found[0].action
    assert begun == [1]
    thread = checker.hung[stuck].thread
    assert thread is not None
    release.set()
    thread.join(30)
    assert [one.health for one in checker.run(sound.scene)] == ["good", "good"]
    assert begun == [1, 1]


def test_one_that_cannot_read_or_is_wrong_says_so_and_stops_no_other(
    sound: Sound, caplog: pytest.LogCaptureFixture
) -> None:
    def unreadable(_scene: Scene) -> Told:
        raise PermissionError(13, "Permission denied")

    def mistaken(_scene: Scene) -> Told:
        raise KeyError("MemTotal")

    probes = (probe("a", unreadable), probe("b", mistaken), probe("c", lambda _scene: good("fine")))
    found = Checker({"some": probes}).run(sound.scene)
    assert [one.health for one in found] == ["unknown", "unknown", "good"]
    assert found[0].reason == "cannot be found out: Permission denied"
    assert found[1].reason == "the check itself failed: KeyError: 'MemTotal'"
    assert "check some/b" in caplog.text


def test_families_by_name(sound: Sound) -> None:
    assert {one.family for one in Checker().run(sound.scene, ("limits", "clock"))} == {"limits", "clock"}
    with pytest.raises(Refusal, match=r"no checks called dsk.*There are driver, gpus"):
        Checker().run(sound.scene, ("dsk",))


def test_names_are_said_once() -> None:
    names = [f"{family}/{name}" for family, probes in FAMILIES.items() for one in probes for name in one.names]
    assert len(names) == len(set(names))
    assert all(isinstance(one, Probe) and one.deadline_s <= 25 for probes in FAMILIES.values() for one in probes)


def test_the_disk_is_measured_and_nothing_is_left(sound: Sound) -> None:
    found = {one.name: one for one in sound.checks("disk")}
    assert tuple(found) == DISK
    assert all(one.health != "unknown" and one.evidence for one in found.values())
    assert "MB/s" in found["write"].evidence and found["fsync"].evidence.startswith("99 % within")
    assert list(sound.scene.folder.iterdir()) == []


def test_a_measurement_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    code = f"from agent.checks import disk\nwhile True: disk.measured({str(tmp_path)!r}, disk.MOST_BYTES)"
    child = subprocess.Popen([sys.executable, "-c", code])
    try:
        until(lambda: any(str(tmp_path) in target for target in open_files(child.pid)))
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert list(tmp_path.iterdir()) == []


def open_files(pid: int) -> list[str]:
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.append(str(entry.readlink()))
        except OSError:
            continue
    return found


def test_the_disk_is_not_measured_where_it_would_disturb(sound: Sound, monkeypatch: pytest.MonkeyPatch) -> None:
    sound.change(live_runs=("lora-1",))
    found = sound.checks("limits", "disk")
    assert {one.health for one in found if one.name in DISK[1:]} == {"unknown"}
    assert [one.evidence for one in found if one.name == "write"] == ["lora-1"]
    sound.change(live_runs=())
    monkeypatch.setattr(disk, "LEAST_BYTES", 1 << 60)
    assert {one.reason for one in sound.checks("disk") if one.name == "write"} == {
        "not measured: too little room is left"
    }


def test_what_a_disk_can_do_is_judged() -> None:
    quick = Speed(2e9, 3e9, 90_000, 0.002, True)
    assert {told.health for told in disk.judged(quick).values()} == {"good"}
    slow = disk.judged(replace(quick, write_bytes_s=100e6, read_bytes_s=20e6, random_per_s=150, fsync_s=1.5))
    assert {name: told.health for name, told in slow.items()} == {
        "write": "watch",
        "read": "fault",
        "random-read": "watch",
        "fsync": "fault",
    }
    assert "may be memory" in disk.judged(replace(quick, direct=False))["read"].evidence


@pytest.mark.parametrize(("free", "health"), [(30, "good"), (5, "watch"), (1, "fault")])
def test_room_on_the_disk(sound: Sound, free: int, health: str) -> None:
    disks = (wire.Disk("/", 100 << 30, 90 << 30), wire.Disk("/data", 100 << 30, free << 30))
    sound.change(host=replace(sound.scene.host, disks=disks), live_runs=("lora-1",))
    told = sound.checks("limits", "disk")
    assert [one.health for one in told if one.name == "space"] == [health]


def device(name: str, address: str = "10.0.0.1") -> Device:
    return Device(name, 1, address, True, 10_000, 1500)


@pytest.mark.parametrize(
    ("names", "wanted", "found"),
    [
        (("lo", "docker0", "eth0", "ens5"), "", ["eth0", "ens5"]),
        (("lo", "docker0", "eth0", "ib0", "ib1"), "", ["ib0", "ib1"]),
        (("lo", "docker0"), "", ["docker0"]),
        (("lo",), "", ["lo"]),
        (("lo", "eth0", "eth1"), "eth", ["eth0", "eth1"]),
        (("lo", "eth0", "eth01"), "=eth0", ["eth0"]),
        (("lo", "eth0", "ens5"), "^eth,lo", ["ens5"]),
        (("eth0", "ens5"), "bond", []),
    ],
)
def test_interfaces_are_chosen_as_nccl_does(names: tuple[str, ...], wanted: str, found: list[str]) -> None:
    devices = [*map(device, names), device("eth9", "")]
    assert [one.name for one in chosen(devices, wanted)] == found


@pytest.mark.parametrize(
    ("addresses", "speeds", "health", "words"),
    [
        ({"eth0": "8.8.4.4"}, {}, "watch", "a public address"),
        ({"eth0": "169.254.3.4"}, {}, "watch", "no router passes on"),
        ({"lo": "127.0.0.1"}, {}, "watch", "no interface but the loopback"),
        ({"eth0": "10.0.0.1", "ens9": "10.1.0.1"}, {"ens9": 100_000}, "watch", "another interface is faster"),
        ({"eth0": "10.0.0.1", "ens9": "10.1.0.1"}, {"ens9": 50_000}, "good", "private address"),
    ],
)
def test_what_nccl_would_pick_is_judged(
    sound: Sound, addresses: dict[str, str], speeds: dict[str, int], health: str, words: str
) -> None:
    for number, (name, speed) in enumerate(speeds.items()):
        sound.interface(name, 20 + number, speed=speed)
    (sound.root / "sys/class/infiniband").rename(sound.root / "gone")
    sound.change(addresses=lambda: addresses)
    told = next(one for one in sound.checks("network") if one.name == "interface")
    assert (told.health, words in told.reason) == (health, True), told


def test_a_variable_that_names_nothing_is_a_fault(sound: Sound) -> None:
    sound.change(variables={"NCCL_SOCKET_IFNAME": "bond0"})
    told = next(one for one in sound.checks("network") if one.name == "interface")
    assert told.health == "fault" and "NCCL_SOCKET_IFNAME=bond0; there are lo 127.0.0.1" in told.evidence


@pytest.mark.parametrize(
    ("built", "serves", "health"), [("12.4", "12.4", "good"), ("11.8", "12.4", "good"), ("12.8", "12.4", "watch"),
                                    ("13.0", "12.4", "fault"), ("", "12.4", "fault")],
)  # fmt: skip
def test_torch_against_the_driver(sound: Sound, built: str, serves: str, health: str) -> None:
    """An interpreter as far as it is asked: a program that answers what its torch was built for."""
    python = sound.root / "python"
    cuda = f'"{built}"' if built else "null"
    python.write_text(f'#!/bin/sh\necho \'{{"version": [3, 12], "missing": [], "cuda": {cuda}}}\'\n')
    python.chmod(stat.S_IRWXU)
    sound.change(python=str(python), host=replace(sound.scene.host, cuda_version=serves))
    told = {one.name: one for one in sound.checks("driver")}
    assert told["torch"].health == health, told["torch"]
    sound.change(python=str(sound.root / "absent"))
    assert {one.name: one.health for one in sound.checks("driver")}["torch"] == "unknown"
    sound.change(python="")
    assert "torch" not in {one.name for one in sound.checks("driver")}


def test_a_log_that_is_not_to_be_read_says_what_root_would_add(sound: Sound) -> None:
    (sound.root / "dev/kmsg").unlink()
    told = next(one for one in sound.checks("kernel") if one.name == "log")
    assert told.health == "unknown" and "root" in told.action and "dev/kmsg" in told.evidence


def test_the_acs_register_is_found_or_not_there() -> None:
    assert kernel.acs_control(bytes(64)) is None and kernel.acs_control(bytes(4096)) is None
    loop = bytearray(4096)
    loop[0x100:0x104] = (0x100 << 20 | 1 << 16 | 0x0001).to_bytes(4, "little")
    assert kernel.acs_control(bytes(loop)) is None, "a list that leads back to itself ends"


def test_versions_are_compared_as_numbers() -> None:
    assert driver.judged((12, 10), (12, 9), "").health == "watch"


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Simulation:
    made = simulation(tmp_path / "nvml", Driver(tuple(h100(n) for n in range(8)), version="550.54.15"))
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


def h100(number: int, **changes: object) -> Card:
    figures: dict[str, object] = {
        "utilisation_percent": 97,
        "rows": (0, 0, 0, 0),
        "pcie": (5, 5, 16, 16, 2),
        "nvlink": (18, 0, 0),
        "persistence": 1,
        "vbios": "96.00.74.00.1C",
        "serial": f"165252300{number}",
        "mig": (),
    }
    return card(number, **{**figures, **changes})


@pytest.fixture
def node(nvml: Simulation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    assert nvml.state.exists()
    for name, value in variables(tmp_path).items():
        monkeypatch.setenv(name, value)
    made = Node(tmp_path)
    yield made
    made.close()


def asked(console: Console, *families: str) -> dict[str, wire.Check]:
    reply = console.ask(wire.RunChecks(families, console_unix=time.time()))
    assert reply.ok, reply
    found = [unpack(wire.Check, one) for one in reply.result["checks"]]
    return {f"{one.family}/{one.name}": one for one in found}


def test_an_agent_checks_real_nvml_and_its_own_leftovers(node: Node, nvml: Simulation) -> None:
    folder = node.start("short")
    console = node.console()
    until(lambda: console.run_phase(folder.name) == "ended")
    cards = ("driver", "gpus", "pcie", "nvlink", "clock", "leftovers")
    found = asked(console, *cards)
    # the machine below is this one: it has no PCI bus with eight cards on it
    bad = {name: one for name, one in found.items() if one.health in ("watch", "fault")}
    assert bad == {}
    assert found["gpus/models"].evidence == "8 × SIMULATED H100 80GB"
    left = subprocess.Popen(["sleep", "600"], env={**os.environ, "TUNEDECK_RUN": folder.name})
    broken = [h100(n, nvlink=(18, 0b110, 0)) if n == 6 else h100(n) for n in range(8)]
    Driver(tuple(broken), version="550.54.15").write(nvml.state)
    try:
        until(lambda: (one := console.state().gpus.get(card(6).uuid)) is not None and one.nvlinks_down == 2)
        found = asked(console, *cards)
    finally:
        left.kill()
        left.wait()
    bad = {name: one for name, one in found.items() if one.health in ("watch", "fault")}
    assert set(bad) == {"nvlink/links", "leftovers/orphans"}
    assert bad["leftovers/orphans"].evidence == f"pid {left.pid} of {folder.name}"
    assert bad["nvlink/links"].evidence == "GPU 6: 16 of 18 up; 18 on the others"


def test_a_strange_family_is_refused_and_a_read_only_console_may_check(node: Node) -> None:
    console = node.console("--read-only")
    reply = console.ask(wire.RunChecks(("gpu",)))
    assert not reply.ok and "no checks called gpu" in reply.error and "driver, gpus" in reply.hint
    assert {one.family for one in asked(console, "limits").values()} == {"limits"}
