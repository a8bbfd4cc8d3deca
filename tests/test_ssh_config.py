"""ssh_config as OpenSSH reads it: what is resolved against `ssh -G`, with and without the client being there."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from console.refusal import Refusal
from console.route import Route, resolve
from console.target import Target

SSH = shutil.which("ssh") or "/usr/bin/ssh"
CORPUS = {
    "first value wins": "Host a\n Port 1\n Port 2\nHost *\n Port 3\n User u\n",
    "wildcards": "Host gpu-?\n User q\nHost gpu-*\n User s\nHost *.lab\n HostName %h.example.org\n",
    "negation": "Host * !gpu-1 !b\n User other\nHost gpu-1\n User one\n",
    "brackets are no wildcards": "Host [ab]\n User no\nHost a\n User yes\n",
    "case": "HOST A b\n hostname Foo.Example\n PORT 22022\n",
    "equals and quotes": 'Host=a "b"\n User = "me"\n Port=2200\nHost gpu-1 # remark\n User x # another\n',
    "before the first host": "User first\nHost a\n User second\nPort 4\n",
    "match": "Match host a user root\n Port 5\nMatch originalhost b,gpu-*\n HostName 10.0.0.1\n"
    "Match host 10.0.0.1\n Port 6\nMatch !host a,b localuser *\n User w\nMatch all\n HostKeyAlias k\n",
    "match after hostname": "Host a\n HostName in.example\nMatch host IN.example\n Port 7\nMatch host a\n Port 8\n",
    "include": "Include {folder}/inc*.conf\nHost *\n User last\n",
    "include in a block": "Host a\n Include {folder}/inc1.conf\n User here\nHost b\n User b\n",
    "include nothing": "Include {folder}/none-*.conf {folder}/inc2.conf\nHost a\n Port 9\n",
    "identities": "Host a\n IdentityFile /k/one\n IdentityFile /k/two\n IdentitiesOnly yes\nHost *\n"
    " IdentityFile /k/one\n IdentityFile /k/three\n",
    "tokens": "Host *\n HostName %h.x.y\n IdentityFile /k/%h-%n-%r-%p-%%h-%L\n"
    " IdentityFile %d/.ssh/%u\n User joe\n Port 23\n",
    "known hosts": "Host a\n UserKnownHostsFile /x/1 /x/2\n GlobalKnownHostsFile /x/3\n HashKnownHosts yes\n"
    "Host *\n UserKnownHostsFile none\n",
    "strict yes": "Host *\n StrictHostKeyChecking yes\n",
    "strict new": "Host a\n StrictHostKeyChecking accept-new\nHost b\n StrictHostKeyChecking no\n"
    "Host *\n CheckHostIP no\n",
    "alias": "Host a\n HostKeyAlias farm\n Port 999\n",
    "v6": "Host a\n HostName 2001:db8::7\nHost b\n HostName fe80::1%%eth0\n",
    "jump": "Host a\n ProxyJump b,joe@gpu-1:2022\nHost b\n User hop\n Port 24\n",
    "jump of a jump": "Host a\n ProxyJump b\nHost b\n ProxyJump gpu-1\nHost gpu-1\n HostName 10.9.9.9\n",
    "jump off": "Host a\n ProxyJump none\nHost * !b\n ProxyJump b\n",
    "command first": "Host a\n ProxyCommand nc -X 5 %h %p\n ProxyJump b\n",
    "jump first": "Host a\n ProxyJump b\n ProxyCommand nc %h %p\n",
    "agent": "Host a\n IdentityAgent none\nHost b\n IdentityAgent /run/%u/agent\nHost *\n ForwardAgent yes\n",
}
BEYOND = {
    "Match exec true": "Match exec",
    "Match final host a": "Match final",
    "Match canonical": "Match canonical",
    "Match tagged x": "Match tagged",
    "CanonicalizeHostname yes": "canonicalizehostname",
    "Ciphers aes128-ctr": "ciphers",
    "KnownHostsCommand /bin/x": "knownhostscommand",
    "SomethingNew 1": "somethingnew",
}
HOSTS = ("a", "b", "gpu-1", "n.lab", "Xy")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("config")
    (folder / "inc1.conf").write_text("Port 41\nHost a\n HostName one.example\nHost b\n HostName two.example\n")
    (folder / "inc2.conf").write_text("User two\nMatch host one.example\n Port 42\n")
    return folder


def plain(route: Route) -> Route:
    """Without the default keys, whose list differs between versions of OpenSSH."""
    usual = tuple(file for file in route.identity_files if not (file.parent.name == ".ssh" and "id_" in file.name))
    return replace(route, identity_files=usual, hops=tuple(map(plain, route.hops)))


@pytest.mark.parametrize("name", CORPUS)
def test_without_the_client_the_same_is_read_as_with_it(
    name: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config"
    config.write_text(CORPUS[name].replace("{folder}", str(folder)))
    targets = [Target(host, ssh_config_file=config) for host in HOSTS]
    targets += [
        Target("a", user="root", port=77, ssh_config_file=config),
        Target("a", jump="b", ssh_config_file=config),
    ]
    with_client = [plain(resolve(target)) for target in targets]
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    for target, route in zip(targets, with_client, strict=True):
        assert plain(resolve(target)) == route, target


@pytest.mark.parametrize("line", BEYOND)
def test_what_cannot_be_read_exactly_is_refused_by_line(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config"
    config.write_text(f"# x\nHost other\n User u\n\n{line}\n")
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(Refusal, match=rf"config:5: `{BEYOND[line]}.*` needs the OpenSSH client") as caught:
        resolve(Target("a", ssh_config_file=config))
    assert caught.value.kind == "config"


@pytest.mark.parametrize("name", ["tokens", "identities", "match", "jump off", "include"])
def test_key_files_are_those_that_ssh_would_try(name: str, folder: Path, tmp_path: Path) -> None:
    """`ssh -G` leaves tokens in file names; what they come to is in ssh's log."""
    config = tmp_path / "config"
    config.write_text(CORPUS[name].replace("{folder}", str(folder)))
    for host in ("a", "gpu-1"):
        options = ["-v", "-F", str(config), "-o", "ProxyJump=none", "-o", "ProxyCommand=false", "-o", "BatchMode=yes"]
        log = subprocess.run([SSH, *options, host], capture_output=True, text=True, stdin=subprocess.DEVNULL).stderr
        tried = re.findall(r"identity file (\S+) type", log)
        ours = [str(file) for file in resolve(Target(host, ssh_config_file=config)).identity_files]
        assert [file for file in tried if not file.endswith("-cert")] == ours


