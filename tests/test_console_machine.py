"""A machine's rows: what is told only now and then, which interfaces and ports come first, and their width."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from agent import wire
from console.screens.machine import host_lines, port_lines
from console.widgets.paint import Line, cells
from tests.fakes.sitting import GIB, node_state

CALM = node_state("node1").host
BUSY = replace(
    CALM,
    cpu_steal_percent=7.0,
    swap_used_bytes=3 * GIB,
    disk_read_bytes_s=1.2e9,
    disk_write_bytes_s=4.1e6,
    shm_total_bytes=64 * GIB,
    shm_used_bytes=57 * GIB,
    interfaces={
        one.name: one
        for one in (
            wire.Interface("eno1", True, 1.2e6, 3.4e5, 25_000_000_000, 1500, 7),
            wire.Interface("eno2", False, 0.0, 0.0, None, 1500, 90_000),
            *(wire.Interface(f"ib{n}", True, 1000.0 * n, math.inf if n == 9 else 0.0) for n in range(6)),
        )
    },
)


def port(n: int, **changes: object) -> wire.Port:
    made = wire.Port(
        f"mlx5_{n}", 1, "ACTIVE", "LinkUp", "InfiniBand", 400_000_000_000, f"ib{n}", 4.1e10, 3.9e10, 0, 0, 0
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def keyed(*ports: wire.Port) -> dict[str, wire.Port]:
    return {f"{one.device}/{one.port}": one for one in ports}


def texts(lines: list[Line]) -> list[str]:
    return ["".join(text for text, _role in line).rstrip() for line in lines]


def test_what_is_well_takes_no_room() -> None:
    calm = replace(CALM, cpu_steal_percent=0.0, swap_used_bytes=0, shm_total_bytes=GIB, shm_used_bytes=GIB // 3)
    assert texts(host_lines(calm, 76)) == texts(host_lines(CALM, 76))
    assert not any(word in "\n".join(texts(host_lines(CALM, 76))) for word in ("steal", "swap", "shm", "I/O"))


def test_what_is_not_well_is_told_with_its_sign() -> None:
    told = "\n".join(texts(host_lines(BUSY, 76)))
    for words in ("7%! taken by other machines", "3.00 GiB used", "57.0/64.0 GiB!", "r 1.12 GiB/s  w 3.91 MiB/s"):
        assert words in told


def test_busy_interfaces_come_first_and_the_rest_is_counted() -> None:
    rows = [row for row in texts(host_lines(BUSY, 76)) if row.startswith("net   ")]
    assert [row.split()[2] for row in rows] == ["eno1", "ib5", "ib4", "ib3"]
    assert "↓ 1.14 MiB/s  ↑ 332 KiB/s" in rows[0] and rows[0].endswith("25 Gb/s  7 lost")
    assert texts(host_lines(BUSY, 76))[-1].strip() == "+4 more, 1 down"
    one = replace(BUSY, interfaces={"eno1": BUSY.interfaces["eno1"]})
    assert "eno1" not in "\n".join(texts(host_lines(one, 76))), "a single one is the machine's own row"


def test_ports_that_went_down_come_first_and_those_never_up_last() -> None:
    lost = port(3, state="DOWN", physical="Polling", down=1, rate_bits_s=None)
    unused = port(0, state="DOWN", physical="Disabled", down=None, rate_bits_s=None)
    told = texts(
        port_lines(keyed(unused, port(1), port(2, errors=1, link_downed=2), lost, port(4, rx_bytes_s=4.8e10)), 76)
    )
    assert told[0].startswith("RDMA: 3 of 5 ports active  ↓ 130 GB/s  ↑ 117 GB/s ")
    assert [row.split()[1] for row in told[1:]] == ["mlx5_3/1", "mlx5_2/1", "mlx5_4/1", "mlx5_1/1", "more,"]
    assert "DOWN: Polling" in told[1] and "1 error  2 flaps" in told[2] and "400 Gb/s   ↓ 48.0 GB/s" in told[3]
    assert told[5].strip() == "+1 more, 1 down"
    assert len(texts(port_lines(keyed(*(port(n) for n in range(8))), 120))) == 5, "two in a row where there is room"
    assert port_lines({}, 76) == []


def test_a_counter_at_its_end_is_no_figure() -> None:
    assert "255 flaps or more" in texts(port_lines(keyed(port(0, link_downed=255)), 76))[1]


def test_what_is_not_known_is_a_dash_and_no_nought() -> None:
    told = texts(port_lines(keyed(port(0, rx_bytes_s=None, tx_bytes_s=None, errors=None, rate_bits_s=None)), 76))
    assert told[0].split(" ─")[0] == "RDMA: 1 of 1 ports active" and "↓ –  ↑ –" in told[1] and "0" not in told[1][10:40]


@pytest.mark.parametrize("width", [20, 40, 63, 64, 76, 92, 100, 158])
def test_no_row_is_too_wide(width: int) -> None:
    ports = keyed(
        port(1), port(2, device="rocep" + "x" * 60, errors=10**9), port(3, down=1, state="GONE", interface="i" * 90)
    )
    lines = host_lines(BUSY, width) + port_lines(ports, width)
    assert all(cells(line) <= width for line in lines) and len(lines) > 10
