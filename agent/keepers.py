"""Keepers as the daemon has them: started, waited for until their first word, and never its to end."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

from agent import kept
from agent.reexec import command, environment
from agent.refusal import Refusal
from jobs.run_folder import RunFolder

START_S = 15.0
CHILDREN: list[subprocess.Popen[bytes]] = []
"""Those this process is the parent of, so that one that ended does not stay a zombie."""


def start(folder: RunFolder) -> None:
    """Starts the keeper and waits for its first word. Raises Refusal; nothing of the run is left then."""
    child = spawn(folder, adopt=False)
    deadline = time.monotonic() + START_S
    while kept.read(folder) is None:
        if child.poll() is not None or time.monotonic() > deadline:
            child.kill()
            child.wait()
            refusal = silent(folder)
            shutil.rmtree(folder.path, ignore_errors=True)
            raise refusal
        time.sleep(0.02)


def restart(folder: RunFolder, before: kept.Kept | None) -> None:
    """A keeper for a run that has ended. Raises Refusal; the run is then ended as it was.

    The keeper before may hold its lock for some milliseconds after its last word; a new one gives way to it and ends.
    """
    child = spawn(folder, adopt=False)
    deadline = time.monotonic() + START_S
    while (kept.read(folder) or before) == before:
        if child.poll() not in (None, 0) or time.monotonic() > deadline:
            child.kill()
            child.wait()
            raise silent(folder)
        if child.poll() == 0 and (kept.read(folder) or before) == before:
            child = spawn(folder, adopt=False)
        time.sleep(0.05)


def silent(folder: RunFolder) -> Refusal:
    words = log_of(folder).read_text(errors="replace").strip() if log_of(folder).exists() else ""
    return Refusal(f"the keeper of {folder.name} did not start: {words.rpartition(chr(10))[2] or 'no word'}")


def log_of(folder: RunFolder) -> Path:
    return folder.logs / "keeper.log"


def spawn(folder: RunFolder, adopt: bool) -> subprocess.Popen[bytes]:
    """A keeper in a session of its own, without any descriptor of ours: a lock held by the daemon must not be kept."""
    log = os.open(log_of(folder), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        child = subprocess.Popen(
            command("keep", folder.name, *(["--adopt"] if adopt else [])),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env=environment(),
            start_new_session=True,
            close_fds=True,
        )
    finally:
        os.close(log)
    CHILDREN[:] = [one for one in CHILDREN if one.poll() is None] + [child]
    return child
