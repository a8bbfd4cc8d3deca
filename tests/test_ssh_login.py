"""Logging in on real OpenSSH daemons: host keys, keys and passphrases, jump hosts, and every refusal told apart."""

from __future__ import annotations

import base64
import os
import resource
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import paramiko
import pytest

from console import carry, known_hosts, ssh
from console.answers import Answers
from console.channel import POLL_S, Connection
from console.known_hosts import KnownHosts, fingerprint
from console.refusal import Refusal
from console.route import resolve
from console.ssh import Dialler
from console.stream import Stream, read_until
from console.target import Target
from tests.hosts.sshd import ME, Sshd, keygen, running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with running(Sshd(tmp_path_factory.mktemp("sshd"))) as started:
        yield started


class Caller:
    """One console: its answers and the host keys it has accepted."""

    def __init__(self, folder: Path) -> None:
        self.answers, self.accepted = Answers(), folder / "state/known_hosts"

    def run(self, target: Target, command: str = "echo hello; echo oops >&2; exit 3", mode: str = "auto") -> Stream:
        stream = Dialler(target, self.answers, self.accepted, mode)(command)
        try:
            bell = threading.Event()
            stream.notify(bell)
            self.said = read_until(stream, bell, lambda _data: False, 100_000, 30)
            self.status, self.complaint = stream.exit_status(), stream.complaint()
        finally:
            stream.close()
        return stream

    def refused(self, target: Target) -> Refusal:
        with pytest.raises(Refusal) as caught:
            self.run(target)
        assert caught.value.message and caught.value.hint
        return caught.value


@pytest.fixture
def caller(tmp_path: Path) -> Caller:
    return Caller(tmp_path)


def mark(public: Path) -> str:
    return fingerprint(base64.b64decode(public.read_text().split()[1]))


def test_a_command_runs_and_its_outputs_and_status_come_back(server: Sshd, caller: Caller) -> None:
    stream = caller.run(server.target())
    assert (caller.said, caller.complaint, caller.status, stream.via) == (b"hello\n", "oops", 3, "ssh")
    assert not caller.accepted.exists()


def test_much_goes_both_ways(server: Sshd, caller: Caller) -> None:
    stream = Dialler(server.target(), caller.answers, caller.accepted)("cat")
    bell, data = threading.Event(), os.urandom(3_000_000)
    try:
        stream.notify(bell)
        writing = threading.Thread(target=stream.write, args=(data,))
        writing.start()
        assert read_until(stream, bell, lambda got: len(got) >= len(data), len(data) + 1, 60) == data
        writing.join(10)
    finally:
        stream.close()


def test_an_unknown_host_is_refused_until_its_fingerprint_is_accepted(server: Sshd, caller: Caller) -> None:
    stranger = server.target(known_hosts=(caller.accepted.with_name("none"),))
    refusal = caller.refused(stranger)
    due = mark(server.folder / "host_key.pub")
    assert refusal.kind == "host-key-unknown" and due in refusal.message
    assert refusal.question and (refusal.question.kind, refusal.question.subject) == ("host-key", due)
    caller.answers.give(refusal.question, "yes")
    caller.run(stranger)
    assert caller.said == b"hello\n"
    assert caller.accepted.read_text().startswith(f"{server.listed} ssh-ed25519 ")
    assert caller.accepted.stat().st_mode & 0o777 == 0o600
    later = Caller(caller.accepted.parent.parent)
    later.run(stranger)
    assert later.said == b"hello\n"


def test_a_fingerprint_vouched_for_beforehand_is_not_asked_again(server: Sshd, tmp_path: Path) -> None:
    caller = Caller(tmp_path)
    caller.answers = Answers([mark(server.folder / "host_key.pub")])
    caller.run(server.target(known_hosts=(tmp_path / "none",)))
    assert caller.said == b"hello\n"


