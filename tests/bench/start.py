"""How quickly tunedeck is there: `--help`, and the console's first paint in a terminal of 160×50.

    python -m tests.bench.start [--bar | --full]

Peers in the same run: the bare interpreter, `--help` of a parser of the standard library alone, and a Textual app that
shows one line.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import select
import signal
import statistics
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

TARGETS_S = {"tunedeck --help": 0.25, "console, first paint": 1.0}

HELLO = (
    "from textual.app import App\nfrom textual.widgets import Static\n"
    "class Hello(App):\n    def compose(self):\n        yield Static('first paint')\nHello().run()"
)
PARSER = "import argparse; argparse.ArgumentParser(prog='x').parse_args(['--help'])"


def command(*argv: str) -> Callable[[], float]:
    def once() -> float:
        start = time.perf_counter()
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - start

    return once


def first_paint(argv: list[str], text: bytes, home: Path) -> Callable[[], float]:
    """Seconds until `text` has been written to a terminal."""

    def once() -> float:
        start = time.perf_counter()
        pid, fd = pty.fork()
        if pid == 0:
            os.environ.update(
                HOME=str(home), XDG_CONFIG_HOME=str(home), XDG_STATE_HOME=str(home), TERM="xterm-256color"
            )
            os.execv(argv[0], argv)
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
        seen = b""
        while text not in seen:
            if not select.select([fd], [], [], 20.0)[0]:
                raise SystemExit(f"{argv}: no first paint within 20 s; got {seen[-300:]!r}")
            seen += os.read(fd, 65536)
        took = time.perf_counter() - start
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(fd)
        return took

    return once


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bar", action="store_true", help="figures beside targets; exit 1 when one falls short")
    parser.add_argument("--full", action="store_true", help="more repeats")
    args = parser.parse_args()
    repeats = 25 if args.full else 9
    tunedeck = str(Path(sys.executable).with_name("tunedeck"))
    with TemporaryDirectory() as home:
        cases = {
            "python -c pass": command(sys.executable, "-c", "pass"),
            "argparse --help": command(sys.executable, "-c", PARSER),
            "tunedeck --help": command(tunedeck, "--help"),
            "Textual, one line": first_paint([sys.executable, "-c", HELLO], b"first paint", Path(home)),
            "console, first paint": first_paint([tunedeck, "-w", "127.0.0.254"], b"127.0.0.254", Path(home)),
        }
        samples: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(repeats):
            for name, once in cases.items():
                samples[name].append(once())
    return report({name: statistics.median(values) for name, values in samples.items()}, args.bar)


def report(medians: dict[str, float], bar: bool) -> int:
    peer = {"tunedeck --help": "argparse --help", "console, first paint": "Textual, one line"}
    for name, median in medians.items():
        ratio = f"{median / medians[peer[name]]:.1f} × {peer[name]}" if name in peer else ""
        print(f"{name:24} {median * 1000:7.0f} ms   {ratio}")
    if not bar:
        return 0
    print()
    short = 0
    for name, target in TARGETS_S.items():
        met = medians[name] <= target
        short += not met
        print(f"{name:24} {medians[name]:.3f} s   target ≤ {target:.2f} s   {'met' if met else 'FALLS SHORT'}")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
