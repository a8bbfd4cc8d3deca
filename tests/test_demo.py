"""The demo from end to end, as a newcomer meets it: real model, real SSH, real training, in a real terminal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TUNEDECK = [sys.executable, "-m", "console"]
ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One demo folder for all, so that the model is made once. Whatever a failed test left behind is ended."""
    place = tmp_path_factory.mktemp("demo")
    yield place
    subprocess.run([*TUNEDECK, "demo", "--folder", str(place), "--stop"], cwd=ROOT, check=True, timeout=120)
    assert processes_of(place) == []


def processes_of(place: Path) -> list[str]:
    """Command lines that name the demo's folder: supervisor, agents, keepers, ranks; not the terminal's own."""
    found = [p.info["cmdline"] or [""] for p in psutil.process_iter(["cmdline"])]
    return [" ".join(argv) for argv in found if str(place) in " ".join(argv) and "python" in Path(argv[0]).name]


def test_without_a_terminal_it_trains_reports_and_leaves_nothing(folder: Path) -> None:
    argv = [*TUNEDECK, "demo", "--folder", str(folder), "--steps", "8"]
    done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd=ROOT, timeout=800)
    assert done.returncode == 0, done.stderr
    assert "SIMULATED" in done.stderr
    assert "step 1/8" in done.stderr
    losses = re.search(r"completed; loss ([\d.]+) → ([\d.]+)", done.stdout)
    assert losses is not None, done.stdout
    assert processes_of(folder) == []


class Terminal:
    """A tmux session of a given size."""

    def __init__(self, name: str, width: int, height: int, folder: Path) -> None:
        self.name, self.socket = name, str(folder / "tmux")
        command = " ".join([*TUNEDECK, "demo", "--folder", str(folder), "--steps", "500"])
        size = ["-x", str(width), "-y", str(height)]
        # COLUMNS and LINES, which test runners set, would overrule the terminal
        shell = f"cd {ROOT} && env -u COLUMNS -u LINES {command}; echo THE CONSOLE HAS ENDED; exec sleep 600"
        self.tmux("new-session", "-d", "-s", name, *size, shell)

    def tmux(self, *words: str) -> str:
        argv = ["tmux", "-S", self.socket, *words]
        return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=20).stdout

    def screen(self) -> str:
        return self.tmux("capture-pane", "-p", "-t", self.name)

    def press(self, *keys: str) -> None:
        self.tmux("send-keys", "-t", self.name, *keys)

    def until(self, seen: Callable[[str], object], timeout_s: float = 120.0) -> str:
        deadline = time.monotonic() + timeout_s
        while not seen(text := self.screen()):
            assert time.monotonic() < deadline, text
            time.sleep(0.2)
        return text

    def close(self) -> None:
        self.tmux("kill-session", "-t", self.name)


def console_process(folder: Path) -> psutil.Process:
    wanted = [*TUNEDECK[1:], "demo", "--folder", str(folder)]
    return next(p for p in psutil.process_iter(["cmdline"]) if (p.info["cmdline"] or [])[1:6] == wanted)


def step_of(text: str) -> int:
    found = re.search(r"(\d+)/500", text)
    return int(found[1]) if found else 0


def test_launch_lose_the_console_find_the_run_again_and_end_it(folder: Path) -> None:
    first = Terminal("first", 80, 24, folder)
    try:
        first.until(lambda text: text.count("● live") >= 2 and "SIMULATED" in text, 400)
        first.press("n")
        first.until(lambda text: "the spec is valid" in text)
        first.press("C-s")
        reached = step_of(first.until(lambda text: step_of(text) >= 3, 400))
        os.kill(console_process(folder).pid, signal.SIGKILL)
        first.until(lambda text: "THE CONSOLE HAS ENDED" in text)
    finally:
        first.close()
    assert any("train.py" in line for line in processes_of(folder)), "the run must not notice that its console is gone"

    second = Terminal("second", 160, 50, folder)
    try:
        second.until(lambda text: text.count("● live") >= 2)
        second.press("2")
        second.until(lambda text: "tunedeck  Runs" in text and "training" in text)
        second.press("Enter")
        second.until(lambda text: "tunedeck  Run  " in text and step_of(text) > reached)
        second.press("l")
        second.until(lambda text: "tunedeck  Log" in text)
        second.press("g")
        second.until(lambda text: "step 1/500" in text)  # the log from before the kill is there
        second.press("Escape")
        second.until(lambda text: "tunedeck  Run  " in text)
        second.press("X")
        question = second.until(lambda text: "Kill" in text and "node1" in text)
        assert "step" in question
        second.press("y")
        second.until(lambda text: "◼ stopped" in text)
        assert [line for line in processes_of(folder) if "train.py" in line] == []
        second.press("q")
        second.until(lambda text: "no process is left" in text and "THE CONSOLE HAS ENDED" in text)
    finally:
        second.close()
    assert processes_of(folder) == []
