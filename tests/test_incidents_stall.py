"""Ranks that hang, call another collective or are slow, and ports that are blocked: all the way through an agent.

The stall is noticed by the agent's own measure, twenty seconds at least; both stalled runs wait for it side by side.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent import reexec
from tests import trainings
from tests.fakes.node import Node, until
from tests.test_incidents import Scene

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

SPACE, ADDRESS = "tunedeck-filter", "10.77.32.11"
SLEEPY = (
    "from jobs.train.encode import Padding as One; padded = One.__call__;"
    " One.__call__ = lambda *given: (time.sleep(0.2), padded(*given))[1]"
)


def stalled(scene: Scene) -> float | None:
    run = scene.console.state().runs.get(scene.folder.name)
    return run.stalled_s if run is not None else None


def test_a_rank_asleep_in_python_and_one_in_another_collective(node: Node, tmp_path: Path) -> None:
    data = trainings.make_data(tmp_path)
    asleep, astray = Scene(node, data), Scene(node, data, ranks=3)
    asleep.astray("time.sleep(3600)")
    astray.astray("dist.barrier()")
    until(lambda: stalled(asleep), 300)
    hung = asleep.fault(tmp_path)
    assert (hung.kind, hung.culprit.ranks, hung.culprit.nodes) == ("app.rank-hung", (1,), ("box",))
    assert "stands in astray (train.py:" in hung.cause
    until(lambda: stalled(astray), 300)
    other = astray.fault(tmp_path)
    assert (other.kind, other.culprit.ranks) == ("nccl.collective-mismatch", (1,))
    assert "rank 1 calls gloo:barrier" in other.cause


def test_a_rank_that_waits_for_its_data(node: Node, tmp_path: Path) -> None:
    scene = Scene(node, trainings.make_data(tmp_path))
    scene.astray(SLEEPY)
    until(lambda: scene.steps() > 40, 300)
    fault = scene.fault(tmp_path)
    assert (fault.kind, fault.culprit.ranks) == ("perf.data-slow", (1,)) and "rank 1 needs 0.2" in fault.cause


@pytest.fixture
def filtered() -> Iterator[None]:
    """A network namespace with one interface whose ports a filter drops; who calls gives up after seconds."""

    def within(*words: str) -> None:
        subprocess.run(["ip", "netns", "exec", SPACE, *words], check=True)

    subprocess.run(["ip", "netns", "del", SPACE], check=False, capture_output=True)
    subprocess.run(["ip", "netns", "add", SPACE], check=True)
    try:
        within("ip", "link", "add", "net0", "type", "veth", "peer", "name", "plug")
        within("ip", "addr", "add", f"{ADDRESS}/24", "dev", "net0")
        for name in ("lo", "plug", "net0"):
            within("ip", "link", "set", name, "up")
        within("sysctl", "-qw", "net.ipv4.tcp_syn_retries=1")
        within("iptables", "-A", "INPUT", "-p", "tcp", "--syn", "-d", ADDRESS, "-j", "DROP")
        yield
    finally:
        subprocess.run(["ip", "netns", "del", SPACE], check=True)


@pytest.mark.usefixtures("filtered")
def test_a_port_that_a_filter_blocks(node: Node, tmp_path: Path) -> None:
    daemon = subprocess.Popen(["nsenter", f"--net=/run/netns/{SPACE}", *reexec.command("serve")])
    try:
        node.daemon()
        scene = Scene(node, trainings.make_data(tmp_path))
        scene.astray(first='os.environ["GLOO_SOCKET_IFNAME"] = "net0"')
        scene.ended()
        fault = scene.fault(tmp_path)
        assert (fault.kind, fault.culprit.nodes, fault.culprit.nics) == ("net.port-blocked", ("box",), ("net0",))
        assert f"of {ADDRESS} on net0" in fault.cause and "port 0" not in fault.cause
    finally:
        node.close()
        daemon.wait(60)
