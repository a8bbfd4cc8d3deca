"""The way into a node through real shells: bundle sent once, verified, and one clear refusal for every bad node."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from console import carry
from console.refusal import Refusal
from console.stream import ProcessStream, read_until
from tests.hosts import stand_in

ECHO = "import sys; print('agent', *sys.argv[1:], flush=True); print('heard', sys.stdin.readline(), end='', flush=True)"
SHELLS = [
    [path] for name in ("sh", "dash", "bash", "zsh", "ksh", "tcsh", "csh", "fish") if (path := shutil.which(name))
] + [["/bin/bash", "--login"]]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> carry.Bundle:
    return stand_in.bundle(tmp_path_factory.mktemp("bundle"), ECHO)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


class Visit:
    """One entry into a node whose agent is ECHO."""

    def __init__(
        self,
        bundle: carry.Bundle,
        start: Callable[[str], ProcessStream],
        home: str = "",
        python: str = "",
    ) -> None:
        self.carried = 0
        nonce = carry.fresh_nonce()
        stream = start(carry.command_line(bundle, nonce, home, python, ("attach", "--read-only")))
        try:
            rest = carry.enter(stream, nonce, bundle, self.count)
            bell = threading.Event()
            stream.notify(bell)
            stream.write(b"hello\n")
            self.said = (rest + read_until(stream, bell, lambda data: b"heard" in data, 10_000, 20)).decode()
            self.status = stream.exit_status()
        finally:
            stream.close()

    def count(self) -> None:
        self.carried += 1


def through(home: Path, shell: list[str] | None = None, **more: str) -> Callable[[str], ProcessStream]:
    return lambda command: stand_in.login(command, stand_in.environ(home, **more), shell or ["/bin/sh"])


def refused(bundle: carry.Bundle, start: Callable[[str], ProcessStream], **wishes: str) -> Refusal:
    with pytest.raises(Refusal) as caught:
        Visit(bundle, start, **wishes)
    assert caught.value.message and caught.value.hint
    assert len(caught.value.message) < 700
    return caught.value


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_every_login_shell_takes_the_line_and_the_second_time_nothing_is_sent(
    bundle: carry.Bundle, home: Path, shell: list[str]
) -> None:
    first, second = Visit(bundle, through(home, shell)), Visit(bundle, through(home, shell))
    assert "agent attach --read-only" in first.said and "heard hello" in first.said
    assert (first.carried, second.carried) == (1, 0)
    assert second.said.endswith("heard hello\n")
    bundles = home / ".tunedeck/bundles"
    assert [path.name for path in bundles.iterdir()] == [bundle.name]
    assert {(home / ".tunedeck").stat().st_mode & 0o777, bundles.stat().st_mode & 0o777} == {0o700}


@pytest.mark.parametrize(
    ("file", "shell"),
    [(".bash_profile", ["/bin/bash", "--login"])] + [(".cshrc", [p]) for p in [shutil.which("tcsh")] if p],
)
def test_what_a_login_script_prints_is_discarded(bundle: carry.Bundle, home: Path, file: str, shell: list[str]) -> None:
    (home / file).write_text("echo Welcome to the cluster\necho 'need 1'\necho -n half a line\n")
    visit = Visit(bundle, through(home, shell))
    assert visit.said.startswith("agent attach") and "cluster" not in visit.said


def test_a_shell_that_echoes_the_command_is_not_taken_for_an_answer(bundle: carry.Bundle, home: Path) -> None:
    echo = ["/bin/sh", "-c", 'printf %s "forbidden: $1"']
    refusal = refused(bundle, through(home, echo))
    assert refusal.kind == "restricted-shell" and "forbidden" in refusal.message


def test_a_damaged_bundle_is_noticed_and_replaced(bundle: carry.Bundle, home: Path) -> None:
    Visit(bundle, through(home))
    entry = home / ".tunedeck/bundles" / bundle.name / "agent/__main__.py"
    entry.write_text("print('not ours')")
    visit = Visit(bundle, through(home))
    assert visit.carried == 1 and "agent attach" in visit.said
    assert entry.read_text() == ECHO
    assert [path.name for path in entry.parent.parent.parent.iterdir()] == [bundle.name]


def test_several_consoles_may_bring_the_bundle_at_once(bundle: carry.Bundle, home: Path) -> None:
    visits: list[Visit] = []
    threads = [threading.Thread(target=lambda: visits.append(Visit(bundle, through(home)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(visits) == 4 and all("heard hello" in visit.said for visit in visits)
    assert [path.name for path in (home / ".tunedeck/bundles").iterdir()] == [bundle.name]


def test_home_of_the_configuration_goes_before_the_variable_and_the_default(
    bundle: carry.Bundle, home: Path, tmp_path: Path
) -> None:
    Visit(bundle, through(home, TUNEDECK_HOME=str(tmp_path / "variable")))
    Visit(bundle, through(home, TUNEDECK_HOME=str(tmp_path / "variable")), home="~/elsewhere")
    assert (tmp_path / "variable/bundles" / bundle.name).is_dir()
    assert (home / "elsewhere/bundles" / bundle.name).is_dir()
    assert not (home / ".tunedeck").exists()


def fake(folder: Path, version: str, status: int = 1) -> Path:
    """A python3 that says it is that old."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "python3"
    script.write_text(f"#!/bin/sh\necho {version}\nexit {status}\n")
    script.chmod(0o755)
    return with_sh(folder)


