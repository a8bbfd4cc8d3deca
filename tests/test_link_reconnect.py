"""A link over local processes: what it tells, how it comes back, and that no order is lost or carried out twice."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent import wire
from console import carry, link, talk
from console.answers import Answers
from console.fleet import LinkView
from console.link import Inbox, Link
from console.refusal import Question, Refusal
from console.stream import ProcessStream, Stream
from console.target import Target
from tests.hosts import stand_in

AGENT = """
import os, select, sys, time
from agent import wire

home = os.environ["HOME"]
mode = open(home + "/mode").read()

def send(message):
    os.write(1, wire.encode(message))

with open(home + "/pid", "w") as file:
    file.write(str(os.getpid()))
hello = wire.read_from_console(sys.stdin.buffer.readline())
with open(home + "/hellos", "a") as file:
    file.write(f"{hello.stream} {hello.after_seq} {hello.read_only} {hello.operator}\\n")
if mode == "die":
    sys.exit("boom")
if mode == "refuse":
    send(wire.Reply("", False, error="no daemon", hint="start one"))
    sys.exit(1)
if mode == "full":
    send(wire.Reply("", False, {"kind": "disk-full"}, "no room"))
    sys.exit(28)
if mode == "impolite":
    send(wire.Level(1, True, 0.0, 0.0, {}))
connections = len(open(home + "/hellos").readlines())
stream = "other" if mode == "new-stream" else "s1"
send(wire.Welcome(99 if mode == "newer" else 1, "0.1.0", "n", "b", stream, 2 * connections))
for seq in range(1, 2 * connections + 1):  # from the beginning: the link must know what it has
    send(wire.Event(stream, seq, 0.0, "k", f"event {seq}"))
send(wire.Level(1, True, 0.0, 0.0, {"host": {"hostname": "n"}}))
if mode == "skip":
    send(wire.Level(3, False, 0.0, 0.0, {}))
if mode == "noise":
    os.write(1, b"cron says hello\\n\\n{}\\n")
if mode == "flood":
    os.write(1, b"spam\\n" * 100)
if mode == "endless":
    while True:
        os.write(1, b"x" * 65536)
n, rest = 1, b""
while mode != "mute":
    if select.select([0], [], [], 0.1)[0]:
        data = os.read(0, 65536)
        if not data:
            break
        *lines, rest = (rest + data).split(b"\\n")
        for line in lines:
            message = wire.read_from_console(line)
            if isinstance(message, wire.Ack):
                with open(home + "/acks", "a") as file:
                    file.write(f"{message.n}\\n")
            if isinstance(message, wire.Order) and isinstance(message.body, wire.Kill):
                with open(home + "/kills", "a+") as file:
                    file.seek(0)
                    if message.id not in file.read():
                        file.write(message.id + "\\n")
                        if mode == "drop":
                            file.flush()
                            open(home + "/mode", "w").write("normal")
                            os._exit(0)
                if mode != "deaf":
                    send(wire.Reply(message.id, True, {"reason": "killed"}))
            elif isinstance(message, wire.Order) and mode != "deaf":
                send(wire.Reply(message.id, True, {"runs": []}))
    n += 1
    send(wire.Level(n, False, 0.0, 0.0, {}))
time.sleep(600)
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> carry.Bundle:
    return stand_in.bundle(tmp_path_factory.mktemp("bundle"), AGENT)


