"""What a log-in asks of the user, on real servers: passwords, one-time codes, host keys; answered in the console."""

from __future__ import annotations

import os
import pty
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest
from paramiko import common
from paramiko.server import InteractiveQuery
from textual.widgets import Input

from console.answers import Answers
from console.refusal import Question, Refusal
from console.screens.answering import Typed
from console.screens.dialogs import Question as YesOrNo
from console.ssh import Dialler
from console.stream import read_until
from console.target import Target
from tests.fakes.screen import app_of, console, painted, shows, until
from tests.fakes.sitting import sitting
from tests.hosts.sshd import Sshd, keygen, running

USER, WORD, CODE = "tdpassword", "correct horse 1", "492 816"


@pytest.fixture
def account() -> Iterator[str]:
    """A user of this machine who has a password."""
    subprocess.run(["userdel", "-f", USER], check=False, capture_output=True)
    subprocess.run(["useradd", "-M", "-d", "/nonexistent", "-s", "/bin/sh", USER], check=True, capture_output=True)
    subprocess.run(["chpasswd"], input=f"{USER}:{WORD}\n", text=True, check=True)
    yield USER
    subprocess.run(["userdel", "-f", USER], check=True, capture_output=True)


def said(target: Target, answers: Answers, folder: Path) -> bytes:
    stream = Dialler(target, answers, folder / "accepted")("echo in")
    try:
        bell = threading.Event()
        stream.notify(bell)
        return read_until(stream, bell, lambda data: b"\n" in data, 100_000, 30)
    finally:
        stream.close()


def asked(target: Target, answers: Answers, folder: Path) -> Question:
    with pytest.raises(Refusal) as caught:
        said(target, answers, folder)
    assert caught.value.kind in ("auth", "host-key-unknown") and caught.value.question is not None, caught.value
    return caught.value.question


def test_a_password_is_asked_for_and_again_when_it_was_wrong(account: str, tmp_path: Path) -> None:
    server = Sshd(tmp_path / "node", options=("Match all", "PasswordAuthentication yes"))
    with running(server):
        target = server.target(user=account, identity_files=())
        answers = Answers()
        question = asked(target, answers, tmp_path)
        assert (question.kind, question.secret) == ("password", True) and account in question.text
        answers.give(question, "wrong")
        again = asked(target, answers, tmp_path)
        assert again.text.startswith("That was not accepted")
        answers.give(again, WORD)
        assert said(target, answers, tmp_path) == b"in\n"
        assert not any(WORD.encode() in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())


class Gate(paramiko.ServerInterface):
    """A server that asks by prompts: a password, then a code that is good once."""

    def __init__(self, prompts: list[tuple[str, bool]], due: list[list[str]]) -> None:
        self.prompts, self.due = prompts, due
        self.heard: list[list[str]] = []

    def get_allowed_auths(self, _username: str) -> str:
        return "keyboard-interactive"

    def check_auth_interactive(self, _username: str, _submethods: str) -> InteractiveQuery:
        query = InteractiveQuery("Site\x1b[31m", "Two factors, please.")
        for prompt in self.prompts:
            query.add_prompt(*prompt)
        return query

    def check_auth_interactive_response(self, responses: list[str]) -> int:
        self.heard.append(list(responses))
        right = bool(self.due) and list(responses) == self.due[0]
        if right:
            self.due.pop(0)
        return common.AUTH_SUCCESSFUL if right else common.AUTH_FAILED

    def check_channel_request(self, _kind: str, _channel: int) -> int:
        return common.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, _command: bytes) -> bool:
        threading.Thread(target=channel.sendall, args=(b"in\n",), daemon=True).start()
        return True


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[tuple[Gate, Target]]:
    gate = Gate([("Password: ", False), ("Verification code: ", True)], [[WORD, CODE], [WORD, "1111"]])
    key = paramiko.Ed25519Key.from_private_key_file(str(keygen(tmp_path / "gate_key")))
    listener = socket.create_server(("127.0.0.1", 0))
    open_: list[paramiko.Transport] = []

    def serve() -> None:
        while True:
            try:
                pipe, _address = listener.accept()
            except OSError:
                return
            transport = paramiko.Transport(pipe)
            transport.add_server_key(key)
            open_.append(transport)
            transport.start_server(event=threading.Event(), server=gate)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    port = listener.getsockname()[1]
    known = tmp_path / "gate_known"
    known.write_text(f"[127.0.0.1]:{port} {key.get_name()} {key.get_base64()}\n")
    yield gate, Target("gate", "127.0.0.1", port, "ann", known_hosts=(known,), ssh_config=False)
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(10)
    for transport in open_:
        transport.close()


