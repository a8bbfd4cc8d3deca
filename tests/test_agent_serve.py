"""The daemon and its consoles: reconnects, repeated orders, read-only, misbehaviour, hand-over."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agent import attach, bridge, codec, kept, reexec, wire
from agent.conversation import Conversation
from agent.events import Events
from agent.state import StateFolder
from jobs.identity import ProcessIdentity
from jobs.run_folder import RunFolder
from tests.fakes.mutation import AgentEnd
from tests.fakes.node import Console, Node, until


def raw_connection(node: Node, line: bytes = b"") -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(30)
    connection.connect(str(node.door.socket))
    connection.sendall(line or codec.encode(bridge.own_bridge(False)))
    return connection


def read_all(connection: socket.socket) -> bytes:
    got = b""
    try:
        while block := connection.recv(65536):
            got += block
    except ConnectionResetError:
        pass
    connection.close()
    return got


def seen(console: Console, folder: RunFolder) -> bool:
    return console.run_phase(folder.name) == "training"


def daemons(node: Node) -> list[int]:
    return [pid for pid in node.processes() if b"serve" in command(pid)]


def command(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def kill_daemon(node: Node) -> None:
    daemon = node.daemon()
    assert daemon.send(signal.SIGKILL)
    until(lambda: daemon.state() == "gone")


def test_first_attach_starts_one_daemon_for_all(node: Node) -> None:
    consoles = [node.console() for _ in range(4)]
    welcomes = [one.welcome() for one in consoles]
    assert len({one.stream for one in welcomes}) == 1
    assert welcomes[0].node == node.state.node and not welcomes[0].read_only
    for one in consoles:
        until(lambda one=one: one.levels and one.levels[0].keyframe)  # type: ignore[misc]
        assert one.state().host.ram_total_bytes
    until(lambda: len(daemons(node)) == 1)
    assert daemons(node) == [node.daemon().pid]


def test_of_bridges_that_come_at_once_one_starts_the_daemon(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each starts one again and again until the first is up, and takes the machine from it."""
    starters: list[subprocess.Popen[bytes]] = []
    real = attach.start

    def start(state: StateFolder) -> subprocess.Popen[bytes]:
        starters.append(real(state))
        return starters[-1]

    monkeypatch.setattr(attach, "start", start)
    node.state.create()
    node.door.check()
    with ThreadPoolExecutor(6) as pool:
        connections = list(pool.map(lambda _n: attach.meet(node.state, node.door, False), range(6)))
    for connection in connections:
        connection.close()
    for starter in starters:
        starter.kill()
        starter.communicate()
    assert len(connections) == 6 and len(starters) == 1


def test_everything_on_disk_is_private(node: Node) -> None:
    console = node.console()
    folder = node.start("obedient", ranks=1)
    until(lambda: seen(console, folder))
    console.ask(wire.Kill(folder.name, grace_s=20))
    until(lambda: node.state.audit.exists())
    modes = {path: path.stat().st_mode & 0o777 for path in [node.state.home, *node.state.home.rglob("*")]}
    modes |= {path: path.stat().st_mode & 0o777 for path in [node.runtime, *node.runtime.iterdir()]}
    assert {path for path, mode in modes.items() if mode & 0o077} == set()


def test_the_link_and_the_daemon_may_die_and_the_run_goes_on(node: Node) -> None:
    console = node.console()
    folder = node.start("obedient")
    until(lambda: seen(console, folder))
    console.process.kill()
    kill_daemon(node)
    again = node.console(hello=wire.Hello(wire.PROTOCOL, wire.VERSION, "tester", console.welcome().stream, 0))
    until(lambda: seen(again, folder))
    step = again.state().runs[folder.name].step or 0
    until(lambda: (again.state().runs[folder.name].step or 0) > step)
    reply = again.ask(wire.Kill(folder.name, grace_s=30))
    assert reply.ok and reply.result["reason"] == "stopped" and reply.result["alive"] == []
    assert len(reply.result["gone"]) >= 3
    until(lambda: again.run_phase(folder.name) == "ended")
    assert again.state().runs[folder.name].reason == "stopped"


