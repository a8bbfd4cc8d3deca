"""Who is measured with whom, and what slow pairs mean: schedules, verdicts and the search on an emulated fabric."""

from __future__ import annotations

import itertools
import random

import pytest

from jobs.fabric import schedule
from jobs.fabric.evidence import Edge, Evidence, usual
from jobs.fabric.schedule import pair, with_again
from jobs.fabric.search import SHORT, Search
from jobs.fabric.suspicion import LINK, NIC, NODE, RAIL, Suspect
from jobs.fabric.verdict import Verdict, judge
from tests.bench.fabric import OPEN, RIGHT, outcome, searched
from tests.fakes.fabric import EmulatedFabric, broken

NAMES = [f"n{i}" for i in range(8)]


@pytest.mark.parametrize("count", [2, 3, 4, 7, 8, 64])
def test_rounds_hold_every_pair_once_and_no_node_twice(count: int) -> None:
    nodes = [f"n{i}" for i in range(count)]
    found = schedule.rounds(nodes)
    assert len(found) == count - 1 + count % 2
    assert sorted(itertools.chain(*found)) == sorted(schedule.all_pairs(nodes))
    for pairs in found:
        assert len({name for p in pairs for name in p}) == 2 * len(pairs)


def test_a_node_named_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        schedule.rounds(["a", "b", "a"])


def test_no_rounds_without_two_nodes() -> None:
    assert [p for pairs in schedule.rounds(["a"]) for p in pairs] == []
    assert Search(["a"], ["0"]).next() in ((), None)


def test_a_pair_measured_again_leaves_nobody_alone() -> None:
    planned = schedule.rounds(NAMES)[0]
    wanted = next(p for p in schedule.all_pairs(NAMES) if p not in planned)
    again = with_again(planned, [wanted])
    assert wanted in again and sorted(n for p in again for n in p) == NAMES


def test_usual_is_the_upper_cluster_even_when_most_are_slow() -> None:
    found = usual([10.0, 10.1, 9.9, 1.0, 1.0, 1.1, 0.0, 1.0, 1.0])
    assert found is not None and found.bandwidth == pytest.approx(10.0, abs=0.1)
    assert usual([]) is None and usual([0.0, 0.0]) is None


def test_noise_moves_the_line_below_which_a_figure_is_slow() -> None:
    chance = random.Random(1)
    found = usual([chance.gauss(100, 10) for _ in range(4000)])
    assert found is not None
    assert found.bandwidth == pytest.approx(100, rel=0.02) and found.sigma == pytest.approx(0.1, rel=0.15)
    assert found.cut == pytest.approx(80, rel=0.05)


def verdict(nodes: list[str], rails: list[str], slow: set[tuple[str, str]], expected: float | None = None) -> Verdict:
    """After all pairs were measured twice, those in `slow` at a tenth of the rest."""
    evidence = Evidence()
    for _ in range(2):
        for pairs in schedule.rounds(nodes):
            evidence.add({Edge(p, r): [1.0 if p in slow else 10.0] * 5 for p in pairs for r in rails})
    return judge(evidence, nodes, rails, expected)


def test_three_nodes_with_one_bad_cable() -> None:
    found = verdict(["a", "b", "c"], ["eth0"], {("a", "c"), ("b", "c")})
    assert [b.suspect for b in found.culprits] == [Suspect(NODE, ("c",))]
    assert found.culprits[0].percent == pytest.approx(10) and "node c gives 10%" in found.words


def test_two_nodes_cannot_accuse_each_other() -> None:
    found = verdict(["a", "b"], ["0", "1"], {("a", "b")}, expected=10.0)
    assert found.kind == "undetermined" and not found.culprits
    assert {n for doubt in found.doubts for s in doubt for n in s.nodes} == {"a", "b"}
    assert "not decided between" in found.words