def test_prompts_of_the_server_are_asked_one_after_the_other(gate: tuple[Gate, Target], tmp_path: Path) -> None:
    server, target = gate
    answers = Answers()
    question = asked(target, answers, tmp_path)
    assert question.kind == "password" and server.heard == []  # no empty answer: it would count as a wrong one
    answers.give(question, WORD)
    question = asked(target, answers, tmp_path)
    assert (question.kind, question.secret) == ("code", False)
    assert "Verification code:" in question.text and "\x1b" not in question.text and server.heard == []
    answers.give(question, CODE)
    assert said(target, answers, tmp_path) == b"in\n" and server.heard == [[WORD, CODE]]
    question = asked(target, answers, tmp_path)
    assert question.kind == "code"  # a code serves once; the password is still known
    answers.give(question, "9999")
    assert asked(target, answers, tmp_path).kind == "password"  # which of the two was wrong, the server does not say


async def test_a_password_is_typed_unseen_in_a_dialog_and_reaches_the_link() -> None:
    sat = sitting("node1", "node2")
    question = Question("password", "ann@node2", "Password for ann@node2")
    async with console(sat) as pilot:
        sat.links["node2"].live("down", why="does not let us in", hint="enter it", question=question)
        await shows(pilot, "1 node waits", "answer")
        await pilot.press("a")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, Typed))
        await pilot.press(*"s3cret")
        await until(pilot, lambda: app_of(pilot).screen.query_one(Input).value == "s3cret")
        assert "s3cret" not in painted(app_of(pilot)) and "Password for ann@node2" in painted(app_of(pilot))
        await pilot.press("enter")
        await until(pilot, lambda: sat.links["node2"].said)
        assert sat.links["node2"].said == [(question, "s3cret")]
        await until(pilot, lambda: sat.session.fleet.nodes["node2"].link.phase == "connecting")
        await pilot.press("a")
        assert not isinstance(app_of(pilot).screen, Typed)


async def test_a_host_key_is_accepted_by_a_yes_only() -> None:
    sat = sitting("node1")
    question = Question("host-key", "SHA256:abc", "the key of node1 is not known yet: SHA256:abc", False)
    async with console(sat, (80, 24)) as pilot:
        sat.links["node1"].live("down", why="unknown key", kind="host-key-unknown", question=question)
        await shows(pilot, "1 node waits")
        for keys, given in (("enter", 0), ("escape", 0), ("y", 1)):
            await pilot.press("a")
            await until(pilot, lambda: isinstance(app_of(pilot).screen, YesOrNo))
            assert "SHA256:abc" in painted(app_of(pilot))
            await pilot.press(keys)
            await until(pilot, lambda: not isinstance(app_of(pilot).screen, YesOrNo))
            assert len(sat.links["node1"].said) == given
        assert sat.links["node1"].said == [(question, "yes")]


def tunedeck(server: Sshd, folder: Path, typed: bytes | None) -> tuple[int, str]:
    """`tunedeck nodes` on a node whose key is not known; at a terminal if anything is typed."""
    config = folder / "xdg/tunedeck"
    config.mkdir(parents=True, exist_ok=True)
    (config / "fleet.yaml").write_text(
        f"nodes:\n  - {{name: n1, host: {server.address}, port: {server.port}, identity: {server.client_key}}}\n"
    )
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "console", "nodes"],
        stdin=theirs if typed else subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "XDG_CONFIG_HOME": str(folder / "xdg"), "XDG_STATE_HOME": str(folder), "HOME": str(folder)},
        start_new_session=True,
    )
    os.close(theirs)
    text = b""
    try:
        while True:
            text += os.read(ours, 65536)
            if typed and b"[yes/N]" in text:
                os.write(ours, typed)
                typed = b""
    except OSError:  # the terminal is gone with the child
        pass
    os.close(ours)
    return child.wait(60), text.decode()


def test_the_command_line_asks_at_a_terminal_and_refuses_plainly_without(tmp_path: Path) -> None:
    with running(Sshd(tmp_path / "node")) as server:
        status, text = tunedeck(server, tmp_path / "none", None)
        assert status == 255 and "not known yet" in text and "[yes/N]" not in text, text
        status, text = tunedeck(server, tmp_path / "no", b"\n")
        assert status == 255 and text.count("[yes/N]") == 1
        status, text = tunedeck(server, tmp_path / "yes", b"yes\n")
        assert status == 0 and "live" in text, text
