"""The whole way: console, real sshd, carried agent, real training; and what happens when the way breaks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent import wire
from console import carry, link, talk
from console.answers import Answers
from console.config import Config
from console.demo.server import DemoServer
from console.fleet import LinkView
from console.link import Inbox, Link, connector
from console.ssh import Dialler
from console.target import Target
from tests.hosts.sshd import Sshd, running

SPEC = """\
name: link
model: {model}
data: {{path: example:faults, max_length: 64}}
method: lora
lora: {{rank: 2}}
train: {{steps: 100000, batch_size: 1}}
hardware: {{processes: 1, device: cpu}}
"""


class Ear:
    """A link and what it has told so far."""

    def __init__(self, target: Target, folder: Path) -> None:
        self.inbox: Inbox = deque()
        self.heard: list[wire.FromAgent | LinkView] = []
        answers = Answers()
        dial = Dialler(target, answers, folder / "accepted")
        self.link = Link(target, carry.bundle, self.inbox, dial, answers=answers).start()

    def until(self, done: Callable[[], object], timeout_s: float = 90.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not done():
            while self.inbox:
                self.heard.append(self.inbox.popleft()[1])
            assert time.monotonic() < deadline, [m for m in self.heard if isinstance(m, LinkView)][-10:]
            time.sleep(0.01)

    def ask(self, body: wire.Body, timeout_s: float = 120.0) -> wire.Reply:
        return self.link.order(body, timeout_s).result(timeout_s + 10)

    @property
    def phases(self) -> list[str]:
        phases = [message.phase for message in self.heard if isinstance(message, LinkView)]
        return [phase for index, phase in enumerate(phases) if index == 0 or phases[index - 1] != phase]

    def live(self, times: int = 1) -> None:
        self.until(lambda: self.phases.count("live") >= times)

    def down(self) -> LinkView:
        self.until(lambda: "down" in self.phases)
        return next(m for m in self.heard if isinstance(m, LinkView) and m.phase == "down")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Sshd]:
    with running(Sshd(tmp_path / "node")) as server:
        yield server


@pytest.fixture
def ear(node: Sshd, tmp_path: Path) -> Iterator[Ear]:
    ear = Ear(node.target(), tmp_path)
    yield ear
    ear.link.close()


def model(folder: Path) -> Path:
    make = [sys.executable, "-m", "jobs.train.pretrained", "--random", "--out", str(folder)]
    subprocess.run(make, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return folder


def whole_log(ear: Ear, run: str, offset: int, until_byte: int) -> tuple[str, int]:
    text = ""
    while offset < until_byte:
        reply = ear.ask(wire.Logs(run, None, offset, 4096))
        assert reply.ok, reply.error
        text, offset = text + reply.result["text"], reply.result["next"]
    return text, offset


def steps(ear: Ear, run: str) -> list[int]:
    offset, found = 0, []
    while True:
        reply = ear.ask(wire.Progress(run, offset))
        assert reply.ok, reply.error
        found += [record["step"] for record in reply.result["records"] if record["kind"] == "step"]
        offset = reply.result["next"]
        if offset >= reply.result["size"]:
            return found


def test_a_run_does_not_notice_that_the_link_broke_and_the_console_misses_nothing(
    node: Sshd, ear: Ear, tmp_path: Path
) -> None:
    spec = SPEC.format(model=model(tmp_path / "model"))
    launched = ear.ask(wire.Launch(spec, "link.yaml", force=True))
    assert launched.ok, (launched.error, launched.hint)
    run = launched.result["run"]
    ear.until(lambda: steps(ear, run), 120.0)
    before = steps(ear, run)
    node.kill(node.sessions())
    ear.live(times=2)
    ear.until(lambda: steps(ear, run)[-1] > before[-1] + 3)
    after = steps(ear, run)
    assert after == list(range(1, len(after) + 1)), "every step once, across the break"
    killed = ear.ask(wire.Kill(run, grace_s=20.0))
    assert killed.ok and killed.result["alive"] == [] and killed.result["gone"], (killed.error, killed.result)
    ear.until(lambda: any(isinstance(m, wire.Event) and m.kind == "run.ended" for m in ear.heard))
    events = [message.seq for message in ear.heard if isinstance(message, wire.Event)]
    assert events == list(range(1, len(events) + 1)), "no event missing or doubled"
    size = ear.ask(wire.Logs(run, None)).result["size"]
    text, _offset = whole_log(ear, run, 0, size)
    files = list(node.home.glob(f".tunedeck/nodes/*/runs/{run}/logs/launcher.log"))
    assert [file.read_text() for file in files] == [text]


def test_a_bare_node_carries_once(node: Sshd, ear: Ear, tmp_path: Path) -> None:
    ear.live()
    assert ear.phases == ["connecting", "carrying", "live"]
    again = Ear(node.target(), tmp_path)
    again.live()
    again.link.close()
    assert again.phases == ["connecting", "live"]


def test_a_daemon_that_was_killed_is_started_again(node: Sshd, ear: Ear) -> None:
    ear.live()
    streams = {m.stream for m in ear.heard if isinstance(m, wire.Welcome)}
    for pid in node.agents():
        if b"serve" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
    ear.live(times=2)
    assert {m.stream for m in ear.heard if isinstance(m, wire.Welcome)} == streams, "the events go on"


def test_an_sshd_that_was_away_is_found_again(node: Sshd, ear: Ear) -> None:
    ear.live()
    assert node.process
    node.kill(node.sessions() | {node.process.pid})
    node.process.wait(10)
    ear.until(lambda: any(isinstance(m, LinkView) and m.kind == "refused" for m in ear.heard))
    (node.folder / "sshd.log").unlink()
    node.start()
    ear.live(times=2)


def frozen(node: Sshd, freeze: bool) -> None:
    """The sessions' processes stop, as if the machine had: nothing is answered, nothing is closed."""
    for pid in node.sessions():
        os.kill(pid, signal.SIGSTOP if freeze else signal.SIGCONT)


