"""Carried copies of the agent on a node: unused ones go, none that anything runs out of."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent import bundles
from agent.bundles import MARK, UNUSED_S, tend

DAY_S = 86400.0


def bundle(home: Path, name: str, age_s: float) -> Path:
    made = home / "bundles" / name
    made.mkdir(parents=True)
    (made / "enter.py").write_text("import sys\nprint(flush=True)\nsys.stdin.read()\n")
    os.utime(made, (time.time() - age_s,) * 2)
    return made


def left(home: Path) -> set[str]:
    return {entry.name for entry in (home / "bundles").iterdir()}


def test_what_nobody_has_used_for_a_month_goes(tmp_path: Path) -> None:
    bundle(tmp_path, "old", UNUSED_S + DAY_S)
    bundle(tmp_path, "fresh", UNUSED_S - DAY_S)
    bundle(tmp_path, ".draft.elsewhere.1", UNUSED_S + DAY_S)
    marked = bundle(tmp_path, "elsewhere", 3 * UNUSED_S)
    (marked / MARK).touch()  # by another machine that shares this home
    assert sorted(tend(tmp_path)) == [".draft.elsewhere.1", "old"]
    assert left(tmp_path) == {"fresh", "elsewhere"}
    assert sorted(tend(tmp_path, time.time() + UNUSED_S + 2 * DAY_S)) == ["elsewhere", "fresh"]


def test_a_bundle_out_of_which_something_runs_is_marked_and_stays(tmp_path: Path) -> None:
    home, link = tmp_path / "home", tmp_path / "link"
    home.mkdir()
    link.symlink_to(home)
    kept = bundle(home, "kept", 2 * UNUSED_S)
    argv = [sys.executable, str(link / "bundles/kept/enter.py"), "keep", "run"]  # as a home reached by a link is named
    keeper = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert keeper.stdout is not None
    try:
        assert keeper.stdout.readline() == b"\n"  # while it is still being started it has no command line to be seen
        assert tend(home) == [] and (kept / MARK).exists()
        assert tend(home, time.time() + 2 * UNUSED_S) == []
    finally:
        keeper.communicate()
    assert tend(home, time.time() + 2 * UNUSED_S) == ["kept"]


def test_the_code_that_tends_is_never_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = bundle(tmp_path, "own", 2 * UNUSED_S)
    monkeypatch.setattr(bundles, "ROOT", own.resolve())
    assert tend(tmp_path) == [] and left(tmp_path) == {"own"}


def test_where_nothing_was_carried_there_is_nothing_to_do(tmp_path: Path) -> None:
    assert tend(tmp_path) == []
