"""A run that never leaves its node and cannot reach the node's own ports: which port, on which interface."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.triage import triage
from jobs import durable
from tests.test_triage_run import Told

ROUTED = (
    "[E1201 05:02:25.630738974 ProcessGroupGloo.cpp:67] Gloo connectFullMesh failed with [gloo/pair.cc:152]"
    " timed out connecting: SO_ERROR: Connection timed out, remote=[10.77.32.11]:397$0\n"
)
STORE = (
    "[E1201 05:04:07.999756858 socket.cpp:1028] [c10d] The client socket has timed out after 60000ms while trying to"
    " connect to (127.0.0.1, 46071).\n"
)


def told_by_two(folder: Path, log: str, *names: str) -> list[Path]:
    """What each of the nodes told of its own part of a run in which `log` was printed."""
    paths = []
    for name in names:
        told = Told(folder / name, 2)
        told.state("failed", "the launcher ended with exit code 1")
        durable.write_bytes(told.folder.rank_log(0), log.encode())
        (told.folder.path / "node").mkdir()
        durable.write_json(told.folder.path / "node" / "node.json", {"tunedeck": "node", "hostname": name})
        (told.folder.path / "node" / "addresses.txt").write_text("lo   UNKNOWN 127.0.0.1\nib0  UNKNOWN 10.77.32.11\n")
        paths.append(told.folder.path)
    return paths


@pytest.mark.parametrize(
    ("log", "nic", "words"),
    [
        (ROUTED, "ib0", "nothing gets through to port 36097 of 10.77.32.11 on ib0"),
        (ROUTED.replace("10.77.32.11]:397$0", "127.0.0.1]:4711"), "lo", "port 4711 of 127.0.0.1 on lo"),
        (STORE, "lo", "port 46071 of 127.0.0.1 on lo"),
    ],
)
def test_a_port_of_its_own(log: str, nic: str, words: str, tmp_path: Path) -> None:
    fault = triage(told_by_two(tmp_path, log, "big-box")).faults[0]
    assert (fault.kind, fault.culprit.nodes, fault.culprit.nics) == ("net.port-blocked", ("big-box",), (nic,))
    assert words in fault.cause


def test_loopback_that_another_node_calls_is_no_filter(tmp_path: Path) -> None:
    log = ROUTED.replace("10.77.32.11]:397$0", "127.0.0.1]:4711")
    assert triage(told_by_two(tmp_path, log, "box-1", "box-2")).faults[0].kind == "gloo.interface"