def test_a_peer_that_falls_silent_is_noticed(node: Sshd, ear: Ear, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (link, talk):
        monkeypatch.setattr(module, "STALE_AFTER_S", 2.5)
    monkeypatch.setattr(talk, "DEAD_AFTER_S", 4.0)
    ear.live()
    frozen(node, True)
    ear.live(times=2)
    assert ear.phases[-4:] == ["live", "stale", "down", "live"]


def test_the_deadlines_in_force_notice_a_dead_peer_within_ten_seconds() -> None:
    assert wire.HEARTBEAT_S < talk.STALE_AFTER_S < talk.DEAD_AFTER_S <= 10.0
    assert max(link.RETRY_S) <= 5.0


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def far(tmp_path: Path) -> Iterator[tuple[Sshd, str]]:
    """A node in a network of its own, and the name of the cable to it."""
    space, cable, third = f"td{os.getpid()}", f"tdc{os.getpid() % 100000}", os.getpid() % 250
    ip("netns", "add", space)
    try:
        ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
        ip("addr", "add", f"10.79.{third}.1/24", "dev", cable)
        ip("link", "set", cable, "up")
        ip("-n", space, "addr", "add", f"10.79.{third}.2/24", "dev", "eth0")
        ip("-n", space, "link", "set", "eth0", "up")
        ip("-n", space, "link", "set", "lo", "up")
        prefix = ("ip", "netns", "exec", space)
        with running(Sshd(tmp_path / "far", f"10.79.{third}.2", prefix=prefix)) as server:
            yield server, cable
    finally:
        subprocess.run(["ip", "link", "del", cable], check=False, capture_output=True)
        ip("netns", "del", space)


if os.getuid() == 0:  # a network of one's own takes root

    def test_a_cable_pulled_out_and_put_back(far: tuple[Sshd, str], tmp_path: Path) -> None:
        server, cable = far
        ear = Ear(server.target(), tmp_path)
        try:
            ear.live()
            ip("link", "set", cable, "down")
            view = ear.down()
            assert view.kind == "lost"
            ear.until(lambda: any(isinstance(m, LinkView) and m.kind in ("timeout", "unreachable") for m in ear.heard))
            ip("link", "set", cable, "up")
            ear.live(times=2)
        finally:
            ear.link.close()


def test_nodes_of_the_demo_server(tmp_path: Path) -> None:
    """Several nodes in one process, each with its own home and agent; stopping it leaves daemons and nothing else."""
    environs = {}
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
        environs[name] = {"HOME": str(tmp_path / name), "PATH": path, "TUNEDECK_RUNTIME": str(tmp_path / name / "door")}
    server = DemoServer(tmp_path / "server", environs)
    server.start()
    config = Config(tuple(server.targets()), tmp_path / "config", tmp_path / "state")
    inbox: Inbox = deque()
    connect = connector(config)
    links = [connect(name, inbox) for name in environs]
    live: set[str] = set()

    def pump(done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not done():
            while inbox:
                name, message = inbox.popleft()
                if isinstance(message, LinkView) and message.phase in ("live", "down"):
                    (live.add if message.phase == "live" else live.discard)(name)
            assert time.monotonic() < deadline
            time.sleep(0.01)

    try:
        pump(lambda: len(live) == 2)
        assert server.visitors() == 2
        assert all((tmp_path / name / ".tunedeck/nodes").is_dir() for name in environs)
        server.cut()
        pump(lambda: not live)
        pump(lambda: len(live) == 2)
        for one in links:
            one.close()
        server.stop()
        assert (tmp_path / "server/client_key").stat().st_mode & 0o777 == 0o600
        left = processes(tmp_path)
        assert left and all("serve" in line or "probe" in line for line in left.values()), left
    finally:
        for one in links:
            one.close()
        server.stop()
        for pid in processes(tmp_path):
            os.kill(pid, signal.SIGKILL)


def processes(folder: Path) -> dict[int, str]:
    """Those that run out of this folder, once attaches have had the time to end."""
    deadline = time.monotonic() + 20
    while True:
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and int(entry.name) != os.getpid():
                try:
                    line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                except OSError:
                    continue
                if str(folder) in line:
                    found[int(entry.name)] = line
        if not any("attach" in line for line in found.values()) or time.monotonic() > deadline:
            return found
        time.sleep(0.05)