def test_events_are_replayed_once_and_in_order_over_a_daemon_that_was_killed(node: Node) -> None:
    first = node.console()
    folder = node.start("crash")
    until(lambda: any(event.kind == "run.ended" for event in first.numbered()))
    until(lambda: len(first.numbered()) >= 4)
    kill_daemon(node)
    everything = node.console()
    until(lambda: len(everything.numbered()) > len(first.numbered()))
    numbers = [event.seq for event in everything.numbered()]
    assert numbers == list(range(1, len(numbers) + 1))
    kinds = [event.kind for event in everything.numbered() if event.run == folder.name]
    assert sorted(kinds) == ["run.ended", "run.error", "run.started"]
    since = wire.Hello(wire.PROTOCOL, wire.VERSION, "tester", everything.welcome().stream, numbers[-1] - 1)
    rest = node.console(hello=since)
    until(lambda: rest.levels)
    assert [event.seq for event in rest.numbered()] == [numbers[-1]]


def test_same_order_id_is_carried_out_once_also_over_a_restart(node: Node) -> None:
    console = node.console()
    folder = node.start("obedient")
    until(lambda: seen(console, folder))
    first = console.ask(wire.Kill(folder.name, grace_s=30), "same-id")
    assert first.ok and first.result["gone"]
    assert console.ask(wire.Kill(folder.name, grace_s=30), "same-id") == first
    kill_daemon(node)
    console = node.console()
    assert console.ask(wire.Kill(folder.name, grace_s=30), "same-id") == first
    other = console.ask(wire.Kill("another-run"), "same-id")
    assert not other.ok and "something else" in other.error
    entries = [json.loads(line) for line in node.state.audit.read_text().splitlines()]
    assert [(one["verb"], one["run"], one["outcome"]) for one in entries] == [("kill", folder.name, "done")]
    assert "tester@here" in entries[0]["operator"]


def test_an_order_under_way_is_waited_for_by_whoever_asks_again(node: Node) -> None:
    console, other = node.console(), node.console()
    folder = node.start("deaf")
    until(lambda: console.run_phase(folder.name) == "training")
    console.give(wire.Kill(folder.name, grace_s=2), "long-one")
    until(lambda: console.run_phase(folder.name) == "stopping")
    impatient = other.ask(wire.Kill(folder.name, grace_s=2), "long-one", deadline_s=0.05)
    assert not impatient.ok and "not finished" in impatient.error
    both = [one.ask(wire.Kill(folder.name, grace_s=2), "long-one") for one in (other, console)]
    assert both[0].ok and both[0].result["reason"] == "killed" and both[0] == both[1]


def test_a_kill_survives_the_daemon_that_was_asked(node: Node) -> None:
    console = node.console()
    folder = node.start("deaf")
    until(lambda: console.run_phase(folder.name) == "training")
    console.give(wire.Kill(folder.name, grace_s=1), "the-kill")
    until(lambda: console.run_phase(folder.name) == "stopping")
    kill_daemon(node)
    reply = node.console().ask(wire.Kill(folder.name, grace_s=1), "the-kill")
    assert reply.ok and reply.result["reason"] == "killed"


def test_a_lost_keeper_is_replaced_by_the_daemon(node: Node) -> None:
    console = node.console()
    folder = node.start("obedient")
    until(lambda: seen(console, folder))
    first = until(lambda: kept.read(folder)).keeper
    assert first is not None and first.send(signal.SIGKILL)
    second = until(lambda: (now := kept.read(folder)) and now.keeper != first and now.keeper)
    assert isinstance(second, ProcessIdentity) and second.state() == "alive"
    reply = console.ask(wire.Kill(folder.name, hard=True))
    assert reply.ok and reply.result["reason"] == "killed"


@pytest.mark.parametrize("how", ["forced command", "hello", "older console"])
def test_read_only_refuses_whatever_changes_something(node: Node, how: str) -> None:
    hello = wire.Hello(
        wire.PROTOCOL, "0.0.1" if how == "older console" else wire.VERSION, "guest", "", 0, how == "hello"
    )
    console = node.console(*(["--read-only"] if how == "forced command" else []), hello=hello)
    assert console.welcome().read_only
    folder = node.start("obedient", ranks=1)
    until(lambda: seen(console, folder))
    for body in (wire.Kill(folder.name), wire.Steer(folder.name, "stop"), wire.Launch("model: x")):
        reply = console.ask(body)
        assert not reply.ok and "read-only" in reply.error
    assert console.ask(wire.ListRuns()).result["runs"][0]["run"] == folder.name
    assert "step 1" in console.ask(wire.Logs(folder.name, None)).result["text"]
    assert len(node.state.audit.read_text().splitlines()) == 3
    assert not node.state.orders.read_text()


