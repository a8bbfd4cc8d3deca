"""Collectives' names, sizes and bandwidths by nccl-tests' definitions, and the spec that asks for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.fabric.collectives import COLLECTIVES, HEADER, UNITS, Row, bus_factor, cells, sizes
from jobs.section import SpecError
from jobs.spec import Spec

BENCH = "name: bench-allreduce\nkind: bench\n"


def test_bus_factors_are_those_of_nccl_tests() -> None:
    assert {name: bus_factor(name, 8) for name in COLLECTIVES} == {
        "all_reduce": 1.75,
        "all_gather": 0.875,
        "reduce_scatter": 0.875,
        "broadcast": 1.0,
        "all_to_all": 0.875,
    }
    assert bus_factor("all_reduce", 2) == 1.0


def test_bandwidths_are_decimal_and_bits_are_not_bytes() -> None:
    """8 GiB in 31,250 µs: 8,589,934,592 / 0.03125 s = 274.9 · 10⁹ B/s; on the bus of 8 ranks 7/4 of it."""
    row = Row("all_reduce", 8 << 30, 8, 31_250.0, 12.0, 0, 20)
    assert row.algbw_gb_s == pytest.approx(274.878, rel=1e-5)
    assert row.busbw_gb_s == pytest.approx(481.036, rel=1e-5)
    (line,) = cells([row])
    assert len(line) == len(HEADER) == len(UNITS)
    assert line[UNITS.index("GB/s")] == "275" and line[UNITS.index("Gb/s")] == "3848"
    assert Row.from_json(row.to_json()) == row


@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_sizes_hold_whole_elements_for_each_rank_up_to_the_limit(name: str, ranks: int) -> None:
    found = sizes(name, ranks, 1 << 20)
    step = 4 if name in ("all_reduce", "broadcast") else 4 * ranks
    assert found == sorted(set(found)) and all(size % step == 0 and size > 0 for size in found)
    assert found[0] < 4 * max(step, 8)
    assert (1 << 20) - step < found[-1] <= 1 << 20


def test_a_bench_needs_neither_model_nor_data(tmp_path: Path) -> None:
    spec = Spec.parse(
        BENCH + "bench: {collectives: [all_reduce, broadcast], largest_mib: 64}\nhardware: {processes: 8}"
    )
    assert (spec.kind, spec.method, spec.model) == ("bench", "bench", "")
    assert spec.bench.collectives == ("all_reduce", "broadcast") and spec.bench.largest_mib == 64
    assert spec.hardware.processes == 8 and spec.model_folder(tmp_path) is None
    spec.check_files(tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model: m\n", "model is not a setting"),
        ("bench: {collectives: allreduce}\n", "all_reduce"),
        ("bench: {largest_mib: 0}\n", "largest_mib"),
        ("python: /nowhere/python\n", "cannot be executed"),
    ],
)
def test_what_does_not_belong_into_a_bench_is_refused(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        Spec.parse(BENCH + text).check_files(tmp_path)
    assert words in str(caught.value) and caught.value.line == 3


def test_a_kind_that_does_not_exist_is_refused() -> None:
    with pytest.raises(SpecError, match="kind is 'benhc'"):
        Spec.parse("kind: benhc\n")
