"""Three machines in networks of their own, real sshd, the links as the console uses them: what befalls the way there.

Each test prints what was seen: `pytest -s` shows it.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent import wire
from console.fleet import LinkView
from console.ssh import HANDSHAKES
from console.target import Target
from jobs import durable
from jobs.run_folder import RunFolder
from tests.bench.links import bare
from tests.hosts.delay import delayed
from tests.hosts.machine import Machine, machine
from tests.hosts.netns import Cable, bridge
from tests.hosts.odd import build
from tests.hosts.sshd import ME, Sshd, running
from tests.hosts.watch import Beat, Count, Watch, watching

pytestmark = pytest.mark.slow
PROMISED_S = 10.0
"""For a dead peer to be noticed, and for a node to be back once the cause has ended"""
WEATHER_S = 30.0


@dataclass
class World:
    """Three machines, the second and third with one home; the first one's disk is small, the third one's clock odd."""

    machines: dict[str, Machine]
    watch: Watch
    cables: dict[str, Cable]
    spare: Cable
    clock: Path

    def kill(self, name: str, *words: str) -> None:
        there = self.machines[name]
        there.server.kill({pid for word in words for pid in there.processes(word)})

    def back(self, name: str) -> float:
        return self.watch.until(lambda: self.watch.live(name))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("world")
    clock = folder / "clock"
    clock.write_text("0")
    odd = {"LD_PRELOAD": str(build(folder)), "ODD_CLOCK": str(clock)}
    small = f"mount -t tmpfs -o size=24m tmpfs {folder}/one/home"
    with ExitStack() as stack:
        cables = stack.enter_context(bridge(4))
        one = stack.enter_context(machine(folder, "one", cables[0], (small,)))
        two = stack.enter_context(machine(folder, "two", cables[1]))
        three = stack.enter_context(machine(folder, "three", cables[2], extra=odd, home=two.server.home))
        machines = {"one": one, "two": two, "three": three}
        targets = [there.server.target(name=name) for name, there in machines.items()]
        watch = stack.enter_context(watching(targets, folder))
        watch.until(lambda: watch.live(*machines))
        for there in machines.values():
            there.spot.start()
        yield World(machines, watch, dict(zip(machines, cables[:3], strict=True)), cables[3], clock)


@dataclass
class Weather:
    """What was seen while for half a minute one machine's cable was out and another's lost a fifth of all packets."""

    began: float
    ended: float
    noticed_s: float
    back_s: dict[str, float]
    views: dict[str, list[tuple[float, LinkView]]]
    counts: dict[str, Count]


@pytest.fixture(scope="module")
def weather(world: World) -> Weather:
    watch, beats = world.watch, [Beat(there) for there in world.machines.values()]

    def beat() -> None:
        for one in beats:
            one()

    began = time.monotonic()
    world.cables["one"].up(False)
    world.cables["two"].lose(0.2)
    noticed_s = watch.until(lambda: watch.view("one").phase == "down", 30.0, beat)
    watch.until(lambda: time.monotonic() - began > WEATHER_S, 2 * WEATHER_S, beat)
    world.cables["one"].up(True)
    world.cables["two"].lose(0.0)
    ended = time.monotonic()
    back_s: dict[str, float] = {}

    def back() -> bool:
        for name in world.machines:
            if watch.live(name):
                back_s.setdefault(name, time.monotonic() - ended)
        return len(back_s) == len(world.machines)

    watch.until(back, 60.0, beat)
    watch.until(lambda: all(one.idle() for one in beats))
    counts = {name: watch.count(name, there) for name, there in world.machines.items()}
    views = {name: [(at, view) for at, view in watch.views(name) if at >= began] for name in world.machines}
    return Weather(began, ended, noticed_s, back_s, views, counts)


def said(scenario: str, *figures: object) -> None:
    print(f"\n{scenario:32}", *figures, sep="  ", end="", flush=True)


def test_a_cable_that_is_out_for_half_a_minute(world: World, weather: Weather) -> None:
    views, count = weather.views["one"], weather.counts["one"]
    story = [(round(at - weather.began, 1), view.phase, view.kind) for at, view in views]
    said("link down", f"noticed after {weather.noticed_s:.1f} s", f"back after {weather.back_s['one']:.1f} s", count)
    assert [view.phase for _at, view in views] == ["stale", "down", "live"], story
    assert weather.noticed_s <= PROMISED_S and weather.back_s["one"] <= PROMISED_S, story
    assert not world.watch.untruths("one")
    assert count.whole and count.sent > WEATHER_S
    assert weather.views["three"] == [], "nobody else noticed"
    assert weather.counts["three"].whole


def test_a_fifth_of_all_packets_lost(world: World, weather: Weather) -> None:
    views, count = weather.views["two"], weather.counts["two"]
    story = [(round(at - weather.began, 1), view.phase, view.kind) for at, view in views]
    said("20 % loss", f"back after {weather.back_s['two']:.1f} s", count, f"claimed {story or 'live all along'}")
    assert weather.back_s["two"] <= PROMISED_S, story
    assert not world.watch.untruths("two")
    assert count.whole and count.sent > WEATHER_S


def test_an_sshd_that_is_killed_and_comes_back(world: World) -> None:
    watch, there = world.watch, world.machines["three"]
    server = there.server
    assert server.process
    began = time.monotonic()
    server.kill({server.process.pid} | server.sessions())
    server.process.wait(10)
    noticed_s = watch.until(lambda: watch.view("three").kind == "refused")
    beat = Beat(there)
    watch.until(lambda: time.monotonic() - began > 5.0, meanwhile=beat)
    server.start()
    back_s = world.back("three")
    watch.until(beat.idle)
    count = watch.count("three", there)
    said("sshd killed", f"refused told after {noticed_s:.1f} s", f"back after {back_s:.1f} s", count)
    assert max(noticed_s, back_s) <= PROMISED_S and count.whole
    assert not watch.untruths("three")


def test_an_agent_that_is_killed(world: World) -> None:
    watch, there, been = world.watch, world.machines["three"], len(world.watch.views("three"))
    stream = watch.events("three")[-1].stream
    world.kill("three", "serve")
    noticed_s = watch.until(lambda: len(watch.views("three")) > been)
    back_s = world.back("three")
    beat = Beat(there)
    watch.until(lambda: beat.done >= 3, meanwhile=beat)
    watch.until(beat.idle)
    count = watch.count("three", there)
    said("agent killed", f"noticed after {noticed_s:.1f} s", f"back after {back_s:.1f} s", count)
    assert watch.events("three")[-1].stream == stream, "the events go on"
    assert max(noticed_s, back_s) <= PROMISED_S and count.whole
    assert not watch.untruths("three")


def test_a_full_disk_and_an_agent_that_cannot_start_on_it(world: World) -> None:
    watch, there = world.watch, world.machines["one"]
    filler = there.inside(there.server.home) / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    refused = there.spot.order(wire.Cordon(True, "no room"), 20.0).result(30)
    assert not refused.ok and "full" in refused.error
    assert watch.live("one"), "an agent that runs goes on telling"
    world.kill("one", "serve")
    noticed_s = watch.until(lambda: watch.view("one").phase == "down")
    watch.until(lambda: "full" in watch.view("one").why)
    told = watch.view("one")
    filler.unlink()
    back_s = world.back("one")
    beat = Beat(there)
    watch.until(lambda: beat.done >= 3, meanwhile=beat)
    watch.until(beat.idle)
    count = watch.count("one", there)
    said(
        "disk full",
        f"noticed after {noticed_s:.1f} s",
        f"back after {back_s:.1f} s",
        count,
        f"told: {told.kind}: {told.why}",
    )
    assert max(noticed_s, back_s) <= PROMISED_S and count.whole
    assert not watch.untruths("one")


def test_a_clock_that_jumps(world: World) -> None:
    """What `time.time` says on that machine, for real; the machine that shares its home keeps its own."""
    watch, there, been = world.watch, world.machines["three"], len(world.watch.views("three"))
    nodes, beat = watch.session.fleet.nodes, Beat(there)
    kinds = []
    for jump_s in (86400.0, -86400.0, 0.0):
        began = len(there.journal())
        world.clock.write_text(f"{jump_s:.0f}\n")

        def followed(off_s: float = jump_s) -> bool:
            return abs((nodes["three"].clock_offset_s or 0.0) - off_s) < 5.0

        took_s = watch.until(followed, meanwhile=beat)
        done = beat.done
        watch.until(lambda due=done + 2: beat.done >= due, meanwhile=beat)  # type: ignore[misc]
        kinds += [event.kind for event in there.journal()[began:]]
        said("clock jumps", f"{jump_s:+.0f} s", f"offset right after {took_s:.1f} s")
    watch.until(beat.idle)
    count = watch.count("three", there)
    said("clock jumps", count)
    assert count.whole and set(kinds) == {"run.order"}, kinds
    assert len(watch.views("three")) == been, watch.phases("three")
    assert abs(nodes["two"].clock_offset_s or 0.0) < 5.0


def test_a_machine_that_starts_anew_with_another_monotonic_clock(world: World) -> None:
    """As after a reboot: what was kept by that clock must not be believed. Its one jump that can be had here."""
    watch, there = world.watch, world.machines["one"]
    server, plain = there.server, there.server.prefix
    try:
        for days in (100, 0):
            ahead = ("unshare", "--time", f"--monotonic={days * 86400}", f"--boottime={days * 86400}", "--fork")
            there.server.prefix = (*plain, *ahead)
            assert server.process
            server.kill({server.process.pid} | server.sessions() | there.processes("serve"))
            server.process.wait(10)
            watch.until(lambda: watch.view("one").phase == "down")
            server.start()
            back_s = world.back("one")
            beat = Beat(there)
            watch.until(lambda one=beat: one.done >= 2, meanwhile=beat)  # type: ignore[misc]
            watch.until(beat.idle)
            said("monotonic clock", f"{days:+} days", f"back after {back_s:.1f} s")
            assert back_s <= PROMISED_S
    finally:
        server.prefix = plain
    count = watch.count("one", there)
    said("monotonic clock", count)
    assert count.whole and not watch.untruths("one")


def test_two_machines_that_share_a_home_are_two(world: World) -> None:
    watch, fleet = world.watch, world.watch.session.fleet
    two, three = world.machines["two"], world.machines["three"]
    folders = sorted(path.name.partition("+")[2] for path in (two.server.home / ".tunedeck/nodes").iterdir())
    assert folders == ["three", "two"]
    assert two.processes("serve") and three.processes("serve")
    mine = RunFolder(next((two.server.home / ".tunedeck/nodes").glob("*+two")) / "runs" / "run-of-two")
    mine.create()
    durable.write_json(mine.record, {"run": "run-of-two"})
    watch.until(lambda: "run-of-two" in fleet.nodes["two"].state.runs)
    level = fleet.nodes["three"].level
    watch.until(lambda: fleet.nodes["three"].level > level)
    assert not fleet.nodes["three"].state.runs
    stranger = watch.session.ask("three", wire.Kill("run-of-two"))
    watch.until(stranger.done)
    assert not stranger.result().ok
    beats = [Beat(two), Beat(three)]
    for beat in beats:
        watch.until(lambda one=beat: one.done >= 2, meanwhile=beat)  # type: ignore[misc]
        watch.until(beat.idle)
    counts = {name: watch.count(name, world.machines[name]) for name in ("two", "three")}
    said("one home", *counts.items())
    assert all(count.whole for count in counts.values())
    assert not {e.stream for e in watch.events("two")} & {e.stream for e in watch.events("three")}


def test_fifty_milliseconds_each_way(world: World, tmp_path: Path) -> None:
    with ExitStack() as stack:
        address = stack.enter_context(delayed(world.spare.space, 0.05))
        far = stack.enter_context(machine(tmp_path, "far", world.spare, address=address))
        bare_s = bare(far.server)
        visits: list[float] = []
        for _visit in range(2):
            watch = stack.enter_context(watching([far.server.target(name="far")], tmp_path))
            visits.append(watch.until(lambda one=watch: one.live("far")))  # type: ignore[misc]
        assert watch.phases("far") == ["connecting", "live"], "nothing is sent the second time"
        watch.until(lambda: watch.view("far").rtt_s)
        first_s = watch.view("far").rtt_s

        def settled() -> bool:
            view = watch.view("far")
            return 0.1 <= (view.rtt_s or 0.0) < 0.13 and (view.jitter_s or 1.0) < 0.03

        asked = [watch.session.ask("far", wire.ListRuns(0))]

        def ask() -> None:
            if asked[-1].done():
                asked.append(watch.session.ask("far", wire.ListRuns(0)))

        watch.until(settled, meanwhile=ask)
        view = watch.view("far")
        said(
            "50 ms each way", f"bare log-in {bare_s:.2f} s", f"first visit {visits[0]:.2f} s, second {visits[1]:.2f} s"
        )
        said("", f"round trip {view.rtt_s} s, jitter {view.jitter_s} s, first shown {first_s}, orders {len(asked)}")
        assert set(watch.phases("far")) == {"connecting", "live"} and not watch.untruths("far")


def at_once(log: str) -> tuple[int, int, int]:
    """By an sshd's own log: the most log-ins under way at any time, how many came through, how many it dropped."""
    under_way: set[str] = set()
    most = through = dropped = 0
    for line in log.splitlines():
        port = re.search(r" port (\d+)", line)
        if port and line.startswith("Connection from"):
            under_way.add(port[1])
            most = max(most, len(under_way))
        elif port and re.search(r"Accepted publickey|(closed|reset|Disconnected|Timeout).*preauth", line):
            under_way.discard(port[1])
            through += "Accepted" in line
        dropped += "past MaxStartups" in line
    return most, through, dropped


