"""Folders that are private, or refused; disks that are full, or read-only."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent import door, reexec, wire
from agent.door import Door
from agent.refusal import Refusal
from agent.state import StateFolder
from tests.fakes.node import Node, until


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k,mode=0700", "tmpfs", str(place)], check=True)
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def refused(node: Node) -> wire.Reply:
    """What a console is told when it cannot be let in."""
    console = node.console()
    assert console.process.wait(60) == 1
    console.over.wait(10)
    assert console.process.stderr is not None
    words = console.process.stderr.read().decode()
    reply = console.replies[""]
    assert words.count("\n") == 1 and reply.error in words, "one line, and no traceback"
    return reply


def test_the_state_folder_is_per_machine(tmp_path: Path) -> None:
    state = StateFolder.locate({"HOME": str(tmp_path)})
    assert state.path == tmp_path / ".tunedeck" / "nodes" / state.node
    assert socket.gethostname() in state.node
    assert StateFolder.locate({"HOME": "/x", "TUNEDECK_HOME": str(tmp_path)}).home == tmp_path
    with pytest.raises(Refusal, match="absolute"):
        StateFolder.locate({"HOME": "/x", "TUNEDECK_HOME": "here"})


def test_different_homes_have_different_doors(tmp_path: Path) -> None:
    doors = [Door.of(StateFolder(tmp_path / name, "n"), {}) for name in ("a", "b")]
    assert doors[0].socket != doors[1].socket
    assert doors[0].folder == Path(f"/tmp/tunedeck-{os.getuid()}")


def test_open_folders_are_closed(tmp_path: Path) -> None:
    state = StateFolder(tmp_path / "home", "n")
    state.home.mkdir(mode=0o755)
    state.create()
    assert {path.stat().st_mode & 0o777 for path in (state.home, state.path, state.runs)} == {0o700}


def test_a_linked_home_is_taken(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "home").symlink_to(tmp_path / "scratch")
    StateFolder(tmp_path / "home", "n").create()
    assert (tmp_path / "scratch" / "nodes" / "n" / "runs").is_dir()


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(Refusal, match="home"):
        StateFolder(tmp_path / "home", "n").create()


def test_somebody_elses_state_folder_is_refused(node: Node) -> None:
    node.state.home.mkdir()
    os.chown(node.state.home, 65534, 65534)
    reply = refused(node)
    assert "uid 65534" in reply.error and "TUNEDECK_HOME" in reply.hint


@pytest.mark.parametrize("trap", ["link", "file", "open", "foreign"])
def test_a_socket_folder_that_is_a_trap_is_not_entered(node: Node, tmp_path: Path, trap: str) -> None:
    """The daemon's side and the bridge's side look for themselves."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    if trap == "link":
        node.runtime.symlink_to(elsewhere)
    elif trap == "file":
        node.runtime.write_text("")
    else:
        node.runtime.mkdir(mode=0o700)
        if trap == "open":
            node.runtime.chmod(0o777)
        else:
            os.chown(node.runtime, 65534, 65534)
    reply = refused(node)
    assert str(node.runtime) in reply.error and "0700" in reply.hint
    daemon = subprocess.run(reexec.command("serve"), capture_output=True, text=True, timeout=60)
    assert daemon.returncode == 1 and str(node.runtime) in daemon.stderr and "Traceback" not in daemon.stderr
    assert list(elsewhere.iterdir()) == []


def test_a_socket_served_by_another_uid_is_refused(node: Node) -> None:
    """A stranger who got hold of our socket's name must not be told our orders."""
    node.state.create()
    node.door.check()
    code = (
        "import os, socket, sys\n"
        "s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); os.chmod(sys.argv[1], 0o777)\n"
        "os.setgid(65534); os.setuid(65534); s.listen()\n"
        "print('there', flush=True); s.accept()[0].recv(1)\n"
    )
    command = [sys.executable, "-c", code, str(node.door.socket)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as stranger:
        assert stranger.stdout is not None
        assert stranger.stdout.readline() == "there\n"
        assert "uid 65534" in refused(node).error


def test_a_socket_left_by_a_dead_daemon_is_replaced(node: Node) -> None:
    node.state.create()
    node.door.check()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(node.door.socket))
    assert node.console().welcome().node == node.state.node


def test_addresses_longer_than_the_kernel_takes(node: Node, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)
    monkeypatch.setenv("TUNEDECK_RUNTIME", str(deep))
    node.runtime, node.door = deep, Door.of(node.state)
    assert len(os.fsencode(node.door.socket)) > door.ADDRESS_LIMIT_BYTES
    assert node.console().welcome().node == node.state.node


def test_the_lock_is_exclusive_and_survives_a_cleaner(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = door.hold(path)
    assert first is not None and door.holder(path) == os.getpid()
    assert door.hold(path) is None
    path.unlink()
    second = door.hold(path)
    assert second is not None, "a lock on a file that nobody finds any more is none"
    os.close(first)
    os.close(second)


def test_a_read_only_home_is_one_clear_refusal(node: Node, small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    monkeypatch.setenv("TUNEDECK_HOME", str(small_disk / "home"))
    reply = refused(node)
    assert "Read-only file system" in reply.error and "TUNEDECK_HOME" in reply.hint
    assert reply.result == {"kind": "read-only-home"}


def test_a_full_home_is_one_clear_refusal(node: Node, small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNEDECK_HOME", str(small_disk / "home"))
    fill(small_disk)
    reply = refused(node)
    assert "the disk is full" in reply.error and "df" in reply.hint and reply.result == {"kind": "disk-full"}


def test_a_disk_that_fills_up_later(node: Node, small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No launch, nothing half-made; the daemon stays, and what happened is told once there is room."""
    monkeypatch.setenv("TUNEDECK_HOME", str(small_disk / "home"))
    node.state = StateFolder.locate()
    console = node.console()
    until(lambda: console.levels)
    filler = fill(small_disk)
    before = sorted(node.state.runs.iterdir())
    reply = console.ask(wire.Launch("model: org/model\ndata: {path: /dev/null}", force=True))
    assert not reply.ok and "the disk is full" in reply.error
    assert sorted(node.state.runs.iterdir()) == before
    assert not any("launch" in event.text for event in console.numbered()), "not on disk, not told"
    filler.unlink()
    until(lambda: any("launch" in event.text for event in console.numbered()))


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as stream:
        try:
            while stream.write(b"x" * 512):
                pass
        except OSError:
            return filler
    raise AssertionError("the disk has no end")