def test_read_only_console_cannot_say_it_is_not(node: Node) -> None:
    """The forced command's word stands; a second first line is no message."""
    console = node.console("--read-only")
    assert console.welcome().read_only
    console.raw(codec.encode(bridge.own_bridge(False)))
    console.send(wire.Hello(wire.PROTOCOL, wire.VERSION, "guest"))
    assert "read-only" in console.ask(wire.Kill("some-run")).error


def test_steering_is_answered_by_the_job(node: Node) -> None:
    console = node.console()
    folder = node.start("obedient", ranks=1)
    until(lambda: seen(console, folder))
    reply = console.ask(wire.Steer(folder.name, "stop"))
    assert reply.ok and reply.result["outcome"] == "done"
    assert not console.ask(wire.Steer(folder.name, "fly")).ok
    until(lambda: console.run_phase(folder.name) == "ended")
    late = console.ask(wire.Steer(folder.name, "snapshot"))
    assert not late.ok and "ended" in late.error


def test_logs_and_progress_by_offset_are_whole(node: Node) -> None:
    console = node.console()
    folder = node.start("obedient", ranks=1)
    until(lambda: seen(console, folder))
    console.ask(wire.Kill(folder.name))
    folder.rank_log(3).write_bytes("äöü€\n".encode() * 3000)
    text, at = "", 0
    while True:
        got = console.ask(wire.Logs(folder.name, 3, at, 4097)).result
        text, at = text + got["text"], got["next"]
        if at == got["size"]:
            break
    assert text == "äöü€\n" * 3000
    assert 3 in got["ranks"]
    tail = console.ask(wire.Logs(folder.name, 3, -6)).result
    assert tail["text"] in ("€\n", "ü€\n")
    records: list[dict[str, object]] = []
    at = 0
    while at < (got := console.ask(wire.Progress(folder.name, at, 4096)).result)["size"]:
        records, at = records + got["records"], got["next"]
    kinds = [one["kind"] for one in records + got["records"]]
    assert kinds[0] == "phase" and kinds[-1] == "end"
    assert console.ask(wire.Logs(folder.name, 99)).result["text"] == ""
    assert not console.ask(wire.Logs("../../etc", 0)).ok
    assert not console.ask(wire.Logs(folder.name, -4)).ok


def test_a_log_that_is_a_link_is_not_followed(node: Node, tmp_path: Path) -> None:
    console = node.console()
    folder = node.start("short", ranks=1)
    (tmp_path / "secret").write_text("secret")
    folder.rank_log(5).symlink_to(tmp_path / "secret")
    reply = console.ask(wire.Logs(folder.name, 5))
    assert not reply.ok and "secret" not in str(reply.result)


def test_one_bad_connection_costs_no_other(node: Node) -> None:
    good = node.console()
    good.welcome()
    hello = wire.encode(wire.Hello(wire.PROTOCOL, wire.VERSION, "mallory"))
    endless = raw_connection(node)
    endless.sendall(hello)
    with pytest.raises(OSError):
        while True:
            endless.sendall(b"x" * (1 << 20))
    endless.close()
    nonsense = raw_connection(node)
    nonsense.sendall(hello + b"{}\n" * 20)
    assert b"Welcome" in read_all(nonsense)
    rude = raw_connection(node)
    rude.sendall(b'{"t":"Ack","n":1}\n')
    assert read_all(rude) == b"come in\n"
    deep = raw_connection(node, b"[" * 100000 + b"\n")
    assert read_all(deep) == b""
    console = node.console()
    console.raw(b'{"t":"Order","id":"novel","deadline_s":5,"body":{"t":"Levitate"}}\n')
    assert "does not understand" in until(lambda: console.replies.get("novel")).error
    before = len(good.levels)
    until(lambda: len(good.levels) > before)


