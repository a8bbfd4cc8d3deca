"""RDMA ports from files as kernels show them, and the alerts about them through the engine at work."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from agent import rdma
from agent.alerts import Alerts
from agent.events import Events
from agent.node import Machine
from agent.probe import Probe
from agent.rdma import EVERY_S, SILENT_S, Rdma
from agent.state import StateFolder
from agent.wire import Alert, Host, NodeState, Port
from tests.fakes.machine import FakeMachine
from tests.fakes.node import until

T0 = 1_800_000_000.0


class Watch:
    """What the agent does once a tick, by a clock of its own."""

    def __init__(self, folder: Path) -> None:
        self.machine = FakeMachine.made(folder / "root")
        state = StateFolder(folder / "home", "here")
        state.create()
        self.events = Events(state.events)
        self.alerts = Alerts(state, self.events)
        self.now_s = 1000.0
        self.wake()

    def wake(self) -> None:
        """As an agent that starts."""
        self.rdma = Rdma(self.machine.root, lambda: self.now_s)

    def see(self, seconds: float = EVERY_S) -> dict[str, Port]:
        self.now_s += seconds
        self.rdma.read()
        until(lambda: not any(card.aside.open() for card in self.rdma.cards.values()))
        return self.rdma.read()

    def fires(self, seconds: int = 20) -> dict[str, Alert]:
        found: dict[str, Alert] = {}
        for _second in range(seconds):
            state = NodeState(Host("gpu01"), ports=self.see(1.0))
            found = self.alerts.look(state, self.now_s, T0 + self.now_s)
        return found


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    return Watch(tmp_path)


def test_a_port_of_infiniband(watch: Watch) -> None:
    watch.machine.port("mlx5_0", port_rcv_data=1000, symbol_error=3, port_xmit_discards=4, link_downed=2)
    (watch.machine.root / "sys/class/infiniband/mlx5_0/device/net/ib0").mkdir(parents=True)
    assert watch.see()["mlx5_0/1"].rx_bytes_s is None, "one look makes no rate"
    watch.machine.port(
        "mlx5_0", port_rcv_data=1000 + 5 * 10**10, port_xmit_data=5 * 10**7, symbol_error=3, link_downed=2
    )
    one = watch.see()["mlx5_0/1"]
    assert (one.state, one.physical, one.link_layer, one.interface) == ("ACTIVE", "LinkUp", "InfiniBand", "ib0")
    assert one.rate_bits_s == 400_000_000_000 and one.down == 0
    assert (one.rx_bytes_s, one.tx_bytes_s) == (4e10, 4e7), "counters are words of four bytes"
    assert (one.link_downed, one.errors, one.congestion) == (2, 3, None)


def test_a_port_of_roce_tells_congestion(watch: Watch) -> None:
    watch.machine.port("mlx5_2", layer="Ethernet", np_cnp_sent=123_456, out_of_sequence=44)
    one = watch.see()["mlx5_2/1"]
    assert (one.link_layer, one.interface, one.congestion, one.errors) == ("Ethernet", "mlx5_2np0", 124_000, 0)


def test_another_vendor_has_what_it_has(watch: Watch) -> None:
    port = watch.machine.port("efa_0", layer="Unknown")
    for old in (port / "counters").iterdir():
        old.unlink()
    watch.machine.write("sys/class/infiniband/efa_0/ports/1/hw_counters/rx_bytes", 0)
    watch.see()
    watch.machine.write("sys/class/infiniband/efa_0/ports/1/hw_counters/rx_bytes", 5000)
    one = watch.see()["efa_0/1"]
    assert (one.rx_bytes_s, one.tx_bytes_s) == (1000.0, None)
    assert (one.link_downed, one.errors, one.congestion) == (None, None, None)


def test_a_counter_at_its_end_or_without_figures_has_no_rate(watch: Watch) -> None:
    for data in (2**32 - 5, 2**32 - 1):
        watch.machine.port("mlx4_0", port_rcv_data=data, port_xmit_data="N/A (no PMA)", symbol_error="N/A (no PMA)")
        one = watch.see()["mlx4_0/1"]
    assert one.rx_bytes_s is None and one.tx_bytes_s is None and one.errors == 0


def test_a_card_in_service_whose_counters_are_full_fires_nothing(watch: Watch) -> None:
    """As an H100 node showed them (gpud#943)."""
    for data in (205_143_497_464_492, 205_153_497_464_492):
        watch.machine.port("mlx5_1", port_xmit_data=data, port_xmit_discards=65535, link_downed=255)
        watch.machine.write("sys/class/infiniband/mlx5_1/ports/1/counters/excessive_buffer_overrun_errors", 15)
        assert watch.fires() == {}
    one = watch.see()["mlx5_1/1"]
    assert (one.state, one.link_downed, one.errors) == ("ACTIVE", 255, 65550)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("400 Gb/sec (4X NDR)", 400_000_000_000),
        ("2.5 Gb/sec (1X SDR)", 2_500_000_000),
        ("800 Gb/sec (4X XDR)", 800_000_000_000),
        ("", None),
        ("quick", None),
    ],
)
def test_rates_are_read_as_the_kernel_writes_them(said: str, expected: int | None) -> None:
    assert rdma.bits(said) == expected