def with_sh(folder: Path) -> Path:
    """A folder for PATH that holds a shell and nothing else of the system."""
    folder.mkdir(exist_ok=True)
    (folder / "sh").symlink_to("/bin/sh")
    return folder


NOWHERE = tuple(place for place in carry.INTERPRETERS if place.startswith("$HOME") or "/" not in place)
"""Without the places on this machine where a Python may lie."""


@pytest.fixture
def only_in_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carry, "INTERPRETERS", NOWHERE)


@pytest.mark.usefixtures("only_in_home")
def test_a_node_with_only_an_old_python_is_refused_with_what_was_found(
    bundle: carry.Bundle, home: Path, tmp_path: Path
) -> None:
    path = str(fake(tmp_path / "old", "3.6.8"))
    refusal = refused(bundle, through(home, PATH=path))
    assert refusal.kind == "no-python" and "3.6.8" in refusal.message
    assert refused(bundle, through(home, PATH=str(with_sh(tmp_path / "none")))).kind == "no-python"
    assert not (home / ".tunedeck").exists()


@pytest.mark.usefixtures("only_in_home")
@pytest.mark.parametrize(
    "place", ["miniconda3/bin", ".pyenv/versions/3.11.7/bin", ".local/share/uv/python/cpython-3.12/bin"]
)
def test_a_python_in_one_of_the_usual_places_is_found(
    bundle: carry.Bundle, home: Path, tmp_path: Path, place: str
) -> None:
    (home / place).mkdir(parents=True)
    (home / place / "python3").symlink_to(Path(sys.executable).resolve())
    assert "agent attach" in Visit(bundle, through(home, PATH=str(fake(tmp_path / "old", "3.8.2")))).said


@pytest.mark.usefixtures("only_in_home")
def test_the_python_of_the_configuration_goes_first(bundle: carry.Bundle, home: Path, tmp_path: Path) -> None:
    (home / "mine").symlink_to(Path(sys.executable).resolve())
    assert "agent attach" in Visit(bundle, through(home, PATH=str(with_sh(tmp_path / "none"))), python="~/mine").said


@pytest.mark.usefixtures("only_in_home")
def test_a_python_that_may_not_run_is_named(bundle: carry.Bundle, home: Path, tmp_path: Path) -> None:
    path = fake(tmp_path / "stuck", "", 126)
    refusal = refused(bundle, through(home, PATH=str(path)))
    assert refusal.kind == "noexec" and str(path) in refusal.message


def mounted(options: str, home: Path) -> Callable[[str], ProcessStream]:
    """A login whose home is a file system with these options, seen by that login alone."""
    apart = ["unshare", "--mount"] if os.getuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
    script = f'mount -t tmpfs -o {options} none "$HOME" && exec sh -c "$1"'
    env = stand_in.environ(home)
    env["PATH"] += ":/usr/sbin:/sbin"
    return lambda command: ProcessStream([*apart, "sh", "-c", script, "sh", command], "local", env)


@pytest.mark.parametrize(("options", "kind"), [("size=8k", "disk-full"), ("ro", "read-only-home")])
def test_a_home_that_takes_nothing_is_refused_and_named(
    bundle: carry.Bundle, home: Path, options: str, kind: str
) -> None:
    refusal = refused(bundle, mounted(options, home))
    assert refusal.kind == kind and ".tunedeck" in refusal.message and "home:" in refusal.hint


def test_a_noexec_home_does_not_matter(bundle: carry.Bundle, home: Path) -> None:
    assert "agent attach" in Visit(bundle, mounted("noexec", home)).said