@pytest.mark.parametrize(
    ("way", "count", "limit"),
    [("built in", 40, "4:50:8"), ("built in", 12, "99"), ("system", 12, "99"), ("ProxyCommand", 12, "99")],
)
def test_many_nodes_behind_one_jump_host(way: str, count: int, limit: str, tmp_path: Path) -> None:
    """An sshd never has more log-ins under way than its MaxStartups: with a high one it shows how many we begin."""
    gate = Sshd(tmp_path / "gate", options=(f"MaxStartups {limit}",))
    inner = Sshd(tmp_path / "inner", options=("MaxStartups 300:30:600",))
    config, both = tmp_path / "config", tmp_path / "hosts"
    both.write_text(gate.known_hosts.read_text() + inner.known_hosts.read_text())
    through = f"ProxyCommand ssh -F {config} -W %h:%p gate" if way == "ProxyCommand" else "ProxyJump gate"
    config.write_text(
        f"Host *\n  User {ME}\n  IdentitiesOnly yes\n  UserKnownHostsFile {both}\n"
        f"Host gate\n  HostName {gate.address}\n  Port {gate.port}\n  IdentityFile {gate.client_key}\n"
        f"Host n*\n  HostName {inner.address}\n  Port {inner.port}\n  IdentityFile {inner.client_key}\n  {through}\n"
    )
    names = [f"n{n}" for n in range(count)]
    targets = [Target(name, ssh_config_file=config) for name in names]
    with running(gate), running(inner), watching(targets, tmp_path, "system" if way == "system" else "auto") as watch:
        took_s = watch.until(lambda: watch.live(*names))
        most, came, dropped = at_once((gate.folder / "sshd.log").read_text())
    said(
        "jump host",
        f"{way}: {count} nodes live after {took_s:.1f} s",
        f"at most {most} at once, {came} through, {dropped} dropped",
    )
    told = Counter(
        f"{one.kind}: {one.why}" for _at, _who, one in watch.heard if isinstance(one, LinkView) and one.phase == "down"
    )
    said("", *(f"{times} x {why}" for why, times in told.items()))
    assert 1 < most <= HANDSHAKES and came >= count and bool(dropped) == (limit != "99")
    assert {watch.view(name).via.partition(" (")[0] for name in names} == {"ssh" if way == "built in" else "system ssh"}