def test_a_changed_key_is_refused_loudly_whatever_was_accepted(server: Sshd, tmp_path: Path) -> None:
    other = keygen(tmp_path / "other")
    listed = tmp_path / "hosts"
    listed.write_text(f"\n# comment\n{server.listed} {' '.join((tmp_path / 'other.pub').read_text().split()[:2])}\n")
    caller = Caller(tmp_path)
    caller.answers = Answers([mark(server.folder / "host_key.pub")])
    refusal = caller.refused(server.target(known_hosts=(listed,)))
    assert refusal.kind == "host-key-changed" and f"{listed}:3" in refusal.message and refusal.question is None
    assert other.exists() and not caller.accepted.exists()


def test_a_key_of_another_type_does_not_look_like_a_changed_one(tmp_path: Path) -> None:
    """The server has two keys and prefers the one that is not in known_hosts."""
    two = Sshd(tmp_path / "two")
    rsa = keygen(two.folder / "rsa_key", "rsa")
    two.options = (f"HostKey {rsa}",)
    two.know(rsa.with_name("rsa_key.pub"))
    with running(two):
        caller = Caller(tmp_path)
        caller.run(two.target())
        assert caller.said == b"hello\n"


def test_a_revoked_key_is_refused(server: Sshd, caller: Caller, tmp_path: Path) -> None:
    public = " ".join((server.folder / "host_key.pub").read_text().split()[:2])
    listed = tmp_path / "hosts"
    listed.write_text(f"{server.listed} {public}\n@revoked * {public}\n")
    refusal = caller.refused(server.target(known_hosts=(listed,)))
    assert refusal.kind == "host-key-changed" and "@revoked" in refusal.message


def test_hashed_and_wildcard_names_are_found_and_odd_lines_do_no_harm(server: Sshd, tmp_path: Path) -> None:
    public = " ".join((server.folder / "host_key.pub").read_text().split()[:2])
    listed = tmp_path / "hosts"
    listed.write_text(f"{server.listed} {public}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(listed)], check=True, capture_output=True)
    assert listed.read_text().startswith("|1|")
    listed.write_text(
        f"@cert-authority *.example.org {public}\nnonsense\nx ssh-rsa !!!\n@odd * a b\n{listed.read_text()}"
    )
    caller = Caller(tmp_path)
    caller.run(server.target(known_hosts=(listed,)))
    assert caller.said == b"hello\n"
    blob = base64.b64decode(public.split()[1])
    listed.write_text(f"*.example.org,!bad.example.org,[*.example.org]:2222 {public}\n")
    hosts = KnownHosts([listed])
    assert hosts.judge("good.example.org", 22, blob).word == "known"
    assert hosts.judge("bad.example.org", 22, blob).word == "unknown"
    assert hosts.judge("good.example.org", 2222, blob).word == "known"
    assert hosts.judge("good.example.org", 2223, blob).word == "known", "a key without port serves for other ports"
    assert hosts.judge("good.example.org", 22, b"other").word == "changed"
    assert hosts.judge("good.example.org", 2223, b"other").word == "unknown"


def test_a_host_known_by_its_authority_only_is_reached_through_the_systems_ssh(tmp_path: Path) -> None:
    node = Sshd(tmp_path / "signed")
    authority = keygen(tmp_path / "authority")
    sign = ["ssh-keygen", "-q", "-s", str(authority), "-I", "host", "-h", "-n", node.address]
    subprocess.run([*sign, str(node.folder / "host_key.pub")], check=True, capture_output=True)
    node.options = (f"HostCertificate {node.folder / 'host_key-cert.pub'}",)
    public = " ".join((tmp_path / "authority.pub").read_text().split()[:2])
    node.known_hosts.write_text(f"@cert-authority {node.listed},{node.address} {public}\n")
    with running(node):
        caller = Caller(tmp_path)
        stream = caller.run(node.target())
        assert caller.said == b"hello\n" and stream.via.startswith("system ssh (")


def test_a_key_that_is_not_authorised_is_refused(server: Sshd, caller: Caller, tmp_path: Path) -> None:
    refusal = caller.refused(server.target(identity_files=(keygen(tmp_path / "stranger"),)))
    assert refusal.kind == "auth" and "stranger" in refusal.message
    refusal = caller.refused(server.target(identity_files=(tmp_path / "absent",)))
    assert refusal.kind == "auth" and "no key" in refusal.message


def test_a_key_with_a_passphrase_asks_once_for_all_links(tmp_path: Path) -> None:
    node = Sshd(tmp_path / "node")
    locked = keygen(tmp_path / "locked", passphrase="open sesame")
    node.authorized.write_bytes((tmp_path / "locked.pub").read_bytes())
    with running(node):
        caller, target = Caller(tmp_path), node.target(identity_files=(locked,))
        refusal = caller.refused(target)
        question = refusal.question
        assert refusal.kind == "auth" and question and (question.kind, question.subject) == ("passphrase", str(locked))
        caller.answers.give(question, "wrong")
        assert caller.refused(target).question == replace(question, text=f"That was not accepted. {question.text}")
        caller.answers.give(question, "open sesame")
        caller.run(target)
        assert caller.said == b"hello\n"


def test_keys_of_the_agent_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Sshd(tmp_path / "node")
    path = tmp_path / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL)
    try:
        locked = keygen(tmp_path / "held")
        node.authorized.write_bytes((tmp_path / "held.pub").read_bytes())
        monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
        with running(node):
            subprocess.run(["ssh-add", "-q", str(locked)], check=True, capture_output=True)
            locked.unlink()
            config = tmp_path / "config"
            config.write_text(f"UserKnownHostsFile {node.known_hosts}\n")
            caller = Caller(tmp_path)
            caller.run(Target("node", node.address, node.port, ME, ssh_config_file=config))
            assert caller.said == b"hello\n"
    finally:
        agent.terminate()
        agent.wait()


