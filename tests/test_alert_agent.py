"""The real daemon over the simulated NVML: alerts fire with nobody looking, and outlive it; orders about them."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent import wire
from jobs import orders
from tests.fakes.node import Console, Node, until, variables
from tests.fakes.nvml import Driver, Simulation, card, simulation

QUICK = """\
rules:
  gpu-memory-critical: {for: 0, clear_for: 0}
  gpu-temperature-critical: {for: 0, clear_for: 0}
  far: {metric: run.step, above: 3, text: "{name} is at {value}", action: snapshot}
"""
FULL = card(1, memory_used_bytes=int(79.9 * 2**30), temperature_c=93)
CALM = card(1, memory_used_bytes=1 << 30, temperature_c=50)


@pytest.fixture
def gpus(tmp_path: Path) -> Simulation:
    return simulation(tmp_path / "nvml", Driver((CALM,)))


@pytest.fixture
def node(tmp_path: Path, gpus: Simulation, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    for name, value in {**variables(tmp_path), **gpus.environment}.items():
        monkeypatch.setenv(name, value)
    made = Node(tmp_path)
    made.state.create()
    (made.state.home / "alerts.yaml").write_text(QUICK)
    yield made
    made.close()


def fires(console: Console, rule: str) -> wire.Alert | None:
    return next((one for one in console.state().alerts.values() if one.rule == rule), None) if console.tree else None


def test_alerts_fire_without_a_console_and_outlive_the_daemon(node: Node, gpus: Simulation) -> None:
    first = node.console()
    until(lambda: first.tree and first.state().gpus)
    first.close()
    Driver((FULL,)).write(gpus.state)
    until(lambda: b"gpu-memory-critical" in node.state.events.read_bytes())
    node.daemon().send(signal.SIGKILL)
    again = node.console()
    until(lambda: fires(again, "gpu-memory-critical"))
    until(lambda: again.state().gpus)
    assert "SIMULATED" in again.state().gpus[FULL.uuid].name
    Driver((CALM,)).write(gpus.state)
    until(lambda: again.tree and not fires(again, "gpu-memory-critical"))
    raised = [event for event in again.numbered() if event.kind == "alert.raised"]
    assert sum(event.data["rule"] == "gpu-memory-critical" for event in raised) == 1
    hot = next(event for event in raised if event.data["rule"] == "gpu-temperature-critical")
    assert hot.severity == "critical" and "GPU 0 is at 93 °C" in hot.text


def test_acknowledge_mute_and_rules_are_orders_in_the_trail(node: Node, gpus: Simulation) -> None:
    console = node.console()
    Driver((FULL,)).write(gpus.state)
    one = until(lambda: fires(console, "gpu-memory-critical"))
    assert console.ask(wire.Acknowledge(one.id)).ok
    assert console.ask(wire.Mute(one.id, 600)).result["until_unix"]
    until(lambda: (found := fires(console, one.rule)) and "tester@here" in found.acked_by and found.muted_until_unix)
    refused = console.ask(wire.SetRules("rules:\n  gpu-memory-critical:\n    above: much\n"))
    assert not refused.ok and refused.error.startswith("alerts.yaml:3: gpu-memory-critical.above is 'much'")
    assert console.ask(wire.SetRules("rules:\n  gpu-memory-critical: {enabled: false}\n")).result["rules"] > 10
    until(lambda: not fires(console, one.rule))
    looking = node.console("--read-only")
    looking.welcome()
    assert not looking.ask(wire.Acknowledge(one.id)).ok
    assert looking.ask(wire.ListAlerts()).result["muted"][one.id]
    until(lambda: len(node.state.audit.read_text().splitlines()) >= 5)
    verbs = [json.loads(line)["verb"] for line in node.state.audit.read_text().splitlines()]
    assert verbs[:2] == [f"acknowledge {one.id}", f"mute {one.id}"]


def test_a_rule_orders_a_rescue_snapshot_where_it_was_told_to(node: Node) -> None:
    folder = node.start("obedient", ranks=1)
    console = node.console()
    asked = until(lambda: next(folder.orders.glob("alert-*.result.json"), None))
    assert orders.answer(folder, asked.name.removesuffix(".result.json"))
    action = until(lambda: next((e for e in console.numbered() if e.kind == "alert.action"), None))
    assert action.run == folder.name and "alert rule far: snapshot" in action.text
    assert action.severity == "warn"
