"""What is asked beside the ranks themselves: NCCL's RAS over its socket, py-spy where it is installed."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent import ras, stacks
from agent.triage import triage

REPORT = b"""NCCL version 2.27.3 compiled with CUDA 12.8

Job summary
===========
  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1          4            1          4        4

Communicators... (0.00s)
=============
Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         4         4         4   RUNNING  INCOMPLETE

Errors
======
#0-0 (1a2b3c4d5e6f7a8b) INCOMPLETE
  Missing communicator data from 1 rank
  The missing rank: 2
"""


@pytest.fixture
def listener() -> Iterator[tuple[int, list[bytes]]]:
    """RAS as far as its socket shows it: greets, hears one question, answers, closes."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    link, _ = server.accept()
                except OSError:
                    return
                with link:
                    heard.append(link.recv(100))
                    link.sendall(b"SERVER PROTOCOL 2\n")
                    heard.append(link.recv(100))
                    link.sendall(REPORT)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1], heard
        server.shutdown(socket.SHUT_RDWR)
    thread.join(30)


def test_ras_is_asked_twice_and_its_words_lead_to_the_rank(listener: tuple[int, list[bytes]], tmp_path: Path) -> None:
    port, heard = listener
    told = ras.twice(f"127.0.0.1:{port}", apart_s=0.0)
    assert told == [REPORT.decode()] * 2
    assert heard == [b"CLIENT PROTOCOL 2\n", b"VERBOSE STATUS\n"] * 2
    for number, text in enumerate(told, 1):
        (tmp_path / f"ras-{number}.txt").write_text(text)
    first = triage([tmp_path]).faults[0]
    assert (first.kind, first.culprit.ranks) == ("app.rank-hung", (2,))


def test_nothing_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]
    assert ras.twice(f"127.0.0.1:{free}") == []


def test_somebody_else_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            link, _ = server.accept()
            with link:
                link.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")

        thread = threading.Thread(target=greet, daemon=True)
        thread.start()
        assert ras.status(("127.0.0.1", server.getsockname()[1])) is None
        thread.join(30)


@pytest.mark.parametrize(
    ("told", "where"),
    [
        ("", ("localhost", 28028)),
        ("10.0.0.7:3000", ("10.0.0.7", 3000)),
        ("[::1]:9", ("::1", 9)),
        ("x", ("localhost", 28028)),
    ],
)
def test_where_it_listens(told: str, where: tuple[str, int]) -> None:
    assert ras.address(told) == where


def spy(folder: Path, script: str) -> str:
    """A py-spy beside an interpreter. Returns the interpreter."""
    program = folder / "py-spy"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o700)
    return str(folder / "python")


def test_py_spy_beside_the_interpreter(tmp_path: Path) -> None:
    python = spy(tmp_path, 'echo "Process $5: train.py"; echo "    stuck (train.py:7)"')
    assert stacks.dump(os.getpid(), python) == f"Process {os.getpid()}: train.py\n    stuck (train.py:7)\n"


def test_py_spy_may_be_absent_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    assert "installed neither" in stacks.dump(1, str(tmp_path / "python"))
    refused = spy(tmp_path, 'echo "Permission Denied: Try running again with elevated permissions" >&2; exit 1')
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert stacks.dump(1, refused).startswith("no stacks: Permission Denied")