def test_user_certificates_are_used(tmp_path: Path) -> None:
    authority, key = keygen(tmp_path / "ca"), keygen(tmp_path / "key")
    sign = ["ssh-keygen", "-q", "-s", str(authority), "-I", "me", "-n", ME, str(tmp_path / "key.pub")]
    subprocess.run(sign, check=True, capture_output=True)
    node = Sshd(tmp_path / "node", options=(f"TrustedUserCAKeys {tmp_path / 'ca.pub'}",))
    node.authorized.write_text("")
    with running(node):
        caller = Caller(tmp_path)
        caller.run(node.target(identity_files=(key,)))
        assert caller.said == b"hello\n"


def test_names_and_ports_that_lead_nowhere_are_told_apart(server: Sshd, caller: Caller) -> None:
    assert caller.refused(server.target(host="no-such-host.invalid")).kind == "dns"
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        assert caller.refused(server.target(port=closed.getsockname()[1])).kind == "refused"


def test_a_port_where_something_else_listens(server: Sshd, caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("console.channel.STEP_TIMEOUT_S", 0.5)
    monkeypatch.setattr(ssh, "CONNECT_TIMEOUT_S", 0.25)  # what takes longer than this is not tried again
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert caller.refused(server.target(port=silent.getsockname()[1])).kind == "max-startups"


def test_an_sshd_that_hangs_up_is_tried_a_few_times(
    server: Sshd, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh, "BUSY_PAUSES_S", (0.01, 0.01))
    calls: list[int] = []

    def hang_up() -> None:
        while True:
            pipe, _address = other.accept()
            with pipe:
                calls.append(1)
            if len(calls) == 3:
                return

    with socket.create_server(("127.0.0.1", 0)) as other:
        answering = threading.Thread(target=hang_up)
        answering.start()
        assert caller.refused(server.target(port=other.getsockname()[1])).kind == "max-startups"
        answering.join(20)
    assert len(calls) == 3


def test_more_log_ins_than_the_sshd_takes_at_once_all_come_through(tmp_path: Path) -> None:
    with running(Sshd(tmp_path / "node", options=("MaxStartups 8",))) as node:
        said: list[bytes] = []

        def call() -> None:
            caller = Caller(tmp_path)
            caller.run(node.target())
            said.append(caller.said)

        threads = [threading.Thread(target=call) for _ in range(24)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert said == [b"hello\n"] * 24


def test_a_host_behind_another_is_reached_through_it(tmp_path: Path) -> None:
    gate, inner = Sshd(tmp_path / "gate"), Sshd(tmp_path / "inner")
    config = tmp_path / "config"
    both = tmp_path / "hosts"
    config.write_text(
        f"Include {tmp_path}/more\nHost *\n  User {ME}\n  IdentitiesOnly yes\n  UserKnownHostsFile {both}\n"
    )
    (tmp_path / "more").write_text(
        f"Host gate\n  HostName {gate.address}\n  Port {gate.port}\n  IdentityFile {gate.client_key}\n"
        f"Host inner\n  HostName {inner.address}\n  Port {inner.port}\n  IdentityFile {inner.client_key}\n"
        "  ProxyJump gate\n"
    )
    both.write_text(gate.known_hosts.read_text() + inner.known_hosts.read_text())
    with running(gate), running(inner):
        caller = Caller(tmp_path)
        stream = caller.run(Target("inner", ssh_config_file=config), 'echo "$SSH_CONNECTION"')
        assert stream.via == "ssh" and str(inner.port).encode() in caller.said
        route = resolve(Target("inner", ssh_config_file=config))
        assert [hop.port for hop in route.hops] == [gate.port]
        inner.stop()
        assert caller.refused(Target("inner", ssh_config_file=config)).kind == "unreachable"


def test_what_the_built_in_client_cannot_do_goes_through_the_systems_ssh(server: Sshd, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        f"Host far\n  HostName {server.address}\n  Port {server.port}\n  User {ME}\n"
        f"  IdentityFile {server.client_key}\n  UserKnownHostsFile {server.known_hosts}\n"
        f"  ProxyCommand {shutil.which('ssh')} -F none -i {server.client_key} -p {server.port}"
        f" -o UserKnownHostsFile={server.known_hosts} -W %h:%p {ME}@{server.address}\n"
    )
    caller = Caller(tmp_path)
    stream = caller.run(Target("far", ssh_config_file=config))
    assert (caller.said, caller.complaint, caller.status) == (b"hello\n", "oops", 3)
    assert stream.via == "system ssh (ProxyCommand)"


def test_ciphers_that_the_built_in_client_lacks(tmp_path: Path) -> None:
    with running(Sshd(tmp_path / "node", options=("MACs umac-128-etm@openssh.com", "Ciphers aes256-ctr"))) as node:
        caller = Caller(tmp_path)
        stream = caller.run(node.target())
        assert caller.said == b"hello\n" and stream.via.startswith("system ssh (")


def test_what_the_systems_ssh_complains_of_is_told_apart(server: Sshd, caller: Caller, tmp_path: Path) -> None:
    def refused(target: Target) -> Refusal:
        nonce, bundle = carry.fresh_nonce(), carry.bundle()
        line = carry.command_line(bundle, nonce, "", "", ("probe",))
        stream = Dialler(target, caller.answers, caller.accepted, "system")(line)
        try:
            with pytest.raises(Refusal) as caught:
                carry.enter(stream, nonce, bundle, lambda: None)
        finally:
            stream.close()
        assert caught.value.hint
        return caught.value

    listed = tmp_path / "hosts"
    assert refused(server.target(identity_files=(keygen(tmp_path / "stranger"),))).kind == "auth"
    unknown = refused(server.target(known_hosts=(listed,)))
    assert unknown.kind == "host-key-unknown" and "`ssh`" in unknown.hint
    listed.write_text(f"{server.listed} {' '.join((tmp_path / 'stranger.pub').read_text().split()[:2])}\n")
    assert refused(server.target(known_hosts=(listed,))).kind == "host-key-changed"
    assert refused(server.target(host="no-such-host.invalid")).kind == "dns"
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        assert refused(server.target(port=closed.getsockname()[1])).kind == "refused"


def test_a_configuration_that_ssh_refuses_is_shown(tmp_path: Path, caller: Caller) -> None:
    config = tmp_path / "config"
    config.write_text("Host x\n  NoSuchOption yes\n")
    refusal = caller.refused(Target("x", ssh_config_file=config))
    assert refusal.kind == "config" and "nosuchoption" in refusal.message.lower()


def test_jump_hosts_in_a_circle_end(tmp_path: Path, caller: Caller) -> None:
    config = tmp_path / "config"
    config.write_text("Host a\n  ProxyJump b\nHost b\n  ProxyJump a\n")
    assert caller.refused(Target("a", ssh_config_file=config)).kind == "config"


def test_without_openssh_a_plain_configuration_is_read_and_another_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    config = tmp_path / "config"
    config.write_text("Host n\n  HostName 10.1.1.1\n  Port 2222\n  User bob\n  ProxyJump none\n")
    route = resolve(Target("n", ssh_config_file=config))
    assert (route.host, route.port, route.user, route.hops) == ("10.1.1.1", 2222, "bob", ())
    for line in ("Match tagged x", "CanonicalizeHostname yes"):
        config.write_text(f"{line}\n")
        with pytest.raises(Refusal, match=r"config:1: .* needs the OpenSSH client"):
            resolve(Target("n", ssh_config_file=config))


def test_the_poll_interval_of_paramiko_is_in_force(server: Sshd, caller: Caller) -> None:
    """A private name: if it goes, a thousand idle links cost a third of a core."""
    assert paramiko.Transport._active_check_timeout == 0.1  # type: ignore[attr-defined]
    stream = Dialler(server.target(), caller.answers, caller.accepted)("cat")
    try:
        connections: list[Connection] = stream._connections  # type: ignore[attr-defined]
        assert connections[0].sock.gettimeout() == POLL_S >= 2
    finally:
        stream.close()


def test_hanging_up_ends_the_threads_at_once(server: Sshd, caller: Caller) -> None:
    stream = Dialler(server.target(), caller.answers, caller.accepted)("cat")
    connections: list[Connection] = stream._connections  # type: ignore[attr-defined]
    stream.close()
    connections[0].join(POLL_S / 2)
    assert not connections[0].is_alive()


def test_handshakes_at_once_are_as_many_as_default_sshds_take() -> None:
    assert ssh.HANDSHAKES == 8


def test_an_address_of_known_hosts_is_written_as_openssh_does(tmp_path: Path) -> None:
    file = tmp_path / "new/hosts"
    known_hosts.append(file, "h", 22, "ssh-ed25519", b"k")
    known_hosts.append(file, "h", 2200, "ssh-ed25519", b"k")
    assert [line.split()[0] for line in file.read_text().splitlines()] == ["h", "[h]:2200"]


def test_limits_of_this_machine_are_not_blamed_on_the_node(server: Sshd, caller: Caller) -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(int(name) for name in os.listdir("/proc/self/fd"))  # noqa: PTH208
    target = server.target()
    resource.setrlimit(resource.RLIMIT_NOFILE, (used, limit[1]))
    filler: list[int] = []
    try:
        with pytest.raises(OSError, match="open files"):
            while True:
                filler.append(os.dup(0))
        with pytest.raises(Refusal) as caught:
            Dialler(target, caller.answers, caller.accepted)("true")
    finally:
        for descriptor in filler:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    assert caught.value.kind == "limits" and "ulimit" in caught.value.hint