def test_a_console_that_takes_nothing_gets_no_more_than_two_levels(node: Node) -> None:
    lazy, keen = node.console(), node.console()
    lazy.acks = False
    until(lambda: len(keen.levels) > 4)
    assert len(lazy.levels) <= wire.UNACKED_LEVELS
    lazy.send(wire.Ack(lazy.levels[-1].n))
    until(lambda: len(lazy.levels) > wire.UNACKED_LEVELS)
    assert [level.n for level in lazy.levels] == list(range(1, len(lazy.levels) + 1))


def test_differences_add_up_to_the_state(node: Node) -> None:
    """A console that came early and one that came late know the same."""
    early = node.console()
    folder = node.start("short")
    until(lambda: early.run_phase(folder.name) == "ended")
    late = node.console()
    until(lambda: late.levels)
    assert late.levels[0].keyframe and not any(level.keyframe for level in early.levels[1:])
    until(lambda: early.tree["runs"] == late.tree["runs"])


async def test_a_level_comes_also_when_nothing_changed(tmp_path: Path) -> None:
    """A real machine's figures may change at every tick for as long as anybody waits."""
    levels: list[wire.Level] = []

    class Attentive(Conversation):
        async def send(self, message: wire.FromAgent) -> None:
            assert isinstance(message, wire.Level)
            levels.append(message)
            self.acked = message.n

    still = AgentEnd(Events(tmp_path / "events.jsonl")).node
    telling = asyncio.ensure_future(Attentive(still, None, None, False).tell())  # type: ignore[arg-type]
    try:
        while len(levels) < 2:
            await asyncio.sleep(0.02)
    finally:
        telling.cancel()
    first, beat = levels
    assert first.keyframe and not (beat.keyframe or beat.changed)
    assert beat.gone == []
    assert beat.monotonic_s > first.monotonic_s


def test_other_uids_are_refused_by_the_daemon(node: Node) -> None:
    """Root may open any socket: only the kernel's word on who is calling keeps another user out."""
    console = node.console()
    console.welcome()
    assert os.getuid() == 0, "only root can become somebody else"
    for path in (*reversed(node.door.socket.parents), node.door.socket):
        if path.is_relative_to("/tmp") and path != Path("/tmp"):
            path.chmod(0o777 if path == node.door.socket else 0o711)
    code = (
        "import os, socket, sys; os.setgid(65534); os.setuid(65534)\n"
        "s = socket.socket(socket.AF_UNIX); s.settimeout(30); s.connect(sys.argv[1])\n"
        "try: s.sendall(sys.argv[2].encode() + b'\\n'); print(s.recv(100))\n"
        "except (ConnectionResetError, BrokenPipeError): print(b'')\n"
    )
    hello = codec.encode(bridge.own_bridge(False)).decode().strip()
    done = subprocess.run([sys.executable, "-c", code, str(node.door.socket), hello], capture_output=True, text=True)
    assert done.stdout.strip() == "b''", done.stderr
    until(lambda: "refused a connection of uid 65534" in node.state.log.read_text())


def test_a_newer_bridge_replaces_the_daemon_and_runs_do_not_notice(node: Node) -> None:
    console = node.console()
    folder = node.start("obedient")
    until(lambda: seen(console, folder))
    first = node.daemon()
    guest = raw_connection(node, codec.encode(bridge.Bridge(wire.PROTOCOL, "99.0.0", True)))
    assert guest.recv(100) == b"come in\n", "who may only look replaces nothing"
    guest.close()
    newer = raw_connection(node, codec.encode(bridge.Bridge(wire.PROTOCOL, "99.0.0", False)))
    assert read_all(newer) == b"going\n"
    until(lambda: first.state() == "gone")
    again = node.console()
    until(lambda: seen(again, folder))
    assert node.daemon() != first


def test_a_daemon_nobody_needs_ends(node: Node) -> None:
    node.state.create()
    child = subprocess.Popen(reexec.command("serve", "--idle", "0.5"), env={**os.environ})
    assert child.wait(60) == 0
    assert not node.door.socket.exists()


def test_a_daemon_that_hangs_is_named(node: Node) -> None:
    node.console().welcome()
    daemon = node.daemon()
    daemon.send(signal.SIGSTOP)
    console = node.console()
    assert console.process.wait(60) == 1
    console.over.wait(10)
    reply = console.replies[""]
    assert not reply.ok and "does not answer" in reply.error and str(daemon.pid) in reply.hint
