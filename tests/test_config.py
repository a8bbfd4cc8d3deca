"""Settings and fleet: precedence, node sets, and one clear error with its line for everything that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

import configs
from console.config import Config, ConfigError, load, read_fleet
from console.nodeset import NodeSetError, expand
from console.target import Target


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".config/tunedeck").mkdir(parents=True)
    return tmp_path


def write(home: Path, name: str, text: str) -> Path:
    file = home / ".config/tunedeck" / name
    file.write_text(text)
    return file


def loaded(home: Path, nodes: tuple[str, ...] = (), read_only: bool | None = None, **environ: str) -> Config:
    return load(nodes=nodes, read_only=read_only, environ={"HOME": str(home), **environ})


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu01", ["gpu01"]),
        ("gpu[08-11]", ["gpu08", "gpu09", "gpu10", "gpu11"]),
        ("a[1,3-4]b,c", ["a1b", "a3b", "a4b", "c"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("a a,a", ["a"]),
        ("", []),
    ],
)
def test_node_sets(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize("text", ["a[", "a]", "a[1-]", "a[x]", "a[3-1]", "a[[1]]", "a[1-99999]", "a[1-99][1-99]"])
def test_node_sets_that_make_no_sense(text: str) -> None:
    with pytest.raises(NodeSetError):
        expand(text)


def test_without_files_there_are_no_nodes_and_the_defaults_hold(home: Path) -> None:
    config = loaded(home)
    assert (config.nodes, config.read_only, config.ssh) == ((), False, "auto")
    assert config.fleet_file == home / ".config/tunedeck/fleet.yaml"
    assert config.known_hosts == home / ".local/state/tunedeck/known_hosts"


def test_folders_follow_xdg_unless_relative(home: Path) -> None:
    config = loaded(home, XDG_CONFIG_HOME="/etc/x", XDG_STATE_HOME="relative")
    assert config.config_dir == Path("/etc/x/tunedeck")
    assert config.state_dir == home / ".local/state/tunedeck"


def test_the_example_shows_every_way_to_name_a_node() -> None:
    nodes = {target.name: target for target in read_fleet(configs.path("fleet.example.yaml"))}
    assert len(nodes) == 19
    assert nodes["gpu07"].user == "ubuntu"
    assert (nodes["rented"].address, nodes["rented"].port, nodes["rented"].user) == ("203.0.113.7", 40022, "root")
    assert nodes["login.example.org"].user == "alice"
    assert nodes["cluster-login"].home == "/scratch/alice/.tunedeck"


def test_flag_goes_before_environment_before_file_before_default(home: Path) -> None:
    write(home, "config.yaml", "read_only: true\nssh: system\ntheme: dusk\nkeys: {kill: K}\n")
    assert (loaded(home).read_only, loaded(home).ssh, loaded(home).theme) == (True, "system", "dusk")
    assert loaded(home).keys == {"kill": "K"}
    assert loaded(home, TUNEDECK_READ_ONLY="no", TUNEDECK_SSH="auto").read_only is False
    assert loaded(home, TUNEDECK_SSH="auto").ssh == "auto"
    assert loaded(home, read_only=True, TUNEDECK_READ_ONLY="0").read_only is True


def test_named_nodes_are_those_of_the_fleet_and_others_as_ssh_knows_them(home: Path) -> None:
    write(home, "fleet.yaml", "nodes:\n- {name: a, host: 10.0.0.1, port: 2222}\n- b\n")
    assert [t.name for t in loaded(home).nodes] == ["a", "b"]
    a, c = loaded(home, nodes=("a,bob@c:2200",)).nodes
    assert (a.host, a.port) == ("10.0.0.1", 2222)
    assert (c.name, c.host, c.port, c.user) == ("c:2200", "c", 2200, "bob")
    assert [t.name for t in loaded(home, TUNEDECK_NODES="x[1-2]").nodes] == ["x1", "x2"]
    assert [t.name for t in loaded(home, nodes=("y",), TUNEDECK_NODES="x").nodes] == ["y"]


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("nodes: [\n", 2, "not YAML"),
        ("- a\n", 1, "mapping"),
        ("node: [a]\n", 1, "node is not a setting"),
        ("nodes:\n- a\n- {name: b, prot: 1}\n", 3, "Did you mean `port`"),
        ("nodes:\n- a\n- a\n", 3, "listed twice"),
        ("nodes:\n- -oProxyCommand=evil\n", 2, "begins with '-'"),
        ("nodes:\n- {name: a, host: -oProxyCommand=evil}\n", 2, "begins with '-'"),
        ("nodes:\n- {name: a, jump: -J}\n", 2, "begins with '-'"),
        ("nodes:\n- {name: a, user: 'x; rm -rf /'}\n", 2, "characters"),
        ("nodes:\n- {name: a, home: '$(reboot)'}\n", 2, "characters"),
        ('nodes:\n- {name: a, python: "x\'y"}\n', 2, "characters"),
        ("nodes:\n- {name: a, port: ssh}\n", 2, "whole number"),
        ("nodes:\n- {name: a, port: 70000}\n", 2, "out of range"),
        ("nodes:\n- {host: a}\n", 2, "name is missing"),
        ("nodes:\n- {name: 'a[1-2]', host: x}\n", 2, "one host"),
        ("nodes:\n- [a]\n", 2, "neither"),
        ("nodes: a\n", 1, "no list"),
        ("nodes:\n- a[2-1]\n", 2, "backwards"),
    ],
)
def test_a_wrong_fleet_says_where(home: Path, text: str, line: int, said: str) -> None:
    file = write(home, "fleet.yaml", text)
    with pytest.raises(ConfigError) as caught:
        loaded(home)
    assert caught.value.where == f"{file}:{line}"
    assert said in str(caught.value) and caught.value.hint


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("them: x\n", "theme"),
        ("ssh: telnet\n", "auto"),
        ("read_only: maybe\n", "true or false"),
        ("keys: [a]\n", "keys"),
    ],
)
def test_wrong_settings_say_where(home: Path, text: str, said: str) -> None:
    write(home, "config.yaml", text)
    with pytest.raises(ConfigError, match=r"config\.yaml:1") as caught:
        loaded(home)
    assert said in str(caught.value)


def test_wrong_flags_and_variables_are_named(home: Path) -> None:
    with pytest.raises(ConfigError, match="TUNEDECK_READ_ONLY"):
        loaded(home, TUNEDECK_READ_ONLY="perhaps")
    with pytest.raises(ConfigError, match="TUNEDECK_SSH"):
        loaded(home, TUNEDECK_SSH="rsh")
    with pytest.raises(ConfigError, match="-w"):
        loaded(home, nodes=("-oProxyCommand=evil",))
    with pytest.raises(ConfigError, match="SHA256"):
        load(accept_host_keys=["aa:bb"], environ={"HOME": str(home)})


def test_a_file_that_cannot_be_read_is_one_error(home: Path) -> None:
    (home / ".config/tunedeck/fleet.yaml").mkdir()
    with pytest.raises(ConfigError, match=r"fleet\.yaml"):
        loaded(home)
    (home / ".config/tunedeck/config.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="UTF-8"):
        loaded(home)


@pytest.mark.parametrize(
    ("text", "host", "port"), [("[fe80::1]:2222", "fe80::1", 2222), ("fe80::1", "fe80::1", None), ("h:22", "h", 22)]
)
def test_addresses(text: str, host: str, port: int | None) -> None:
    target = Target.parse(text)
    assert (target.address, target.port) == (host, port)
