"""Nodes out of use, the trail of orders, and a key that may only look."""

from __future__ import annotations

import json
import signal
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent import audit, cordon, wire
from console import carry
from console.answers import Answers
from console.link import Inbox, Link
from console.ssh import Dialler
from tests.fakes.node import Node, until
from tests.hosts.sshd import Sshd, running
from tests.test_exec import tunedeck


def test_a_cordon_keeps_runs_away_and_outlives_the_daemon(node: Node) -> None:
    console = node.console()
    assert console.ask(wire.Cordon(True, "ECC errors\x1b[31m")).ok
    until(lambda: "ECC errors" in console.tree.get("host", {}).get("cordon", ""))
    words = console.state().host.cordon
    assert words.startswith("by tester@here (uid ") and words.endswith("UTC: ECC errors")
    node.daemon().send(signal.SIGKILL)
    until(lambda: console.over.is_set())
    again = node.console()
    until(lambda: again.tree.get("host", {}).get("cordon") == words)
    refused = again.ask(wire.Launch("model: x\ndata: {path: example:faults}\nmethod: lora\n"))
    assert not refused.ok and "cordoned" in refused.error and refused.result["kind"] == "cordoned"
    forced = again.ask(wire.Launch("model: x\ndata: {path: example:faults}\nmethod: lora\n", force=True))
    assert "cordoned" not in forced.error, "force goes on to the next check"
    assert again.ask(wire.Cordon(False)).result == {"cordon": ""}
    until(lambda: again.tree["host"]["cordon"] == "")
    assert cordon.of(node.state) is None


def test_a_damaged_cordon_still_holds(node: Node) -> None:
    node.state.create()
    cordon.file(node.state).write_text("{")
    found = cordon.of(node.state)
    assert found is not None and "damaged" in found.words


def test_the_trail_tells_who_what_and_what_came_of_it(node: Node) -> None:
    console = node.console()
    console.ask(wire.Cordon(True, "why"))
    console.ask(wire.Steer("no-such-run", "rollback", {"step": 40}))
    console.ask(wire.Cordon(False))
    found = console.ask(wire.ReadAudit()).result["entries"]
    assert [(one["verb"], one["run"], one["step"]) for one in found] == [
        ("uncordon", None, None),
        ("rollback", "no-such-run", 40),
        ("cordon", None, None),
    ]
    assert all(one["operator"].startswith("tester@here") for one in found)
    assert found[0]["outcome"] == "done" and "no run" in found[1]["outcome"]
    assert len(console.ask(wire.ReadAudit(1)).result["entries"]) == 1
    assert console.ask(wire.ReadAudit(-5)).result["entries"] == []


def test_the_trail_goes_on_over_a_rotation(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.state.create()
    monkeypatch.setattr(audit, "LIMIT_BYTES", 400)
    trail = audit.Audit(node.state)
    for number in range(5):
        trail.note(wire.Order(f"o{number}", 1.0, wire.Kill("run")), "ann", wire.Reply(f"o{number}", True))
    found = [one["order"] for one in audit.newest(node.state, 10)]
    assert found[:2] == ["o4", "o3"] and len(node.state.audit.read_bytes()) <= 800


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Sshd]:
    with running(Sshd(tmp_path / "host")) as one:
        yield one


def test_commands_on_a_real_node(server: Sshd) -> None:
    done = tunedeck(server, "cordon", "-w", "n1", "n1", "--reason", "fan is dead")
    assert done.returncode == 0 and "n1: cordoned by" in done.stdout and "fan is dead" in done.stdout, done.stderr
    assert "fan is dead" in tunedeck(server, "nodes", "-w", "n1").stdout
    assert tunedeck(server, "uncordon", "-w", "n1", "n1").stdout == "n1 takes new runs\n"
    told = json.loads(tunedeck(server, "audit", "-w", "n1", "--json").stdout)["entries"]
    assert [(one["node"], one["verb"]) for one in told] == [("n1", "uncordon"), ("n1", "cordon")]
    assert tunedeck(server, "cordon", "-w", "n1", "n9").returncode == 2


def test_a_key_with_a_forced_command_may_look_and_no_more(server: Sshd, tmp_path: Path) -> None:
    bundle = carry.bundle()
    inbox: Inbox = deque()
    first = Link(server.target(), carry.bundle, inbox, Dialler(server.target(), Answers(), tmp_path / "known")).start()
    until(lambda: first.order(wire.ListRuns(0), 5.0).result(10).ok)
    first.close()
    enter = server.home / ".tunedeck" / "bundles" / bundle.name / "enter.py"
    forced = f'command="python3 {enter} attach --read-only",restrict '
    server.authorized.write_text(forced + server.authorized.read_text())
    dial = Dialler(server.target(), Answers(), tmp_path / "known")
    stream = dial("touch /tmp/this-must-not-be; echo owned")
    stream.end_input()
    said = b""
    while (piece := stream.read_some()) != b"":
        said += piece or b""
    stream.close()
    assert b"owned" not in said
    guest = Link(server.target(), carry.bundle, inbox, dial).start()
    refused = guest.order(wire.Cordon(True, "mine"), 30.0).result(40)
    assert not refused.ok and "read-only" in refused.error, refused
    seen = guest.order(wire.ReadAudit(), 10.0).result(20).result["entries"]
    assert seen[0]["verb"] == "cordon" and "read-only" in seen[0]["outcome"], "what was refused is in the trail, too"
    guest.close()
