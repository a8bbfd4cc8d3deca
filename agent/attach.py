"""Bridges stdin and stdout to the daemon's socket, and starts the daemon if it is not there."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time

from agent import codec, door, logout
from agent.bridge import own_bridge
from agent.door import Door
from agent.reexec import command, environment
from agent.refusal import STATUS, Refusal
from agent.state import StateFolder

START_S = 20.0
"""Reading a long history from a slow home takes a daemon seconds."""
ANSWER_S = 10.0
BLOCK_BYTES = 1 << 16


def attach(state: StateFolder, read_only: bool) -> int:
    """Runs until either side ends. Raises Refusal when there is no daemon to talk to."""
    state.create()
    place = Door.of(state)
    place.check()
    connection = meet(state, place, read_only)
    up = threading.Thread(target=pass_on, args=(connection,), daemon=True)
    up.start()
    try:
        while block := connection.recv(BLOCK_BYTES):
            write_all(1, block)
    except OSError:
        pass  # one of the two ends is gone, which is how a conversation ends
    os._exit(0)  # the other thread waits in a read that nothing else ends


def pass_on(connection: socket.socket) -> None:
    """Console to daemon; when the console has gone, nothing is left to do."""
    try:
        while block := os.read(0, BLOCK_BYTES):
            connection.sendall(block)
    except OSError:
        pass
    os._exit(0)


def write_all(handle: int, block: bytes) -> None:
    view = memoryview(block)
    while view:
        view = view[os.write(handle, view) :]


def meet(state: StateFolder, place: Door, read_only: bool) -> socket.socket:
    """A connection the daemon has agreed to; starts one where there is none, or where an older one gave way.

    Of many bridges that come at once one starts a daemon and the others wait: else they would take the machine from it.
    """
    deadline = time.monotonic() + START_S
    starter: subprocess.Popen[bytes] | None = None
    turn: int | None = None
    try:
        while True:
            connection = knock(place)
            if connection is not None and introduced(connection, place, read_only):
                return connection
            if turn is None:
                turn = door.hold(place.starting)
                if turn is not None:
                    continue  # whoever had it before may have done it
            elif starter is None or starter.poll() == 0:
                starter = start(state)
            elif starter.poll() is not None:
                raise not_started(starter, state)
            if time.monotonic() > deadline:
                if starter is not None:
                    starter.kill()
                raise unanswered(place)
            time.sleep(0.05)
    finally:
        if turn is not None:
            os.close(turn)


def knock(place: Door) -> socket.socket | None:
    """A connection to a daemon of our own uid; None when nobody listens."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(ANSWER_S)
    try:
        connection.connect(place.address())
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    except OSError as error:
        connection.close()
        raise unanswered(place) from error
    uid = door.peer_uid(connection)
    if uid != os.getuid():
        raise Refusal(f"{place.socket} is served by uid {uid}, not by you", "Find out who put it there and remove it.")
    return connection


def introduced(connection: socket.socket, place: Door, read_only: bool) -> bool:
    """False when the daemon is older than this bridge and goes, or was just going."""
    try:
        connection.sendall(codec.encode(own_bridge(read_only)))
        answer = b""
        while not answer.endswith(b"\n"):
            byte = connection.recv(1)  # one by one: what follows the line is the console's
            if not byte:
                break
            answer += byte
    except TimeoutError as error:
        raise unanswered(place) from error
    except OSError:
        answer = b""
    if answer == b"come in\n":
        connection.settimeout(None)
        return True
    connection.close()
    return False


def start(state: StateFolder) -> subprocess.Popen[bytes]:
    """A daemon in a session of its own, without our descriptors: it must outlive the SSH session it was born in."""
    return subprocess.Popen(
        [*logout.shelter(), *command("serve")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd="/",
        env=environment() | {"TUNEDECK_HOME": str(state.home)},
        start_new_session=True,
        close_fds=True,
    )


def not_started(starter: subprocess.Popen[bytes], state: StateFolder) -> Refusal:
    assert starter.stderr is not None
    lines = starter.stderr.read(1 << 16).decode(errors="replace").strip().splitlines()
    said = lines[-1] if lines else f"exit code {starter.returncode}"
    kind = next((kind for kind, status in STATUS.items() if status == starter.returncode), "")
    return Refusal(f"the agent did not start: {said}", f"See {state.log}.", {"kind": kind} if kind else None)


def unanswered(place: Door) -> Refusal:
    pid = door.holder(place.lock)
    return Refusal(
        f"the agent's daemon holds {place.lock} and does not answer",
        f"End it (`kill -9 {pid}`) and connect again; runs do not notice." if pid else "Connect again.",
    )


def say_refused(error: Refusal) -> None:
    """In words for a person, and as a message for the console."""
    from agent import wire

    print(f"tunedeck agent: {error}", file=sys.stderr, flush=True)
    write_all(1, wire.encode(wire.Reply("", False, error.result, error.message, error.hint)))