def test_a_home_and_a_tmp_that_run_nothing(tmp_path: Path) -> None:
    """And a Python that has nothing of what the agent needs."""
    mounts = ("mount --bind /tmp /tmp", "mount -o remount,bind,noexec,nosuid /tmp")
    with machine(tmp_path, "bare", mounts=mounts) as bare_one:
        target = bare_one.server.target(name="bare", python="/usr/bin/python3")
        with watching([target], tmp_path) as watch:
            took_s = watch.until(lambda: watch.live("bare"))
            watch.until(lambda: watch.session.fleet.nodes["bare"].state.host.ram_total_bytes)
            said("noexec home and tmp", f"live after {took_s:.1f} s", watch.phases("bare"))
            assert watch.phases("bare") == ["connecting", "carrying", "live"]


def test_a_quota_that_is_used_up(tmp_path: Path) -> None:
    used_up = tmp_path / "used-up"
    used_up.write_text(str(tmp_path / "tight/home"))
    extra = {"LD_PRELOAD": str(build(tmp_path)), "ODD_QUOTA": str(used_up)}
    with (
        machine(tmp_path, "tight", extra=extra) as tight,
        watching([tight.server.target(name="tight")], tmp_path) as watch,
    ):
        watch.until(lambda: watch.view("tight").phase == "down")
        view = watch.view("tight")
        assert view.kind == "disk-full" and "quota" in view.why.lower() and view.hint
        used_up.unlink()
        back_s = watch.until(lambda: watch.live("tight"))
        said("quota used up", f"told: {view.kind}: {view.why}", f"back after {back_s:.1f} s")
        assert back_s <= PROMISED_S


@pytest.mark.parametrize(
    "only", ["Ciphers chacha20-poly1305@openssh.com", "KexAlgorithms sntrup761x25519-sha512@openssh.com"]
)
def test_servers_that_the_built_in_client_cannot_talk_to(only: str, tmp_path: Path) -> None:
    with running(Sshd(tmp_path / "odd", options=(only,))) as server, watching([server.target()], tmp_path) as watch:
        took_s = watch.until(lambda: watch.live("node"))
        first = watch.view("node").via
        server.kill(server.sessions())
        watch.until(lambda: watch.phases("node").count("live") == 2)
        log = (server.folder / "sshd.log").read_text()
        said(only.partition("@")[0], f"live after {took_s:.1f} s", first)
        assert first.startswith("system ssh (") and watch.view("node").via == first
        assert log.count("Unable to negotiate") == 1, "what cannot work is not tried again"
