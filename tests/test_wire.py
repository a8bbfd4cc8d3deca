"""The wire: what is sent comes back, what is hostile does not come through."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from agent import codec, wire

TEXT = st.text(max_size=20)
LEAF = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False) | TEXT
TREE = st.recursive(
    st.dictionaries(TEXT, LEAF, max_size=4),
    lambda inner: st.dictionaries(TEXT, inner | LEAF, max_size=4),
    max_leaves=12,
)

MESSAGES = [
    wire.Hello(1, "0.1.0", "ann@laptop", "s1", 7),
    wire.Ack(3),
    wire.Order("o1", 30.0, wire.Launch("name: x\n", "x.yaml")),
    wire.Order("o2", 5.0, wire.Kill("run-1")),
    wire.Order("o3", 5.0, wire.Logs("run-1", None, -100)),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_console_messages_come_back_equal(message: wire.FromConsole) -> None:
    assert wire.read_from_console(wire.encode(message)) == message


def test_agent_messages_come_back_equal_and_non_finite_floats_survive() -> None:
    event = wire.Event("s", 1, 2.0, "run.ended", "over", data={"loss": math.inf, "n": [1, None]})
    assert wire.read_from_agent(wire.encode(event)) == event
    level = wire.Level(1, True, 0.0, 0.0, {"host": {"cpu_percent": math.nan}})
    line = wire.encode(level)
    assert b"NaN" not in line
    back = wire.read_from_agent(line)
    assert isinstance(back, wire.Level) and math.isnan(back.changed["host"]["cpu_percent"])


def test_strings_lose_escapes_and_overrides_when_decoded() -> None:
    evil = "a\x1b]52;c;ZXZpbA==\x07b\x1b[31mc\x00\x9bd\u202ee\rf\ng\th"
    event = wire.read_from_agent(wire.encode(wire.Event("s", 1, 0.0, "k", evil, data={evil: [evil]})))
    assert isinstance(event, wire.Event)
    assert event.text == "abcde\nf\ng\th"
    assert event.data == {"abcde\nf\ng\th": ["abcde\nf\ng\th"]}


def test_unknown_fields_are_ignored_and_missing_ones_get_defaults() -> None:
    reply = wire.read_from_agent(b'{"t":"Reply","order":"o","ok":true,"from_the_future":[1]}\n')
    assert reply == wire.Reply("o", True)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"null",
        b"[]",
        b'"Hello"',
        b"{",
        b'{"t":"Nope"}',
        b'{"t":"Ack","n":"1"}',
        b'{"t":"Ack","n":true}',
        b'{"t":"Ack"}',
        b'{"t":"Order","id":"x","deadline_s":1,"body":{"t":"Ack","n":1}}',
        b'{"t":"Order","id":"x","deadline_s":1,"body":{"t":"Kill","run":5}}',
        b"\xff\xfe{}",
        b"[" * 100_000,
        b'{"t":"Ack","n":1,"deep":' + b"[" * 200 + b"]" * 200 + b"}",
        b'{"t":"Ack","n":1,"pad":"' + b"x" * (5 * 1024 * 1024) + b'"}',
    ],
    ids=range(15),
)
def test_what_is_no_message_is_refused(line: bytes) -> None:
    with pytest.raises(wire.Malformed):
        wire.read_from_console(line)


@given(st.binary(max_size=200))
@settings(max_examples=500, deadline=None)
def test_random_bytes_never_do_more_than_be_refused(line: bytes) -> None:
    for read in (wire.read_from_console, wire.read_from_agent):
        with pytest.raises(wire.Malformed):
            read(line)


@given(TREE, TREE)
@settings(max_examples=400, deadline=None)
def test_a_difference_applied_gives_the_new_state(old: dict[str, object], new: dict[str, object]) -> None:
    before = repr(old)
    assert wire.apply_difference(old, *wire.difference(old, new)) == new
    assert repr(old) == before


CARDS = st.dictionaries(
    st.sampled_from("abcd"),
    st.builds(
        wire.Gpu,
        uuid=st.just("u"),
        index=st.integers(0, 3),
        power_w=st.none() | st.floats(allow_nan=False),
        throttle=st.lists(TEXT, max_size=2).map(tuple),
        processes=st.lists(st.builds(wire.GpuProcess, pid=st.integers(1, 9)), max_size=2).map(tuple),
    ),
    max_size=3,
)
STATES = st.builds(
    wire.NodeState,
    host=st.builds(wire.Host, hostname=TEXT, disks=st.sampled_from([(), (wire.Disk("/", 2, 1),)])),
    gpus=CARDS,
    runs=st.dictionaries(
        TEXT.filter(lambda key: key != "t"), st.builds(wire.RunState, run=TEXT, name=TEXT, phase=TEXT), max_size=2
    ),
)


@given(STATES, STATES)
def test_records_follow_a_difference_without_being_read_anew(old: wire.NodeState, new: wire.NodeState) -> None:
    assume(all(comes_whole(one) for one in (old, new)))
    changed, gone = wire.difference(wire.to_tree(old), wire.to_tree(new))
    changed, tree = heard(changed), heard(wire.to_tree(old))
    wire.amend(tree, changed, gone)
    assert tree == heard(wire.to_tree(new))
    assert wire.renewed(old, tree, changed, gone) == new


def comes_whole(state: wire.NodeState) -> bool:
    """Whether nothing in it is cleaned on the way, which may make two keys one, or is taken for a number."""
    try:
        return wire.from_tree(heard(wire.to_tree(state))) == state
    except wire.Malformed:
        return False


def heard(tree: dict[str, Any]) -> dict[str, Any]:
    """As the other side has it once it came over the wire."""
    return dict(codec.parse(codec.encode(tree)))


@given(STATES, TREE, st.lists(st.lists(TEXT, max_size=3), max_size=3))
def test_hostile_differences_give_what_the_whole_tree_gives(
    old: wire.NodeState, changed: dict[str, object], gone: list[list[str]]
) -> None:
    tree = wire.to_tree(old)
    changed = {"gpus": changed, "host": changed, **changed}
    wire.amend(tree, changed, gone)
    assert tree == wire.apply_difference(wire.to_tree(old), changed, gone)
    try:
        expected: wire.NodeState | None = wire.from_tree(tree)
    except wire.Malformed:
        expected = None
    try:
        assert wire.renewed(old, tree, changed, gone) == expected
    except wire.Malformed:
        assert expected is None


def test_a_node_state_survives_tree_and_difference() -> None:
    gpu = wire.Gpu("GPU-1", 0, "SIMULATED H100", memory_total_bytes=80, processes=(wire.GpuProcess(5, run="r"),))
    first = wire.NodeState(wire.Host("n1", disks=(wire.Disk("/", 10, 5),)), {"GPU-1": gpu})
    second = wire.NodeState(wire.Host("n1", cpu_percent=3.0), {}, {"r": wire.RunState("r", "r", "training", step=1)})
    changed, gone = wire.difference(wire.to_tree(first), wire.to_tree(second))
    assert wire.from_tree(wire.apply_difference(wire.to_tree(first), changed, gone)) == second
    assert gpu.simulated and not wire.Gpu("GPU-2", 1, "NVIDIA H100").simulated
