"""One command on many nodes: outcomes, deadlines, grouping, exit codes; over real sshd and local shells."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.fanout import LIMIT_BYTES, Outcome, fan_out
from console.nodeset import expand, fold
from console.refusal import Refusal
from console.stream import Dial, ProcessStream
from tests.hosts.sshd import ME, Sshd, running

ROOT = Path(__file__).resolve().parent.parent


def local(_command: str, script: str) -> ProcessStream:
    return ProcessStream(["/bin/sh", "-c", script], "local")


def carried_out(scripts: dict[str, str], at_once: int = 8, timeout_s: float = 20.0) -> dict[str, Outcome]:
    dials: list[tuple[str, Dial]] = [(node, partial(local, script=script)) for node, script in scripts.items()]
    return {one.node: one for one in fan_out(dials, "", at_once, timeout_s, lambda _node, _piece: None)}


def test_each_node_comes_to_its_own_outcome() -> None:
    found = carried_out({"a": "echo hi; echo no >&2; exit 3", "b": "cat; echo end", "c": "kill -9 $$"}, at_once=1)
    assert (found["a"].status, found["a"].output, found["a"].complaint) == (3, "hi\n", "no")
    assert (found["b"].status, found["b"].output) == (0, "end\n"), "no input, so cat ends at once"
    assert found["c"].status not in (0, None)


def test_a_node_that_hangs_costs_its_deadline_and_no_other() -> None:
    found = carried_out({"stuck": "echo so far; exec sleep 600", "quick": "echo ok"}, timeout_s=1.5)
    assert found["stuck"].status == 124 and found["stuck"].output == "so far\n" and "1.5 s" in found["stuck"].why
    assert found["quick"].status == 0


def test_a_dial_that_hangs_is_given_up_too() -> None:
    def stuck(_command: str) -> ProcessStream:
        time.sleep(1.0)
        raise Refusal("timeout", "too late")

    dials: list[tuple[str, Dial]] = [("a", stuck), ("b", partial(local, script="echo ok"))]
    found = {one.node: one.status for one in fan_out(dials, "", 1, 0.3, lambda _node, _piece: None)}
    assert found == {"a": 124, "b": 0}


def test_endless_output_is_cut_and_escapes_do_not_come_through() -> None:
    found = carried_out(
        {"a": "head -c 600000 /dev/zero | tr '\\0' x", "b": "printf '\\033]0;evil\\007red\\033[31m\\n'"}
    )
    assert found["a"].cut and len(found["a"].output) == LIMIT_BYTES
    assert found["b"].output == "red\n"


NUMBERED = st.builds(
    "{}{}{}".format, st.sampled_from(["gpu", "n-", ""]), st.integers(0, 120), st.sampled_from(["", "x"])
)


@given(st.lists(NUMBERED | st.sampled_from(["head", "gpu01", "gpu001", "gpu09", "10.0.0.7"]), max_size=30))
def test_folded_names_expand_to_the_same(names: list[str]) -> None:
    assert set(expand(fold(names))) == set(names)


def test_folding() -> None:
    assert fold(expand("gpu[01-16],head,gpu20")) == "gpu[01-16,20],head"
    assert fold(["n9", "n10", "n11"]) == "n[9-11]"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Sshd]:
    with running(Sshd(tmp_path / "host")) as one:
        yield one


def tunedeck(server: Sshd, *words: str, dead: bool = False) -> subprocess.CompletedProcess[str]:
    """Three names of one sshd, and perhaps one where nothing listens."""
    folder = server.folder / "config" / "tunedeck"
    folder.mkdir(parents=True, exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        free = probe.getsockname()[1]
    ports = {f"n{i}": server.port for i in (1, 2, 3)} | ({"n4": free} if dead else {})
    options = f"user: {ME}, identity: {server.client_key}, known_hosts: {server.known_hosts}"
    lines = [f"  - {{name: {name}, host: 127.0.0.1, port: {port}, {options}}}" for name, port in ports.items()]
    (folder / "fleet.yaml").write_text("nodes:\n" + "\n".join(lines) + "\n")
    environ = {**os.environ, "XDG_CONFIG_HOME": str(folder.parent), "XDG_STATE_HOME": str(server.folder / "state")}
    return subprocess.run(
        [sys.executable, "-m", "console", *words], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60
    )


def test_on_real_nodes_equal_outputs_are_one(server: Sshd) -> None:
    done = tunedeck(server, "exec", "-w", "n[1-3]", "--", "printf", "%s|", "a b", "$HOME", "*")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "---- n[1-3] (3)\na b|$HOME|*|\n", "words stay words"


def test_exit_status_is_the_highest_and_ssh_failures_are_255(server: Sshd) -> None:
    assert tunedeck(server, "exec", "-w", "n1,n2", "--shell", "--", "exit 7").returncode == 7
    done = tunedeck(server, "--json", "exec", "--all", "--", "true", dead=True)
    assert done.returncode == 255
    assert [one["status"] for one in json.loads(done.stdout)["nodes"]] == [0, 0, 0, 255]
    slow = tunedeck(server, "exec", "-w", "n1", "--timeout", "2", "--", "sleep", "60")
    assert slow.returncode == 124 and "not over within 2 s" in slow.stdout


def test_streamed_lines_bear_their_node(server: Sshd) -> None:
    done = tunedeck(server, "exec", "-w", "n[1-2]", "--stream", "--shell", "--", "echo one; echo two >&2")
    assert sorted(done.stdout.splitlines()) == ["n1: one", "n1: two", "n2: one", "n2: two"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("exec", "--", "true"), "on which nodes"),
        (("exec", "-w", "n1"), "no command"),
        (("exec", "-w", "n1", "--shell", "--", "a", "b"), "one argument"),
        (("--read-only", "exec", "-w", "n1", "--", "true"), "read-only"),
    ],
)
def test_misuse_is_one_clear_error(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    environ = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "console", *words], cwd=ROOT, env=environ, capture_output=True, text=True
    )
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr
