"""What a node's telemetry costs on the wire, and that deflated lines arrive whole or are refused."""

from __future__ import annotations

import base64
import random
import zlib

import pytest

from agent import wire
from agent.codec import LINE_LIMIT_BYTES
from agent.wire import Deflater, Disk, Gpu, Host, Inflater, Level, Malformed, NodeState, RunState

BUDGET_BYTES_S = 300
SECONDS = 300
SSH_PACKET_BYTES = 4 + 1 + 8 + 16
"""Length, padding length, usual padding and the tag of an AEAD cipher (RFC 4253, 6; RFC 5647): one packet a level."""


def busy(second: int, chance: random.Random) -> NodeState:
    """Eight cards in training, everything trembling as it does on real ones."""
    host = Host(
        hostname="gpu01",
        cpu_percent=float(chance.randint(20, 30)),
        cpu_count=128,
        load_1=round(20 + chance.random(), 1),
        ram_total_bytes=1 << 40,
        ram_used_bytes=(200 << 30) + chance.randint(0, 40) * (16 << 20),
        net_rx_bytes_s=float(f"{chance.uniform(1e9, 2e9):.1e}"),
        net_tx_bytes_s=float(f"{chance.uniform(1e9, 2e9):.1e}"),
        disk_write_bytes_s=float(f"{chance.uniform(1e6, 2e6):.1e}"),
        uptime_s=60.0 * (second // 60),
        disks=(Disk("/", 1 << 40, 500 << 30),),
    )
    gpus = [
        Gpu(
            uuid=f"GPU-8f3c{number:04d}-52d1-9b8e-6c1a-{number * 7919:012d}",
            index=number,
            name="NVIDIA H100 80GB HBM3",
            memory_total_bytes=80 << 30,
            memory_used_bytes=(70 << 30) + chance.choice([0, 0, 0, 2 << 20]),
            utilisation_percent=float(chance.randint(92, 100)),
            sm_active_percent=float(chance.randint(70, 80)),
            temperature_c=float(60 + number + chance.choice([0, 0, 0, 1])),
            power_w=float(chance.randint(560, 640)),
            power_limit_w=700.0,
            sm_clock_mhz=float(chance.choice([1980, 1980, 1965, 1950])),
        )
        for number in range(8)
    ]
    run = RunState(
        run="20261201-093000-qwen",
        name="qwen",
        phase="training",
        step=second * 2,
        loss=round(1.5 + chance.random() / 10, 4),
        learning_rate=1e-4,
        tokens_per_s=round(50_000 + 1000 * chance.random(), 1),
        step_time_s=round(0.5 + chance.random() / 50, 4),
        last_progress_unix=1.8e9 + second,
    )
    return NodeState(host, {gpu.uuid: gpu for gpu in gpus}, {run.run: run}, 0.0)


def levels(chance: random.Random) -> list[bytes]:
    """As a conversation sends them: a keyframe each minute, differences between."""
    lines, before = [], wire.to_tree(NodeState())
    for second in range(SECONDS):
        tree, keyframe = wire.to_tree(busy(second, chance)), second % wire.KEYFRAME_EVERY_S == 0
        changed, gone = (tree, []) if keyframe else wire.difference(before, tree)
        at = second + chance.random() / 100
        lines.append(wire.encode(Level(second + 1, keyframe, round(1e4 + at, 3), round(1.8e9 + at, 3), changed, gone)))
        before = tree
    return lines


def test_eight_busy_gpus_cost_no_more_than_300_bytes_a_second_and_arrive_whole() -> None:
    plain, deflater, inflater = levels(random.Random(1)), Deflater(), Inflater()
    sent = [deflater.line(line) for line in plain]
    assert [inflater.line(line.removesuffix(b"\n")) + b"\n" for line in sent] == plain
    assert sum(map(len, sent)) / SECONDS + SSH_PACKET_BYTES <= BUDGET_BYTES_S


def test_plain_lines_may_stand_between() -> None:
    deflater, inflater = Deflater(), Inflater()
    first, second = deflater.line(b'{"a":1}\n'), deflater.line(b'{"a":1}\n')
    assert inflater.line(first.strip()) == inflater.line(b'{"a":1}') == inflater.line(second.strip()) == b'{"a":1}'


def bomb() -> bytes:
    state = zlib.compressobj(9, zlib.DEFLATED, -13)
    return base64.b64encode(state.compress(b" " * (LINE_LIMIT_BYTES + 1)) + state.flush(zlib.Z_SYNC_FLUSH))


@pytest.mark.parametrize("line", [b"~", b"~%%%", b"~" + base64.b64encode(b"\xff" * 40), b"~" + bomb()])
def test_what_is_not_deflated_or_a_bomb_is_refused(line: bytes) -> None:
    with pytest.raises(Malformed):
        wire.read_from_agent(Inflater().line(line))