def test_slow_everywhere_against_what_is_expected_is_the_fabric() -> None:
    every = schedule.all_pairs(NAMES)
    assert verdict(NAMES, ["0"], every).kind == "none"  # nothing to compare with
    assert verdict(NAMES, ["0"], every, expected=10.0).kind == "fabric"


def test_slow_ways_without_a_common_node_are_the_fabric() -> None:
    nodes = [f"n{i:02d}" for i in range(22)]
    search = Search(nodes, ["0"], thorough=True)
    slow = {("n00", "n01"), ("n02", "n03"), ("n04", "n05"), ("n06", "n07")}
    evidence = search.evidence
    for _ in range(3):
        for pairs in schedule.rounds(nodes):
            evidence.add({Edge(p, "0"): [1.0 if p in slow else 10.0] * 5 for p in pairs})
    found = judge(evidence, nodes, ["0"])
    assert found.kind == "fabric" and {b.suspect.nodes for b in found.culprits} == slow


def test_what_was_not_measured_is_named() -> None:
    evidence = Evidence()
    evidence.add({Edge(("a", "b"), "0"): [10.0] * 5})
    found = judge(evidence, ["a", "b", "c"], ["0"])
    assert found.untested == (("a", "c"), ("b", "c")) and found.kind == "none"


def test_nothing_measured_and_nothing_that_came_through() -> None:
    assert judge(Evidence(), ["a", "b"], ["0"]).words == "nothing was measured"
    evidence = Evidence()
    evidence.add({Edge(("a", "b"), "0"): [0.0] * 5})
    found = judge(evidence, ["a", "b"], ["0"])
    assert found.kind == "undetermined" and found.words == "nothing came through between any two nodes"


@pytest.mark.parametrize("fault", ["slow NIC", "dead NIC", "slow node", "dead rail", "none"])
def test_the_short_search_finds_the_part_and_blames_nobody_else(fault: str) -> None:
    for seed in range(3):
        fabric = broken(fault, seed, nodes=32)
        search = searched(fabric, thorough=False)
        assert outcome(fabric, search) == RIGHT, (seed, fabric.culprit, search.verdict.words)
        assert search.evidence.rounds <= SHORT


def test_a_flapping_nic_is_found_or_left_open_but_nobody_else_is_blamed() -> None:
    found = []
    for seed in range(8):
        fabric = broken("flapping NIC", seed, nodes=32)
        found.append(outcome(fabric, searched(fabric, thorough=False)))
    assert set(found) <= {RIGHT, OPEN} and found.count(RIGHT) >= 6


def test_a_slow_way_is_found_by_all_pairs_within_their_rounds() -> None:
    for seed in range(3):
        fabric = broken("slow pair", seed, nodes=32)
        search = searched(fabric, thorough=True)
        assert outcome(fabric, search) == RIGHT, (seed, fabric.culprit, search.verdict.words)
        assert search.evidence.rounds <= 31


def test_two_faults_at_once_are_both_named() -> None:
    nodes, rails = [f"n{i:02d}" for i in range(16)], ["0", "1", "2", "3"]
    one, other = (
        EmulatedFabric(nodes, rails, random.Random(seed), Suspect(NIC, (nodes[seed],), "2"), factor=0.4, noise=0.02)
        for seed in (3, 11)
    )
    search = Search(nodes, rails)
    while (pairs := search.next()) is not None:
        both = zip(one.measure(pairs).items(), other.measure(pairs).values(), strict=True)
        search.take({edge: [min(f) for f in zip(a, b, strict=True)] for (edge, a), b in both})
    assert {b.suspect for b in search.verdict.culprits} == {one.culprit, other.culprit}


def test_words_name_each_kind_of_part() -> None:
    assert Suspect(RAIL, (), "3").words == "rail 3"
    assert Suspect(LINK, pair("b", "a")).words == "the way between a and b"
    assert Suspect(NIC, ("a",), "mlx5_0").words == "the NIC of a on rail mlx5_0"
