"""NVML through the real binding: what it tells, what it cannot tell, and when it does not answer."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent import holder, kept, reexec, wire
from agent.node import attribute
from agent.probe import Probe
from agent.wire import GpuProcess
from jobs.identity import ProcessIdentity
from tests.fakes.node import Node, until, variables
from tests.fakes.nvml import Driver, Simulation, card, simulation


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulation(tmp_path_factory.mktemp("nvml")).library


@pytest.fixture
def nvml(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Simulation:
    made = Simulation.at(library, tmp_path / "nvml.state")
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def node(nvml: Simulation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    Driver((card(0), card(1))).write(nvml.state)
    for name, value in variables(tmp_path).items():
        monkeypatch.setenv(name, value)
    made = Node(tmp_path)
    yield made
    made.close()


def probe() -> wire.NodeState:
    done = subprocess.run(reexec.command("probe"), capture_output=True, text=True, timeout=60, check=True)
    return wire.from_tree(json.loads(done.stdout))


def test_figures_with_their_units(nvml: Simulation) -> None:
    one = card(
        3,
        memory_used_bytes=5 << 30,
        utilisation_percent=87,
        temperature_c=61,
        power_mw=412_400,
        sm_clock_mhz=1980,
        throttle=0x4 | 0x40,
        ecc_uncorrected=2,
        processes=((os.getpid(), 4 << 30),),
    )
    Driver((one,)).write(nvml.state)
    state = probe()
    found = state.gpus[one.uuid]
    assert found.simulated and found.index == 0 and found.pci_bus_id == one.pci_bus_id
    assert (found.memory_total_bytes, found.memory_used_bytes) == (80 << 30, 5 << 30)
    assert (found.utilisation_percent, found.temperature_c, found.sm_clock_mhz) == (87.0, 61.0, 1980.0)
    assert (found.power_w, found.power_limit_w, found.ecc_uncorrected) == (412.0, 700.0, 2)
    assert found.throttle == ("power cap", "thermal (hardware)")
    assert [(p.pid, p.memory_bytes) for p in found.processes] == [(os.getpid(), 4 << 30)]
    assert state.gpu_age_s == 0.0 and state.host.gpu_note == ""


def test_what_a_card_cannot_tell_is_unknown_and_not_zero(nvml: Simulation) -> None:
    one = card(
        0,
        memory_total_bytes=None,
        utilisation_percent=None,
        temperature_c=None,
        power_mw=None,
        sm_clock_mhz=None,
        throttle=None,
        ecc_uncorrected=None,
    )
    Driver((one,)).write(nvml.state)
    found = probe().gpus[one.uuid]
    figures = (found.memory_total_bytes, found.memory_used_bytes, found.utilisation_percent, found.temperature_c)
    assert figures == (None, None, None, None)
    assert (found.power_w, found.power_limit_w, found.sm_clock_mhz, found.ecc_uncorrected) == (None,) * 4
    assert not found.lost


def test_one_lost_card_blanks_only_itself(nvml: Simulation) -> None:
    Driver((card(0, utilisation_percent=10), card(1, lost=15), card(2, utilisation_percent=30))).write(nvml.state)
    found = probe().gpus
    assert len(found) == 3
    assert found[card(1).uuid].lost == "GPU is lost" and found[card(1).uuid].utilisation_percent is None
    assert [found[card(n).uuid].utilisation_percent for n in (0, 2)] == [10.0, 30.0]


@pytest.mark.parametrize(("code", "words"), [(18, "Driver/library version mismatch"), (9, "not loaded"), (999, "NVML")])
def test_a_driver_that_does_not_start_says_why(nvml: Simulation, code: int, words: str) -> None:
    Driver((card(0),), init=code).write(nvml.state)
    state = probe()
    assert state.gpus == {} and state.gpu_age_s is None and words in state.host.gpu_note


def test_a_machine_without_a_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert probe().host.gpu_note == "no NVIDIA driver on this node"


async def test_a_wedged_driver_costs_the_figures_and_nothing_else(nvml: Simulation) -> None:
    Driver((card(0),)).write(nvml.state)
    reader = Probe(deadline_s=20, retry_s=0)
    await reader.refresh()
    assert reader.age_s == 0.0 and not reader.note
    Driver((card(0),), wedge_s=600).write(nvml.state)
    reader.deadline_s = 0.3
    child = reader.child
    assert child is not None
    await reader.refresh()
    assert "did not answer" in reader.note and card(0).uuid in reader.sample.gpus
    assert child.returncode is not None, "it could be killed, so nothing is left"
    Driver((card(0),)).write(nvml.state)
    reader.deadline_s, reader.not_before = 20, 0
    await reader.refresh()
    assert reader.age_s == 0.0 and not reader.note
    await reader.close()


async def test_only_one_stuck_probe_at_a_time(tmp_path: Path) -> None:
    """A child that cannot be killed, as in a driver call that never returns; a live process stands in for it."""
    count = tmp_path / "started"
    answer = '{"gpus": {}, "note": "none"}'
    code = f"input(); open({str(count)!r}, 'a').write('x'); print({answer!r})"
    reader = Probe(deadline_s=30, retry_s=0, child=[sys.executable, "-c", code])
    stuck = await asyncio.create_subprocess_exec("sleep", "600")
    reader.left = stuck
    for _ in range(3):
        await reader.refresh()
    assert f"stuck in the driver (pid {stuck.pid})" in reader.note
    assert not count.exists(), "another one would only wait beside it"
    stuck.kill()
    await stuck.wait()
    await reader.refresh()
    assert (reader.note, count.read_text()) == ("none", "x")
    await reader.close()


async def test_a_probe_that_talks_nonsense_is_replaced() -> None:
    code = "import sys; sys.stdin.readline(); print('nonsense', flush=True); sys.stdin.readline()"
    reader = Probe(deadline_s=20, retry_s=5, child=[sys.executable, "-c", code])
    await reader.refresh()
    assert "failed" in reader.note and reader.child is None


def test_gpus_reach_the_console_and_a_lost_one_is_an_event(node: Node, nvml: Simulation) -> None:
    console = node.console()
    until(lambda: len(console.tree.get("gpus", {})) == 2)
    assert console.state().gpus[card(0).uuid].simulated
    Driver((card(0), card(1, lost=15))).write(nvml.state)
    event = until(lambda: next((one for one in console.numbered() if one.kind == "gpu.lost"), None))
    assert event.severity == "critical" and card(1).uuid in event.text
    assert console.state().gpus[card(0).uuid].temperature_c == 35.0


def test_a_wedged_probe_ages_and_the_rest_goes_on(node: Node, nvml: Simulation) -> None:
    console = node.console()
    until(lambda: console.tree.get("gpu_age_s") == 0.0)
    Driver((card(0), card(1)), wedge_s=600).write(nvml.state)
    until(lambda: (console.tree.get("gpu_age_s") or 0) >= 4)
    state = until(lambda: console.state() if console.state().host.gpu_note else None)
    assert "did not answer" in state.host.gpu_note and len(state.gpus) == 2
    assert console.ask(wire.ListRuns()).ok


def probes(node: Node) -> set[int]:
    return {pid for pid in node.processes() if b"probe" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")}


def test_a_probe_that_outlives_its_daemon_keeps_the_next_from_nothing(node: Node) -> None:
    """It is forked from the daemon: it must have none of its locks, sockets and files, and not look like a second."""
    console = node.console()
    until(lambda: console.tree.get("gpu_age_s") == 0.0)
    daemon = node.daemon()
    (probe,) = until(lambda: probes(node))
    handles = {str(entry.readlink()) for entry in Path(f"/proc/{probe}/fd").iterdir()}
    assert not [name for name in handles if str(node.state.path) in name or str(node.runtime) in name], handles
    os.kill(probe, signal.SIGSTOP)  # as one that hangs in the driver
    assert daemon.send(signal.SIGKILL)
    again = node.console()
    assert until(lambda: again.tree.get("host"))
    assert node.daemon() != daemon and probe in probes(node)


def test_processes_belong_to_runs_by_recorded_identity_and_kills_wait_for_memory(node: Node, nvml: Simulation) -> None:
    console = node.console()
    folder = node.start("obedient")
    ranks = [one.identity for one in kept.rank_records(folder)]
    pids = [one.pid for one in ranks if one is not None]
    held = tuple((pid, 1 << 30) for pid in (*pids, os.getpid()))
    Driver((card(0, processes=held),)).write(nvml.state)

    def seen() -> tuple[GpuProcess, ...]:
        found = console.tree.get("gpus", {}).get(card(0).uuid)
        return console.state().gpus[card(0).uuid].processes if found else ()

    until(lambda: len([one for one in seen() if one.run]) == 2)
    assert {one.pid: (one.run, one.rank) for one in seen()} == {
        pids[0]: (folder.name, 0),
        pids[1]: (folder.name, 1),
        os.getpid(): (None, None),
    }
    order = console.give(wire.Kill(folder.name, hard=True))
    until(lambda: node.ended(folder))
    assert order not in console.replies, "the driver still counts their memory"
    Driver((card(0, processes=held[2:]),)).write(nvml.state)
    reply = until(lambda: console.replies.get(order))
    assert reply.ok and reply.result["gpu_pids_left"] == [] and set(reply.result["gone"]) >= set(pids)


def test_a_pid_of_another_namespace_is_nobody() -> None:
    me = ProcessIdentity.of(os.getpid())
    assert me is not None
    ranks = {me.pid: (me, ("run-1", 0))}
    assert attribute(GpuProcess(me.pid, name="python"), ranks).run == "run-1"
    assert attribute(GpuProcess(me.pid, name=""), ranks).run is None, "unnamed: the pid may mean somebody else here"
    older = ProcessIdentity(me.boot_id, me.pid_namespace, me.pid, me.start_ticks - 1)
    assert attribute(GpuProcess(me.pid, name="python"), {me.pid: (older, ("run-1", 0))}).run is None


def test_in_a_container_only_who_holds_the_device_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Raw:
        pid = os.getpid()
        usedGpuMemory = 1 << 30

    monkeypatch.setattr(holder, "NAMES_MEAN_THE_SAME", False)
    assert holder.process(Raw()).name == ""
    monkeypatch.setattr(holder, "NAMES_MEAN_THE_SAME", True)
    assert holder.process(Raw()).name != "" and holder.process(Raw()).user != ""
