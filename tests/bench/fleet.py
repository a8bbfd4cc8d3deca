"""What a fleet costs the console: its links and its model of up to 1,024 emulated nodes behind real SSH.

python -m tests.bench.fleet [--bar] [--sizes 64,256,1024] [--seconds 20]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pty
import resource
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parent.parent.parent
PUMP_S = 0.125
"""As the console does"""
DEAD = 0.1
NOTICE_S = 12.0
REFRESH_S = 2.0
BARS = {"refresh_s": REFRESH_S, "cpu_percent": 30.0, "memory_mib": 250.0, "age_s": 2 * REFRESH_S}
LIVE_BAR = 1.3
QUIT_BAR_S = 0.5
STUCK = 50


@contextlib.contextmanager
def emulator(nodes: int) -> Iterator[tuple[Path, int, IO[str]]]:
    """(folder with the keys, port, where orders go)"""
    with tempfile.TemporaryDirectory(prefix="td-fleet-") as place:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.fakes.emulated", str(nodes), place],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin and process.stdout
        try:
            yield Path(place), int(process.stdout.readline()), process.stdin
        finally:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()


def memory_mib() -> tuple[float, float]:
    """(resident, unique) of this process"""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    size = {line.split(":")[0]: int(line.split()[1]) for line in lines[1:]}
    return size["Rss"] / 1024, sum(kib for name, kib in size.items() if name.startswith("Private_")) / 1024


def session_cost(nodes: int, seconds: float) -> dict[str, float]:
    """A session over that many nodes, all live at first, then with a tenth of them hung. 0 s: until they are live."""
    from console.config import Config
    from console.link import connector
    from console.session import Session
    from tests.fakes.emulated import targets

    dead = int(nodes * DEAD)
    with emulator(nodes) as (folder, port, orders):
        config = Config(tuple(targets(folder, nodes, port)), folder, folder)
        cpu, began = time.process_time(), time.monotonic()
        session = Session([one.name for one in config.nodes], connector(config))
        session.start()
        fleet = list(session.fleet.nodes.values())
        while any(node.level_at is None for node in fleet) and time.monotonic() - began < 120:
            session.pump()
            time.sleep(0.02)
        found = {"live_s": time.monotonic() - began, "live_cpu_s": time.process_time() - cpu}
        if not seconds:
            return found
        orders.write(f"freeze {dead}\n")
        orders.flush()
        turn(session, NOTICE_S)
        alive = fleet[: nodes - dead]
        before, cpu, began = sum(node.level for node in alive), time.process_time(), time.monotonic()
        ages = sorted(age for sample in turn(session, seconds, alive) for age in sample)
        span = time.monotonic() - began
        rss, uss = memory_mib()
        found |= {
            "refresh_s": span * len(alive) / max(1, sum(node.level for node in alive) - before),
            "cpu_percent": 100 * (time.process_time() - cpu) / span,
            "memory_mib": rss,
            "unique_mib": uss,
            "age_p50_s": ages[len(ages) // 2],
            "age_s": ages[int(len(ages) * 0.999)],
            "age_max_s": ages[-1],
            "live": float(sum(node.live(time.monotonic()) for node in alive)) / len(alive),
            "dead_known": sum(not node.live(time.monotonic()) for node in fleet[nodes - dead :]) / max(1, dead),
            "threads": float(threading.active_count()),
        }
        began = time.monotonic()
        session.close()
        found["close_s"] = time.monotonic() - began
    return found


def turn(session: Any, seconds: float, watched: Any = ()) -> list[list[float]]:
    """Pump as the console does; ages of what is watched, twice a second."""
    ages: list[list[float]] = []
    end, pumps = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        session.pump()
        pumps += 1
        if watched and pumps % 4 == 0:
            now = time.monotonic()
            ages.append([node.level_age_s(now) for node in watched])
        time.sleep(PUMP_S)
    return ages


def bare_connects(nodes: int, workers: int = 16) -> dict[str, float]:
    """The same log-ins by paramiko alone: connect, prove, run a command, read its answer."""
    import paramiko

    from tests.fakes.emulated import targets

    with emulator(nodes) as (folder, port, _orders):
        wanted = targets(folder, nodes, port)
        key = paramiko.ECDSAKey.from_private_key_file(str(folder / "client_key"))
        kept: list[paramiko.Transport] = []

        def connect(host: str) -> None:
            transport = paramiko.Transport(socket.create_connection((host, port)))
            transport.connect(username="operator", pkey=key)
            channel = transport.open_session()
            channel.exec_command("echo ok")
            assert channel.recv(16)
            kept.append(transport)

        cpu, began = time.process_time(), time.monotonic()
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(connect, [target.host for target in wanted]))
        return {"live_s": time.monotonic() - began, "live_cpu_s": time.process_time() - cpu}


def quitting() -> dict[str, float]:
    """The real console in a terminal, its links stuck: half in the connect, half before the server's first line."""
    mute, full = (
        socket.create_server(("127.0.0.1", 0), backlog=STUCK),
        socket.create_server(("127.0.0.1", 0), backlog=0),
    )
    fill = [socket.socket() for _ in range(4)]
    for one in fill:
        one.setblocking(False)
        one.connect_ex(full.getsockname())
    with tempfile.TemporaryDirectory(prefix="td-quit-") as place, mute, full:
        folder = Path(place) / "tunedeck"
        folder.mkdir()
        ports = [(mute if i % 2 else full).getsockname()[1] for i in range(STUCK)]
        lines = [f"  - {{name: n{i}, host: 127.0.0.1, port: {port}, user: nobody}}" for i, port in enumerate(ports)]
        (folder / "fleet.yaml").write_text("nodes:\n" + "\n".join(lines) + "\n")
        seconds = quit_in_terminal({**os.environ, "XDG_CONFIG_HOME": place, "XDG_STATE_HOME": place, "TERM": "xterm"})
    for one in fill:
        one.close()
    return {"quit_s": seconds}


