"""One command on many nodes: so many at once, each with a deadline of its own, each with one outcome."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from agent.wire import clean
from console.failure import SSH
from console.refusal import Refusal
from console.small import start_small
from console.stream import Dial, Stream
from console.strings import _

LIMIT_BYTES = 256 * 1024
"""Of one node's output; a thousand nodes must fit into memory."""
TIMED_OUT = 124
"""As timeout(1)"""
Heard = Callable[[str, bytes], None]
"""Told (node, piece of its output) as it comes"""


@dataclass(frozen=True, slots=True)
class Outcome:
    node: str
    status: int
    """The command's own; 124 at the deadline; 255 when SSH failed or the command ended without one, as ssh has it"""
    output: str = ""
    complaint: str = ""
    """The end of what it wrote to stderr"""
    why: str = ""
    """What went wrong on the way, in words"""
    hint: str = ""
    seconds: float = 0.0
    cut: bool = False
    """There was more output than is kept"""


@dataclass(slots=True)
class Call:
    """One node's turn."""

    node: str
    began: float
    stream: Stream | None = None
    over: bool = False
    """It has its outcome; what still comes is dropped"""
    output: bytearray = field(default_factory=bytearray)
    cut: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def end(self) -> bool:
        """Hang up. False when it was over already."""
        with self.lock:
            first, self.over, stream = not self.over, True, self.stream
        if stream is not None:
            stream.close()
        return first

    def outcome(self, status: int, why: str = "", hint: str = "", complaint: str = "") -> Outcome:
        text = clean(self.output.decode("utf-8", "replace"))
        return Outcome(self.node, status, text, complaint, why, hint, time.monotonic() - self.began, self.cut)


def fan_out(
    dials: Iterable[tuple[str, Dial]], command: str, at_once: int, timeout_s: float, heard: Heard
) -> Iterator[Outcome]:
    """Outcomes as they come. A node whose time is up is given up, whatever still holds its connection."""
    waiting, running = list(dials), dict[str, Call]()
    done: queue.SimpleQueue[tuple[Call, Outcome]] = queue.SimpleQueue()
    while waiting or running:
        while waiting and len(running) < at_once:
            node, dial = waiting.pop(0)
            running[node] = call = Call(node, time.monotonic())
            start_small(threading.Thread(target=_carry_out, args=(call, dial, command, heard, done), daemon=True).start)
        next_deadline = min(call.began for call in running.values()) + timeout_s
        try:
            call, outcome = done.get(timeout=max(0.0, next_deadline - time.monotonic()))
        except queue.Empty:
            for call in [one for one in running.values() if time.monotonic() - one.began >= timeout_s]:
                del running[call.node]
                if call.end():
                    yield call.outcome(TIMED_OUT, _("not over within {s:g} s").format(s=timeout_s))
        else:
            if running.get(call.node) is call:
                del running[call.node]
                yield outcome


def _carry_out(
    call: Call, dial: Dial, command: str, heard: Heard, done: queue.SimpleQueue[tuple[Call, Outcome]]
) -> None:
    try:
        stream = dial(command)
    except Refusal as refusal:
        done.put((call, call.outcome(SSH, refusal.message, refusal.hint)))
        return
    with call.lock:
        call.stream, late = stream, call.over
    if late:
        stream.close()
        return
    try:
        _listen(call, stream, heard)
        said, status = clean(stream.complaint()), stream.exit_status()
    except OSError as error:
        outcome = call.outcome(SSH, _("the connection broke: {why}").format(why=error))
    else:
        why = _("it ended without an exit status") if status is None else ""
        outcome = call.outcome(SSH if status is None else status, why, complaint=said)
    if call.end():
        done.put((call, outcome))


def _listen(call: Call, stream: Stream, heard: Heard) -> None:
    """Its output to the end; it gets no input."""
    bell = threading.Event()
    stream.notify(bell)
    stream.end_input()
    while not call.over:
        bell.clear()
        piece = stream.read_some()
        if piece == b"":
            return
        if piece is None:
            bell.wait(1.0)
            continue
        room = LIMIT_BYTES - len(call.output)
        call.output += piece[:room]
        call.cut |= len(piece) > room
        if room > 0 and not call.over:
            heard(call.node, piece[:room])
