"""The Alerts section, driven by its keys, and the command beside it."""

from __future__ import annotations

import time
from dataclasses import replace

from agent import wire
from console.screens.alerts import AlertsScreen
from console.screens.attention import about, attention, ordered
from console.screens.node import NodeScreen
from console.screens.run import RunScreen
from tests.fakes.screen import app_of, console, painted, shows, told, until
from tests.fakes.sitting import Sitting, node_state, run_state, sitting

RUN = "faults-lora-20261130-1"
HOT = wire.Alert(
    "gpu-temperature-critical@GPU-0001",
    "gpu-temperature-critical",
    "critical",
    "GPU 1 is at 93 °C, where it slows itself down",
    "-3 °C",
    "GPU-0001",
    since_unix=300,
)
DISK = wire.Alert("disk-warn@/", "disk-warn", "warn", "/: 7 % free", "7 %", "/", since_unix=60)
STALLED = wire.Alert("run-stalled@r", "run-stalled", "critical", "faults-lora: no step", "90 s", RUN, RUN, 0.0)


def fire(sat: Sitting, *alerts: wire.Alert, now: float | None = None) -> None:
    """Each began `since_unix` seconds ago: the tests may have been read long before they run."""
    alerts = tuple(replace(one, since_unix=(now or time.time()) - (one.since_unix or 0.0)) for one in alerts)
    state = node_state("node1", 4, (run_state(RUN),))
    sat.links["node1"].tell(replace(state, alerts={one.id: one for one in alerts}))
    sat.links["node1"].event(9, "alert.raised", HOT.text, "critical")


async def test_what_fires_is_listed_most_pressing_first_with_its_value_and_history() -> None:
    sat = sitting("node1", "node2")
    async with console(sat, (100, 30)) as pilot:
        fire(sat, DISK, HOT)
        await shows(pilot, "2 alerts!")
        await pilot.press("4")
        fire(sat, DISK, HOT)
        await shows(pilot, "wait for somebody", "93 °C", "-3 °C", "5 m", "7 %", "History")
        text = painted(app_of(pilot))
        assert text.index("‼") < text.index("/: 7 % free")


async def test_acknowledge_and_mute_are_orders_to_the_node() -> None:
    sat = sitting("node1", "node2")
    async with console(sat) as pilot:
        fire(sat, HOT)
        await shows(pilot, "1 alert!")
        await pilot.press("4", "a")
        await until(pilot, lambda: wire.Acknowledge(HOT.id) in sat.links["node1"].asked)
        await pilot.press("m")
        await until(pilot, lambda: wire.Mute(HOT.id, 3600.0) in sat.links["node1"].asked)
        kept = replace(HOT, acked_by="ann@desk", muted_until_unix=time.time() + 3500)
        sat.links["node1"].tell(replace(sat.links["node1"].state, alerts={HOT.id: kept}))
        await shows(pilot, "no alerts", "muted to", "Firing: 1, 0 wait for somebody")
        await pilot.press("m")
        await until(pilot, lambda: wire.Mute(HOT.id, 8 * 3600.0) in sat.links["node1"].asked)


async def test_enter_goes_to_the_run_or_the_node() -> None:
    sat = sitting("node1", "node2")
    async with console(sat) as pilot:
        fire(sat, STALLED)
        await shows(pilot, "1 alert!")
        await pilot.press("4", "enter")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, RunScreen))
    sat = sitting("node1", "node2")
    async with console(sat) as pilot:
        fire(sat, DISK)
        await shows(pilot, "1 alert!")
        await pilot.press("4", "enter")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, NodeScreen))


async def test_what_begins_to_fire_pops_up_once_and_few_at_a_time() -> None:
    sat = sitting("node1", "node2")
    async with console(sat) as pilot:
        now = time.time()
        fire(sat, HOT, now=now)
        await until(pilot, lambda: told(app_of(pilot)) == f"node1: {HOT.text}")
        more = [replace(DISK, id=f"disk-warn@/{n}", text=f"/{n}") for n in range(5)]
        fire(sat, HOT, *more, now=now)
        await until(pilot, lambda: "2 more alerts; 4 lists them." in told(app_of(pilot)))
        assert told(app_of(pilot)).count(HOT.text) == 1


async def test_a_dead_node_is_listed_but_not_for_acknowledging() -> None:
    sat = sitting("node1", "node2")
    async with console(sat, (80, 24)) as pilot:
        await pilot.press("4")
        await shows(pilot, "Nothing fires.")
        sat.links["node2"].live("down", why="connection refused")
        await shows(pilot, "down for", "connection refused", "1 alert!")
        await pilot.press("a")
        await until(pilot, lambda: "ends by itself" in told(app_of(pilot)))
        assert isinstance(app_of(pilot).screen, AlertsScreen)


def test_attended_alerts_call_nobody_but_stay() -> None:
    sat = sitting("node1")
    sat.session.start()
    fire(sat, replace(HOT, acked_by="ann@desk"), DISK)
    sat.session.pump()
    node, now = sat.session.fleet.nodes["node1"], time.monotonic()
    assert [one.text for one in attention(sat.session.fleet, now)] == [DISK.text]
    assert [one.text for one in ordered(about(node, now))] == [DISK.text, HOT.text]