def test_a_healthy_machine_fires_nothing(watch: Watch) -> None:
    for moment in range(6):
        for n in range(8):
            watch.machine.port(f"mlx5_{n}", port_rcv_data=moment * 10**9, symbol_error=40 + moment, link_downed=3)
        watch.machine.port("mlx5_8", "1: DOWN", layer="Ethernet", link_downed=1)  # never cabled
        assert watch.fires() == {}
    assert len(watch.see()) == 9 and watch.see()["mlx5_8/1"].rate_bits_s is None
    assert watch.alerts.unmeasured and "port-down" not in watch.alerts.unmeasured


def test_a_port_that_was_active_and_is_down_fires_until_it_is_back(watch: Watch) -> None:
    watch.machine.port("mlx5_3")
    assert watch.fires() == {}
    watch.machine.port("mlx5_3", "1: DOWN")
    one = watch.fires()["port-down@mlx5_3/1"]
    assert one.severity == "critical" and one.text == "RDMA port mlx5_3/1 was active and is now DOWN: Disabled"
    watch.wake()  # the daemon starts again: it has not seen this port active, and yet gives no all-clear
    assert "port-down@mlx5_3/1" in watch.fires()
    watch.machine.port("mlx5_3")
    assert watch.fires(60) == {}


def test_a_card_that_fell_off_its_bus_is_no_port_less(watch: Watch) -> None:
    watch.machine.port("mlx5_0")
    watch.machine.port("mlx5_1", "1: DOWN")
    assert watch.fires() == {}
    for card in ("mlx5_0", "mlx5_1"):
        watch.machine.unplug(card)
    assert list(watch.fires()) == ["port-down@mlx5_0/1"], "nobody misses the other"
    assert watch.see() == {"mlx5_0/1": Port("mlx5_0", 1, "GONE", rdma.WHY["GONE"], "InfiniBand", down=1)}


def test_links_that_flap_and_errors_that_grow_fire(watch: Watch) -> None:
    watch.machine.port("mlx5_0", link_downed=4, symbol_error=70)
    assert watch.fires() == {}
    watch.machine.port("mlx5_0", link_downed=6, symbol_error=100, port_rcv_errors=300)
    fires = watch.fires()
    assert {name: one.text for name, one in fires.items()} == {
        "port-flaps@mlx5_0/1": "RDMA port mlx5_0/1: its link went down again (by 2)",
        "port-errors@mlx5_0/1": "RDMA port mlx5_0/1: errors grew by 330",
    }


def test_a_counter_that_was_cleared_fires_nothing(watch: Watch) -> None:
    watch.machine.port("mlx5_0", link_downed=200, symbol_error=60_000)
    assert watch.fires() == {}
    watch.machine.port("mlx5_0")
    assert watch.fires() == {}
    watch.machine.port("mlx5_0", symbol_error="N/A (no PMA)")
    assert watch.fires() == {}
    watch.machine.port("mlx5_0", symbol_error=50)
    assert watch.fires() == {}


def test_one_counter_that_does_not_answer_once_is_no_growth_afterwards(watch: Watch) -> None:
    watch.machine.port("mlx5_0", symbol_error=5000)
    assert watch.fires() == {}
    watch.machine.port("mlx5_0", symbol_error="N/A (no PMA)")
    assert watch.see()["mlx5_0/1"].errors is None
    watch.machine.port("mlx5_0", symbol_error=5000)
    assert watch.fires() == {}


def test_a_dying_card_keeps_nobody_waiting(tmp_path: Path) -> None:
    watch = Watch(tmp_path)
    for card in ("mlx5_0", "mlx5_1"):
        watch.machine.port(card)
    assert watch.fires() == {}
    hanging = watch.machine.root / "sys/class/infiniband/mlx5_1/ports/1/counters/symbol_error"
    hanging.unlink()
    os.mkfifo(hanging)  # whoever opens it waits until somebody writes
    fires: dict[str, Alert] = {}
    for second in range(30):
        watch.machine.port("mlx5_0", port_rcv_data=second * 10**6)
        watch.now_s += 1
        ports = watch.rdma.read()
        fires = watch.alerts.look(NodeState(Host("gpu01"), ports=ports), watch.now_s, T0 + watch.now_s)
    assert ports["mlx5_0/1"].rx_bytes_s == 4e6
    assert (ports["mlx5_1/1"].state, ports["mlx5_1/1"].rx_bytes_s, ports["mlx5_1/1"].errors) == ("SILENT", None, None)
    assert fires["port-down@mlx5_1/1"].text == "RDMA port mlx5_1/1 was active and is now SILENT: does not answer"
    hanging.write_text("0\n")
    until(lambda: not watch.rdma.cards["mlx5_1"].aside.open())
    hanging.unlink()
    watch.machine.port("mlx5_1")
    assert watch.fires(60) == {}
    assert SILENT_S > 2 * EVERY_S


def test_the_machine_shows_its_ports_to_whoever_looks(tmp_path: Path) -> None:
    watch = Watch(tmp_path)
    watch.machine.port("mlx5_0")
    state = StateFolder(tmp_path / "home", "here")
    machine = Machine(state, Events(state.events), Probe())
    machine.rdma = watch.rdma

    def shown() -> dict[str, Any]:
        machine.read()
        return dict(machine.tree["ports"].get("mlx5_0/1", {}))

    until(lambda: shown().get("rate_bits_s") == 400_000_000_000)
    watch.machine.port("mlx5_0", "1: DOWN")
    watch.now_s += EVERY_S
    until(lambda: shown()["down"] == 1)
    machine.close()