class Node:
    """A link to a local agent, and all it has told."""

    def __init__(self, home: Path, bundle: carry.Bundle) -> None:
        self.home, self.bundle = home, bundle
        self.streams: list[Stream] = []
        self.inbox: Inbox = deque()
        self.heard: list[wire.FromAgent | LinkView] = []
        self.refusal: Refusal | None = None
        self.answers = Answers()
        self.link: Link | None = None

    def dial(self, command: str) -> Stream:
        if self.refusal:
            raise self.refusal
        stream = stand_in.login(command, stand_in.environ(self.home))
        self.streams.append(stream)
        return stream

    def start(self, mode: str = "normal", read_only: bool = False) -> Link:
        self.mode(mode)
        self.link = Link(Target("n"), lambda: self.bundle, self.inbox, self.dial, read_only, self.answers).start()
        return self.link

    def mode(self, mode: str) -> None:
        (self.home / "mode").write_text(mode)

    def until(self, done: Callable[[], object], timeout_s: float = 30.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not done():
            while self.inbox:
                name, message = self.inbox.popleft()
                assert name == "n"
                self.heard.append(message)
            assert time.monotonic() < deadline, self.heard[-20:]
            time.sleep(0.01)

    @property
    def views(self) -> list[LinkView]:
        return [message for message in self.heard if isinstance(message, LinkView)]

    @property
    def phases(self) -> list[str]:
        phases = [view.phase for view in self.views]
        return [phase for index, phase in enumerate(phases) if index == 0 or phases[index - 1] != phase]

    def lines(self, name: str) -> list[str]:
        file = self.home / name
        return file.read_text().splitlines() if file.exists() else []

    def down(self) -> LinkView:
        self.until(lambda: "down" in self.phases)
        return next(view for view in self.views if view.phase == "down")


@pytest.fixture
def node(tmp_path: Path, bundle: carry.Bundle, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setattr(link, "RETRY_S", (0.05,))
    node = Node(tmp_path, bundle)
    yield node
    if node.link:
        node.link.close()
    for stream in node.streams:
        stream.close()
        stream.exit_status()
        if isinstance(stream, ProcessStream):
            stream.kill()


def test_a_bare_node_goes_from_connecting_over_carrying_to_live(node: Node) -> None:
    node.start()
    node.until(lambda: len(node.lines("acks")) >= 3)
    node.until(lambda: any(view.rtt_s for view in node.views))
    assert node.phases == ["connecting", "carrying", "live"]
    assert node.lines("acks")[:3] == ["2", "4", "6"]
    events = [message.seq for message in node.heard if isinstance(message, wire.Event)]
    assert events == [1, 2]
    assert not any(isinstance(message, wire.Reply) for message in node.heard)
    view = node.views[-1]
    assert view.rtt_s and 0 < view.rtt_s < 5 and view.jitter_s is None, "one round trip alone has no jitter"
    operator = node.lines("hellos")[0].split()[-1]
    assert "@" in operator


def test_jitter_is_known_from_two_round_trips_and_none_where_they_are_equal() -> None:
    pulse = talk.Pulse()
    pulse.add(0.1)
    assert (pulse.rtt_s, pulse.jitter_s) == (0.1, None)
    pulse.add(0.1)
    assert (pulse.rtt_s, pulse.jitter_s) == (0.1, 0.0)
    pulse.add(0.18)
    assert (pulse.rtt_s, pulse.jitter_s) == pytest.approx((0.11, 0.02))


def test_after_a_break_it_comes_back_and_no_event_is_missing_or_doubled(node: Node) -> None:
    node.start()
    for connection in range(1, 4):
        node.until(lambda n=connection: sum(isinstance(m, wire.Welcome) for m in node.heard) >= n)  # type: ignore[misc]
        node.until(lambda n=connection: any(isinstance(m, wire.Event) and m.seq == 2 * n for m in node.heard))  # type: ignore[misc]
        node.streams[-1].close()
        node.until(lambda n=connection: len(node.streams) > n)  # type: ignore[misc]
    events = [message.seq for message in node.heard if isinstance(message, wire.Event)]
    assert events[:6] == [1, 2, 3, 4, 5, 6]
    assert node.lines("hellos")[1].startswith("s1 2 ") and node.lines("hellos")[2].startswith("s1 4 ")
    assert node.phases[:5] == ["connecting", "carrying", "live", "down", "live"]


def test_a_new_stream_of_events_starts_from_its_beginning(node: Node) -> None:
    node.start()
    node.until(lambda: any(isinstance(m, wire.Event) for m in node.heard))
    node.mode("new-stream")
    node.streams[-1].close()
    node.until(lambda: any(isinstance(m, wire.Event) and (m.stream, m.seq) == ("other", 4) for m in node.heard))
    assert [m.seq for m in node.heard if isinstance(m, wire.Event) and m.stream == "other"] == [1, 2, 3, 4]


def test_an_order_whose_reply_was_lost_is_sent_again_and_done_once(node: Node) -> None:
    future = node.start("drop").order(wire.Kill("r"), 30.0)
    node.until(future.done)
    assert future.result().ok and future.result().result == {"reason": "killed"}
    assert len(node.streams) == 2
    assert node.lines("kills") == [future.result().order]


def test_an_order_given_while_the_node_is_away_is_sent_when_it_is_back(node: Node) -> None:
    node.refusal = Refusal("refused", "nobody there")
    up = node.start()
    node.down()
    future = up.order(wire.Kill("r"), 30.0, "my-order")
    again = up.order(wire.Kill("r"), 30.0, "my-order")
    assert again is future and not future.done()
    node.refusal = None
    node.until(future.done)
    assert future.result().ok and node.lines("kills") == ["my-order"]


def test_at_the_deadline_an_order_comes_to_an_answer(node: Node) -> None:
    up = node.start("deaf")
    node.until(lambda: "live" in node.phases)
    sent = up.order(wire.Kill("r"), 0.3).result(10)
    assert not sent.ok and "may still be carried out" in sent.error and sent.hint
    node.refusal = Refusal("refused", "nobody there")
    node.streams[-1].close()
    node.until(lambda: node.phases[-1] == "down")
    unsent = up.order(wire.Kill("r"), 0.2).result(10)
    assert not unsent.ok and "not sent" in unsent.error


def test_close_returns_at_once_even_from_a_link_that_is_stuck(node: Node) -> None:
    stuck = threading.Event()

    def dial(_command: str) -> Stream:
        stuck.wait(60)
        raise Refusal("timeout", "late")

    links = [Link(Target("n"), lambda: node.bundle, node.inbox, dial).start() for _ in range(50)]
    futures = [up.order(wire.ListRuns(), 300.0) for up in links]
    for up in links:
        up.close()
    assert all(future.done() and not future.result().ok for future in futures)
    assert not links[0].order(wire.ListRuns(), 300.0).result(0).ok
    stuck.set()


def test_a_silent_agent_is_stale_then_given_up_and_called_again(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(talk, "STALE_AFTER_S", 0.6)
    monkeypatch.setattr(link, "STALE_AFTER_S", 0.6)
    monkeypatch.setattr(talk, "DEAD_AFTER_S", 1.5)
    node.start()
    node.until(lambda: "live" in node.phases)
    os.kill(int(node.lines("pid")[0]), signal.SIGSTOP)
    node.until(lambda: node.phases.count("live") == 2)
    assert node.phases[2:6] == ["live", "stale", "down", "live"]
    lost = next(view for view in node.views if view.phase == "down")
    assert lost.kind == "lost" and "nothing heard" in lost.why
    stale = next(view for view in node.views if view.phase == "stale")
    assert lost.since_monotonic == stale.since_monotonic, "down since it was last heard"


def test_figures_that_would_be_wrong_end_the_connection(node: Node) -> None:
    node.start("skip")
    view = node.down()
    assert view.kind == "lost" and "level 3 came after level 1" in view.why


def test_a_few_stray_lines_do_no_harm_but_many_do(node: Node) -> None:
    node.start("noise")
    node.until(lambda: "4" in node.lines("acks"))
    assert "down" not in node.phases
    node.mode("flood")
    node.streams[-1].close()
    node.until(lambda: any(view.kind == "garbled" for view in node.views))


def test_an_endless_line_is_bounded(node: Node) -> None:
    node.start("endless")
    view = node.down()
    assert view.kind == "garbled" and "line" in view.why


@pytest.mark.parametrize(
    ("mode", "kind", "said"),
    [
        ("newer", "protocol", "protocol 99"),
        ("impolite", "protocol", "before it is asked"),
        ("die", "agent-failed", "boom"),
        ("refuse", "agent-failed", "no daemon"),
        ("full", "disk-full", "no room"),
    ],
)
def test_agents_that_cannot_be_talked_to(node: Node, mode: str, kind: str, said: str) -> None:
    node.start(mode)
    view = node.down()
    assert view.kind == kind and said in view.why and view.hint


@pytest.mark.parametrize("mode", ["full", "refuse"])
def test_what_is_mended_on_the_node_is_found_out_soon(node: Node, mode: str) -> None:
    node.start(mode)
    node.down()
    node.mode("normal")
    node.until(lambda: "live" in node.phases)


def test_down_since_the_first_failure_however_often_it_is_tried(node: Node) -> None:
    node.refusal = Refusal("refused", "nobody there")
    node.start()
    node.until(lambda: len(node.views) >= 5)
    assert {view.since_monotonic for view in node.views[1:]} == {node.views[1].since_monotonic}
    assert node.phases == ["connecting", "down"]


def test_lasting_refusals_wait_for_the_user(node: Node) -> None:
    question = Question("passphrase", "/key", "Passphrase for /key")
    node.refusal = Refusal("auth", "no", question=question)
    up = node.start()
    node.down()
    assert up.question == question
    node.refusal = None
    up.answer(question, "secret")
    node.until(lambda: "live" in node.phases)
    assert up.question is None and node.answers.get("passphrase", "/key") == "secret"


def test_retry_does_not_wait_for_the_pause(node: Node) -> None:
    node.refusal = Refusal("dns", "no such host")
    up = node.start()
    node.down()
    node.refusal = None
    up.retry()
    node.until(lambda: "live" in node.phases)


def test_read_only_is_said_to_the_agent_twice(node: Node) -> None:
    node.start(read_only=True)
    node.until(lambda: node.lines("hellos"))
    assert node.lines("hellos")[0].split()[-2] == "True"
    pid = int(node.lines("pid")[0])
    assert b"--read-only" in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_a_mistake_of_our_own_is_shown_and_not_hidden(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[BaseException | None] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: seen.append(args.exc_value))

    def dial(_command: str) -> Stream:
        raise ZeroDivisionError

    node.link = Link(Target("n"), lambda: node.bundle, node.inbox, dial).start()
    assert node.down().kind == "broken"
    node.until(lambda: seen)
    assert isinstance(seen[0], ZeroDivisionError)