def test_a_file_in_the_way_is_named(bundle: carry.Bundle, home: Path) -> None:
    (home / ".tunedeck").write_text("")
    assert refused(bundle, through(home)).kind == "read-only-home"


STRANGER = ("setpriv", "--reuid=64321", "--regid=64321", "--clear-groups")
"""Root has no limit of processes."""


@pytest.mark.parametrize(
    ("shell", "kind", "said"),
    [
        (
            ["/bin/sh", "-c", "echo This account is currently not available.; exit 1"],
            "restricted-shell",
            "not available",
        ),
        (["/bin/sh", "-c", "echo This service allows sftp connections only."], "restricted-shell", "sftp"),
        (["/bin/bash", "--restricted"], "restricted-shell", "restricted"),
        (["/bin/sh", "-c", "echo Access denied by pam_slurm_adopt: no active jobs >&2; exit 1"], "denied", "slurm"),
        (["/bin/sh", "-c", "yes spam"], "garbled", "did not run our line"),
        ([*STRANGER, "prlimit", "--nproc=1", "/bin/sh"], "exhausted", "fork"),
        ([*STRANGER, "prlimit", "--nproc=1", "/bin/bash"], "exhausted", "fork"),
        (["prlimit", "--nofile=4", "/bin/sh"], "exhausted", "Pipe"),
    ],
    ids=["nologin", "sftp-only", "rbash", "slurm", "flood", "processes-sh", "processes-bash", "files"],
)
def test_accounts_that_run_nothing(bundle: carry.Bundle, home: Path, shell: list[str], kind: str, said: str) -> None:
    refusal = refused(bundle, through(home, shell))
    assert refusal.kind == kind and said in refusal.message


def test_a_shell_that_never_answers_is_given_up(
    bundle: carry.Bundle, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carry, "SHELL_TIMEOUT_S", 0.3)
    assert refused(bundle, through(home, ["/bin/sh", "-c", "exec sleep 600"])).kind == "timeout"


def test_what_came_damaged_is_not_published(bundle: carry.Bundle, home: Path) -> None:
    lie = carry.Bundle(bundle.name, carry.pack({"enter.py": carry.HERE / "enter.py"}).packed, 1)
    refusal = refused(lie, through(home))
    assert refusal.kind == "garbled"
    assert list((home / ".tunedeck/bundles").iterdir()) == []


@pytest.mark.parametrize("word", ["a'b", "$(x)", "a b", "a;b", 'a"b', "a\\b", "a\nb", "`x`", "!1"])
def test_nothing_that_a_shell_could_run_gets_into_the_line(bundle: carry.Bundle, word: str) -> None:
    with pytest.raises(ValueError, match="command line"):
        carry.command_line(bundle, carry.fresh_nonce(), word, "", ("attach",))


def test_the_line_holds_nothing_that_a_login_shell_could_take_for_its_own(bundle: carry.Bundle) -> None:
    nonce = carry.fresh_nonce()
    line = carry.command_line(bundle, nonce, "", "", ("attach",))
    inside = line.removeprefix("exec sh -c '").removesuffix("'")
    assert not set(inside) & set("'\\!\n") and "".join(nonce) not in line
    assert len(line) < 8192


def test_the_real_bundle_runs_the_real_agent(home: Path) -> None:
    """`probe` needs the node's psutil, or the one carried along, and pynvml and yaml of the bundle."""
    real = carry.bundle()
    nonce = carry.fresh_nonce()
    stream = stand_in.login(carry.command_line(real, nonce, "", "", ("probe",)), stand_in.environ(home))
    bell = threading.Event()
    try:
        rest = carry.enter(stream, nonce, real, lambda: None)
        stream.notify(bell)
        said = rest + read_until(stream, bell, lambda _data: False, 1_000_000, 30)
    finally:
        stream.close()
    assert b'"hostname"' in said, stream.complaint()


def test_carried_libraries_load_in_a_bare_python(home: Path) -> None:
    """As on a node that has none of them: no site-packages at all."""
    folder = home / "bundle"
    for name, path in carry.files():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(path.read_bytes())
    code = "import psutil, pynvml, yaml; print(psutil.__file__, pynvml.__file__, yaml.__file__)"
    (folder / "agent/__main__.py").write_text(code)
    done = subprocess.run([sys.executable, "-S", str(folder / "enter.py")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(path.startswith(str(folder / "vendor")) for path in done.stdout.split())