def quit_in_terminal(environ: dict[str, str], settle_s: float = 3.0) -> float:
    """Seconds from the key to the end of the process."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.execve(sys.executable, [sys.executable, "-m", "console"], environ)
    drain(terminal, settle_s)
    began = time.monotonic()
    os.write(terminal, b"q")
    drain(terminal, 30.0)
    os.waitpid(pid, 0)
    os.close(terminal)
    return time.monotonic() - began


def drain(terminal: int, seconds: float) -> bytes:
    """What the terminal shows until then, or until its program has ended."""
    end, data = time.monotonic() + seconds, b""
    while (left := end - time.monotonic()) > 0:
        if select.select([terminal], [], [], left)[0]:
            try:
                data += os.read(terminal, 65536)
            except OSError:
                return data
    return data


def apart(what: str, *arguments: object) -> dict[str, float]:
    """In a process of its own."""
    argv = [sys.executable, "-m", "tests.bench.fleet", "--child", what, *map(str, arguments)]
    done = subprocess.run(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=280, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def child(words: list[str]) -> int:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    name, *numbers = words
    if name == "session":
        found = session_cost(int(numbers[0]), float(numbers[1]))
    elif name == "bare":
        found = bare_connects(int(numbers[0]))
    else:
        found = quitting()
    print(json.dumps({key: round(value, 3) for key, value in found.items()}), flush=True)
    os._exit(0)  # a thousand threads need not be waited for


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bar", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument("--sizes", default="64,256,1024")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return child(options.child)
    sizes = [int(size) for size in options.sizes.split(",")]
    costs = {size: apart("session", size, options.seconds) for size in sizes}
    columns = ["live_s", "refresh_s", "cpu_percent", "memory_mib", "unique_mib", "age_p50_s", "age_s", "age_max_s"]
    columns += ["live", "dead_known", "threads", "close_s"]
    print("nodes  " + "  ".join(f"{name:>11}" for name in columns))
    for size, found in costs.items():
        print(f"{size:5}  " + "  ".join(f"{found[name]:11.2f}" for name in columns))
    rounds = [(apart("bare", 200), apart("session", 200, 0)) for _round in range(5)]
    ratios = sorted(ours["live_s"] / bare["live_s"] for bare, ours in rounds)
    for bare, ours in rounds:
        print(f"200 nodes live: {ours['live_s']:.2f} s, bare connects {bare['live_s']:.2f} s")
    quit_s = apart("quit")["quit_s"]
    return judge(costs[sizes[-1]], ratios[len(ratios) // 2], quit_s) if options.bar else 0


def judge(largest: dict[str, float], ratio: float, quit_s: float) -> int:
    results = [(name, largest[name], bar) for name, bar in BARS.items()]
    results += [
        ("200 nodes live / bare connects", ratio, LIVE_BAR),
        (f"quit with {STUCK} stuck, s", quit_s, QUIT_BAR_S),
    ]
    for name, value, bar in results:
        print(f"{'ok  ' if value <= bar else 'MISS'} {name:32} {value:8.2f}  bar {bar:g}")
    return int(any(value > bar for _name, value, bar in results))


if __name__ == "__main__":
    sys.exit(main())