def test_options_of_every_match_kind_are_read_by_ssh_itself(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        'Match exec "test %n = a"\n Port 31\nMatch final host *.example\n User final\n'
        "CanonicalizeHostname no\nHost a\n HostName x.example\n"
    )
    route = resolve(Target("a", ssh_config_file=config))
    assert (route.host, route.port, route.user) == ("x.example", 31, "final")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("CertificateFile /k/x-cert.pub", "CertificateFile"),
        ("BindAddress 127.0.0.1", "BindAddress"),
        ("AddressFamily inet6", "AddressFamily"),
        ("RevokedHostKeys /k/revoked", "RevokedHostKeys"),
        ("KnownHostsCommand /bin/echo", "KnownHostsCommand"),
        ("PKCS11Provider /k/lib.so", "PKCS11Provider"),
        ("HostbasedAuthentication yes", "HostbasedAuthentication"),
        ("ProxyCommand nc %h %p", "ProxyCommand"),
        ("IdentityFile /k/%C", "%C"),
    ],
)
def test_what_the_built_in_client_would_pass_over_goes_through_ssh(line: str, why: str, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(f"Host a\n {line}\nHost c\n ProxyJump a\n")
    assert resolve(Target("a", ssh_config_file=config)).system == why
    assert resolve(Target("b", ssh_config_file=config)).system == ""
    assert resolve(Target("c", ssh_config_file=config)).system == why
