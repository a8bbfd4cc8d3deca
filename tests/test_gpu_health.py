"""What a card tells beyond the everyday figures: health, links, instances, activity, Xids; through the real binding."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent import codec, reexec
from agent.gpu import SLOW_EVERY, Sample
from agent.holder import container_of
from agent.wire import Gpu, MigInstance
from agent.xids import MOST, Xid
from tests.fakes.nvml import Card, Driver, Simulation, card, simulation


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulation(tmp_path_factory.mktemp("nvml")).library


@pytest.fixture
def nvml(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Simulation:
    made = Simulation.at(library, tmp_path / "nvml.state")
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


def h100(number: int, **more: object) -> Card:
    """A healthy one with all that its driver tells."""
    figures: dict[str, object] = {
        "reserved_bytes": 600 << 20,
        "bar1": (128 << 30, 2 << 20),
        "codec_percent": (0, 3),
        "sm_active_percent": 71,
        "slowdown_c": 89,
        "memory_c": 66,
        "rows": (0, 0, 0, 0),
        "pcie": (5, 5, 16, 16, 0),
        "nvlink": (18, 0, 0),
        "persistence": 1,
        "serial": f"165000000000{number}",
        "vbios": "96.00.74.00.01",
        "mig": (),
    }
    return card(number, **(figures | more))


class Reader:
    """The probe child: the loader looks for the library where the environment said when the process began."""

    def __init__(self, state: Path) -> None:
        self.state = state
        command = reexec.command("probe", "--follow")
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def show(self, *cards: Card) -> None:
        Driver(cards).write(self.state)

    def sample(self) -> Sample:
        assert self.child.stdin is not None and self.child.stdout is not None
        self.child.stdin.write(b"\n")
        self.child.stdin.flush()
        return codec.unpack(Sample, codec.parse(self.child.stdout.readline()))

    def gpus(self, *cards: Card, times: int = 1) -> list[Gpu]:
        self.show(*cards)
        return list([self.sample() for _ in range(times)][-1].gpus.values())


@pytest.fixture
def reader(nvml: Simulation) -> Iterator[Reader]:
    made = Reader(nvml.state)
    yield made
    made.child.communicate(timeout=60)


def test_all_that_a_healthy_card_tells(reader: Reader) -> None:
    (found,) = reader.gpus(h100(0, memory_used_bytes=10 << 30), times=2)
    assert (found.memory_used_bytes, found.memory_reserved_bytes) == (10 << 30, 600 << 20)
    assert found.memory_free_bytes == (70 << 30) - (600 << 20), "what the driver holds back cannot be had"
    assert (found.bar1_total_bytes, found.bar1_used_bytes) == (128 << 30, 2 << 20)
    assert (found.encoder_percent, found.decoder_percent, found.sm_active_percent) == (0.0, 3.0, 71.0)
    assert (found.temperature_memory_c, found.temperature_slowdown_c) == (66.0, 89.0)
    assert (found.sm_clock_max_mhz, found.memory_clock_mhz) == (1980.0, 2619.0)
    assert (found.remapped_rows, found.remap_pending, found.remap_failed, found.ecc_corrected) == (0, 0, 0, 0)
    assert (found.pcie_gen, found.pcie_gen_max, found.pcie_width, found.pcie_width_max) == (5, 5, 16, 16)
    assert (found.nvlinks, found.nvlinks_down, found.nvlink_errors, found.pcie_replays) == (18, 0, 0, 0)
    assert (found.persistence, found.mig_mode, found.mig) == (True, False, ())
    assert (found.serial, found.vbios) == ("1650000000000", "96.00.74.00.01")
    assert found.retired_pages is None, "an H100 remaps rows"


def test_what_a_plain_card_does_not_tell_is_unknown(reader: Reader) -> None:
    (found,) = reader.gpus(card(0), times=3)
    unknown = (
        found.memory_reserved_bytes or None,
        found.bar1_total_bytes,
        found.sm_active_percent,
        found.encoder_percent,
        found.temperature_slowdown_c,
        found.temperature_memory_c,
        found.remapped_rows,
        found.remap_pending,
        found.retired_pages,
        found.pcie_gen,
        found.pcie_replays,
        found.nvlinks_down,
        found.nvlink_errors,
        found.persistence,
        found.mig_mode,
    )
    assert unknown == (None,) * 15 and found.nvlinks == 0 and found.serial == ""


def test_faults_are_told_as_they_are(reader: Reader) -> None:
    worn = h100(
        0, ecc_uncorrected=3, ecc_corrected=41, rows=(2, 1, 1, 0), pcie=(1, 5, 8, 16, 77), nvlink=(18, 0b101, 4)
    )
    old = card(1, pages=(3, 2, 1))
    first, second = reader.gpus(worn, old)
    assert (first.ecc_uncorrected, first.ecc_corrected) == (3, 41)
    assert (first.remapped_rows, first.remap_pending, first.remap_failed) == (1, 1, 0)
    assert (first.pcie_gen, first.pcie_width, first.pcie_replays) == (1, 8, 77)
    assert (first.nvlinks, first.nvlinks_down, first.nvlink_errors) == (18, 2, 16 * 3 * 4)
    assert (second.retired_pages, second.remap_pending, second.remapped_rows) == (5, 1, None)


def test_slow_figures_are_looked_at_again_in_their_turn(reader: Reader) -> None:
    cards = [h100(n) for n in range(3)]
    reader.show(*cards)
    reader.sample()
    reader.show(*(h100(n, nvlink=(18, 1, 0)) for n in range(3)))
    seen = [sum(gpu.nvlinks_down or 0 for gpu in reader.sample().gpus.values()) for _ in range(SLOW_EVERY)]
    assert seen[-1] == 3 and len(set(seen)) == 4, "one card at a time, all within ten samples"


def test_instances_of_a_shared_card(reader: Reader) -> None:
    parts = (("MIG-0001", 10 << 30, 3 << 30, "1g.10gb"), ("MIG-0002", 40 << 30, 0, "3g.40gb"))
    (found,) = reader.gpus(h100(0, mig=parts))
    assert found.mig_mode and found.mig == (
        MigInstance("MIG-0001", "1g.10gb", 10 << 30, 3 << 30),
        MigInstance("MIG-0002", "3g.40gb", 40 << 30, 0),
    )


def test_each_xid_is_told_once_and_none_from_before(reader: Reader) -> None:
    reader.show(h100(0, xids=((1, 31),)), h100(1))
    assert reader.sample().xids == (), "it came before anybody listened"
    reader.show(h100(0, xids=((1, 31), (2, 79))), h100(1, xids=((1, 48),)))
    assert set(reader.sample().xids) == {Xid(card(0).uuid, 79), Xid(card(1).uuid, 48)}
    assert reader.sample().xids == ()


def test_a_storm_of_xids_does_not_keep_the_probe(reader: Reader) -> None:
    reader.show(h100(0))
    reader.sample()
    reader.show(h100(0, xids=tuple((n, 94) for n in range(1, MOST + 10))))
    assert [len(reader.sample().xids) for _ in range(3)] == [MOST, 9, 0]


def test_a_lost_card_does_not_hide_the_xids_of_others(reader: Reader) -> None:
    reader.show(h100(0, lost=15), h100(1))
    reader.sample()
    reader.show(h100(0, lost=15), h100(1, xids=((1, 48),)))
    assert reader.sample().xids == (Xid(card(1).uuid, 48),)


def test_versions(reader: Reader) -> None:
    reader.show(h100(0))
    found = reader.sample()
    assert (found.driver_version, found.cuda_version) == ("550.54.15", "12.4")


@pytest.mark.parametrize(
    ("cgroup", "container"),
    [
        ("0::/user.slice/user-1000.slice/session-3.scope\n", ""),
        (f"0::/system.slice/docker-{'ab12' * 16}.scope\n", "ab12ab12ab12"),
        (f"12:memory:/kubepods/burstable/pod1/{'c0de' * 16}\n0::/\n", "c0dec0dec0de"),
        (f"0::/machine.slice/libpod-{'9' * 64}.scope/container\n", "9" * 12),
    ],
)
def test_container_of_a_process(cgroup: str, container: str) -> None:
    assert container_of(cgroup) == container
