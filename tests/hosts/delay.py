"""A wire that takes its time: a tunnel from here into a machine's network, every packet held back both ways.

As a program it is the wire itself: `python -m tests.hosts.delay SPACE SECONDS`, until its standard input ends. The
interfaces go with the process, whatever ends it.
"""

from __future__ import annotations

import fcntl
import heapq
import os
import select
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.hosts.netns import run

HERE, THERE = "10.77.32.1", "10.77.32.2"
NEAR, FAR = "tdtun0", "tdtun1"
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
"""linux/if_tun.h"""
PACKET_BYTES = 65536


@contextmanager
def delayed(space: str, each_way_s: float) -> Iterator[str]:
    """The address at which the machine in that network namespace is found, that far away."""
    wire = subprocess.Popen(
        [sys.executable, "-m", "tests.hosts.delay", space, str(each_way_s)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert wire.stdin and wire.stdout
    try:
        assert wire.stdout.readline() == b"up\n"
        yield THERE
    finally:
        wire.stdin.close()
        wire.wait(10)
        wire.stdout.close()


def tunnel(name: str) -> int:
    handle = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(handle, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    return handle


def carry(near: int, far: int, each_way_s: float) -> None:
    other = {near: far, far: near}
    under_way: list[tuple[float, int, int, bytes]] = []
    ready, number = select.poll(), 0
    for handle in (near, far, 0):
        ready.register(handle, select.POLLIN)
    while True:
        wait_ms = max(0.0, under_way[0][0] - time.monotonic()) * 1000 if under_way else None
        for handle, _what in ready.poll(wait_ms):
            if handle == 0:
                return
            number += 1
            packet = os.read(handle, PACKET_BYTES)
            heapq.heappush(under_way, (time.monotonic() + each_way_s, number, other[handle], packet))
        while under_way and under_way[0][0] <= time.monotonic():
            _due, _number, to, packet = heapq.heappop(under_way)
            os.write(to, packet)


def main() -> None:
    space, each_way_s = sys.argv[1], float(sys.argv[2])
    near, far = tunnel(NEAR), tunnel(FAR)
    run("ip", "link", "set", FAR, "netns", space)
    run("ip", "addr", "add", HERE, "peer", THERE, "dev", NEAR)
    run("ip", "-n", space, "addr", "add", THERE, "peer", HERE, "dev", FAR)
    run("ip", "link", "set", NEAR, "up")
    run("ip", "-n", space, "link", "set", FAR, "up")
    print("up", flush=True)
    carry(near, far, each_way_s)


if __name__ == "__main__":
    main()
