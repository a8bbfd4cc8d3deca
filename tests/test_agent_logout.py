"""logind that ends processes at log-out: escaped where that is possible, else said. systemd-run is a stand-in."""

from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path

import pytest

from agent import logout

SESSION = "0::/user.slice/user-1000.slice/session-7.scope\n"
SERVICE = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/run-x.scope\n"


class Host:
    """The files that logind goes by, and a systemd-run that works or does not."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        (folder / "linger").mkdir()
        (folder / "bin").mkdir()
        (folder / "dropins").mkdir()
        patch.setattr(logout, "CONFIG", folder / "logind.conf")
        patch.setattr(logout, "DROP_INS", (folder / "dropins",))
        patch.setattr(logout, "LINGER", folder / "linger")
        patch.setattr(logout, "CGROUP", folder / "cgroup")
        patch.setenv("PATH", f"{folder / 'bin'}:/usr/bin:/bin")
        self.systemd_run(0)
        self.cgroup(SESSION)

    def cgroup(self, text: str) -> None:
        (self.folder / "cgroup").write_text(text)

    def kills(self, word: str, file: str = "logind.conf") -> None:
        (self.folder / file).write_text(f"[Login]\n#KillUserProcesses=no\nKillUserProcesses={word}\n")

    def lingers(self) -> None:
        (self.folder / "linger" / pwd.getpwuid(os.getuid()).pw_name).touch()

    def systemd_run(self, status: int) -> None:
        program = self.folder / "bin/systemd-run"
        run = 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"' if status == 0 else f"exit {status}"
        program.write_text(f"#!/bin/sh\n{run}\n")
        program.chmod(0o755)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path, monkeypatch)


def test_where_logind_leaves_processes_alone_nothing_is_done(host: Host) -> None:
    assert (logout.shelter(), logout.warning()) == ([], "")
    host.kills("no")
    assert (logout.shelter(), logout.warning()) == ([], "")
    host.kills("yes")
    host.cgroup(SERVICE)
    assert (logout.shelter(), logout.warning()) == ([], "")


def test_with_lingering_the_daemon_goes_into_a_scope_of_its_own(host: Host) -> None:
    host.kills("yes", "dropins/50-site.conf")
    host.lingers()
    before = logout.shelter()
    assert before[:3] == ["systemd-run", "--user", "--scope"]
    assert subprocess.run([*before, "echo", "a b"], capture_output=True, text=True, check=True).stdout == "a b\n"


def test_without_lingering_it_is_said_what_will_happen_and_what_helps(host: Host) -> None:
    host.kills("yes")
    assert logout.shelter() == [] and "loginctl enable-linger" in logout.warning()


def test_a_service_manager_that_does_not_answer_is_no_shelter(host: Host) -> None:
    host.kills("yes")
    host.lingers()
    host.systemd_run(1)
    assert logout.shelter() == [] and "KillExcludeUsers" in logout.warning()


def test_the_last_word_counts(host: Host) -> None:
    host.kills("yes")
    host.kills("no", "dropins/90-off.conf")
    assert not logout.kills()
