"""What was measured against what links should give, and against this machine's own past."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import configs
from agent import wire
from console.fabric import Baselines, against_links, against_past, deciding, node_key, pair_key
from jobs.fabric import expected
from jobs.fabric.collectives import Row
from jobs.fabric.expected import FAULT, GOOD, WATCH

GIB = 1 << 30


def row(busbw_gb_s: float, ranks: int = 8, size: int = 4 * GIB, collective: str = "all_reduce", wrong: int = 0) -> Row:
    """One that has this bus bandwidth."""
    one = Row(collective, size, ranks, 1.0, 0.0, wrong, 20)
    return Row(collective, size, ranks, one.busbw_gb_s / busbw_gb_s, 0.0, wrong, 20)


def node(card: str, count: int, **more: int) -> wire.NodeState:
    gpus = {f"GPU-{i}": wire.Gpu(f"GPU-{i}", i, card, **more) for i in range(count)}  # type: ignore[arg-type]
    return wire.NodeState(gpus=gpus)


def test_every_figure_has_its_source() -> None:
    table = configs.load("links.yaml")
    parts = [p for key, p in table.items() if isinstance(p, dict) and key != "latency_us"]
    parts += [*table["latency_us"].values(), *table["boxes"]]
    assert [p for p in parts if len(p["source"].split()) < 2] == []


def test_grades_begin_at_90_and_80_percent() -> None:
    assert [expected.grade(p) for p in (120, 90, 89.9, 80, 79.9, 0)] == [GOOD, GOOD, WATCH, WATCH, FAULT, FAULT]


def test_links_give_what_is_published() -> None:
    host = expected.pcie(5, 16)
    assert host is not None and host.gb_s == pytest.approx(55.4, rel=0.01)  # measured, ml-engineering
    rings = expected.nvlink(4, 18)
    assert rings is not None and rings.gb_s == pytest.approx(370, rel=0.05)  # of 450
    assert expected.nic(400e9).gb_s * 8 == pytest.approx(380)  # Gb/s
    assert expected.nic(100e9, rdma=False).gb_s == pytest.approx(11.75)
    assert expected.pcie(9, 16) is None and expected.pcie(4, 0) is None and expected.nvlink(4, 0) is None


def test_the_slowest_rail_governs_and_is_named() -> None:
    rails = {f"mlx5_{i}": 400e9 for i in range(8)}
    whole = expected.between_nodes(rails)
    assert whole is not None and whole.gb_s == pytest.approx(368)
    one_slow = expected.between_nodes({**rails, "mlx5_3": 200e9})
    assert one_slow is not None and one_slow.gb_s == pytest.approx(184) and "mlx5_3" in one_slow.by
    inside = expected.inside_node("NVIDIA H100 PCIe", 8, 0, (5, 16))
    assert expected.between_nodes(rails, inside) == inside
    assert expected.between_nodes({}) is None


@pytest.mark.parametrize(
    ("card", "count", "more", "gb_s", "grade"),
    [
        ("NVIDIA H100 80GB HBM3", 8, {"nvlinks": 18}, 475.0, GOOD),
        ("NVIDIA H100 80GB HBM3", 8, {"nvlinks": 18}, 440.0, FAULT),  # below the published fault line
        ("NVIDIA B200", 8, {"nvlinks": 18}, 700.0, WATCH),
        ("NVIDIA A100-SXM4-80GB", 4, {"nvlinks": 12}, 235.0, GOOD),
        ("NVIDIA L40S", 4, {"nvlinks": 0, "pcie_gen_max": 4, "pcie_width_max": 16}, 10.0, FAULT),
    ],
)
def test_a_node_is_judged_by_its_cards(card: str, count: int, more: dict[str, int], gb_s: float, grade: str) -> None:
    found = against_links([row(gb_s, count)], node(card, count, **more))
    assert found is not None and found.grade == grade, found
    assert f"{found.percent:.0f}%" in found.words


def test_what_is_not_known_is_not_judged() -> None:
    h100 = node("NVIDIA H100 80GB HBM3", 8, nvlinks=18)
    assert against_links([row(470.0, size=1 << 20)], h100) is None  # latency, not bandwidth
    assert against_links([row(470.0, collective="broadcast")], h100) is None
    assert against_links([Row("all_reduce", 4 * GIB, 1, 1000.0, 0.0, 0, 20)], h100) is None
    assert against_links([row(470.0)], wire.NodeState()) is None
    assert against_links([row(470.0, 4)], node("Some Card", 4)) is None
    mixed = {**h100.gpus, "GPU-x": wire.Gpu("GPU-x", 8, "NVIDIA H200")}
    assert against_links([row(470.0)], wire.NodeState(gpus=mixed)) is None


def test_latency_is_judged_by_transport() -> None:
    assert expected.latency("rdma", 2.0)[0] == GOOD and expected.latency("rdma", 40.0)[0] == FAULT
    assert expected.latency("tcp", 40.0)[0] == GOOD and expected.latency("tcp", 150.0)[0] == WATCH


def test_the_row_that_counts_is_a_large_one() -> None:
    rows = [row(9.0, size=1 << 20), row(480.0, size=2 * GIB), row(470.0, size=4 * GIB)]
    assert deciding(rows, "all_reduce") == rows[1]
    assert deciding(rows[:1], "all_reduce") == rows[0] and deciding(rows, "broadcast") is None


def test_today_against_this_machines_own_past(tmp_path: Path) -> None:
    before, key = Baselines.read(tmp_path), node_key("n1", "nccl", row(1.0))
    for day, value in enumerate((470.0, 472.0, 471.0)):
        assert before.compare(key, 300.0) is None  # too little is known
        before.add(key, value, 1e9 + day)
    before.save()
    after = Baselines.read(tmp_path)
    same, less, half = (after.compare(key, value) for value in (468.0, 410.0, 235.0))
    assert same is not None and (same.grade, same.times, same.since_unix) == (GOOD, 3, 1e9)
    assert less is not None and less.grade == WATCH and half is not None and half.grade == FAULT
    assert half.percent == pytest.approx(50, abs=0.5)
    assert (tmp_path / "fabric.json").stat().st_mode & 0o077 == 0


def test_where_figures_always_vary_that_is_no_fault() -> None:
    before, chance = Baselines(Path("unused")), random.Random(3)
    for _ in range(40):
        before.add("k", chance.gauss(1.0, 0.2))
    found = before.compare("k", 0.7)
    assert found is not None and found.grade == GOOD and found.percent < 80
    gone = before.compare("k", 0.1)
    assert gone is not None and gone.grade == FAULT


def test_wrong_values_are_not_remembered(tmp_path: Path) -> None:
    before = Baselines.read(tmp_path)
    for _ in range(3):
        assert against_past([row(100.0)], "n1", "gloo", before) == {}
    assert against_past([row(1000.0, wrong=5)], "n1", "gloo", before) == {}
    assert against_past([row(50.0)], "n1", "gloo", before)["all_reduce"].grade == FAULT
    assert against_past([row(50.0)], "n2", "gloo", before) == {}


def test_a_broken_file_of_the_past_remembers_nothing(tmp_path: Path) -> None:
    for text in ("{", "[]", '{"k": 3}', '{"k": [["x", 1]]}'):
        (tmp_path / "fabric.json").write_text(text)
        assert Baselines.read(tmp_path).figures == {}


def test_a_pair_is_the_same_from_both_ends() -> None:
    assert pair_key("b", "a", "0", "tcp") == pair_key("a", "b", "0", "tcp")
