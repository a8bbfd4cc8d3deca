"""A fleet in one process: agents that speak the real wire through the agent's own conversation, behind a real SSH
server. Their daemons are up and their bundles there; what they tell is made up, eight cards a node.

python -m tests.fakes.emulated NODES FOLDER    prints the port as one line; then a line `freeze N` on stdin lets the
last N nodes fall silent as hung machines do: connections stay, nothing answers, and nobody new is let in.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import re
import resource
import socket
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import paramiko

from agent import wire
from agent.conversation import Conversation
from agent.events import Events
from agent.orders import OrderBook
from console.small import start_small
from console.target import Target
from jobs import durable

GIB = 1 << 30
GPUS = 8
INTERVAL_S = 1.0
POLL_S = 5.0
USER = "operator"
NONCE = re.compile(rb"a=(td[0-9a-f]+); b=([0-9a-f]+);")


def address(index: int) -> str:
    """Every node has an address of its own on the loopback; one listener serves them all."""
    return f"127.10.{index // 250}.{index % 250 + 1}"


def number(host: str) -> int:
    _net, _ten, high, low = host.split(".")
    return int(high) * 250 + int(low) - 1


def targets(folder: Path, nodes: int, port: int) -> list[Target]:
    """How a console reaches them; nothing of ~/.ssh is needed."""
    key, known = (folder / "client_key",), (folder / "known_hosts",)
    return [Target(f"gpu{i:04d}", address(i), port, USER, key, known, ssh_config=False) for i in range(nodes)]


def first_tree(index: int, chance: random.Random) -> dict[str, Any]:
    cards = [
        wire.Gpu(
            uuid=f"GPU-{chance.getrandbits(32):08x}-{index:04x}-4a7b-9c{card:02x}-{chance.getrandbits(48):012x}",
            index=card,
            name="SIMULATED H100 80GB",
            pci_bus_id=f"00000000:{0x10 + card:02X}:00.0",
            memory_total_bytes=80 * GIB,
            memory_used_bytes=chance.randrange(60, 76) * GIB,
            utilisation_percent=98.0,
            temperature_c=61.0,
            power_w=640.0,
            power_limit_w=700.0,
            sm_clock_mhz=1755.0,
            ecc_uncorrected=0,
        )
        for card in range(GPUS)
    ]
    host = wire.Host(
        hostname=f"gpu{index:04d}.example",
        cpu_percent=31.0,
        cpu_count=192,
        load_1=33.1,
        ram_total_bytes=2048 * GIB,
        ram_used_bytes=410 * GIB,
        uptime_s=864000.0,
        disks=(wire.Disk("/", 1800 * GIB, 900 * GIB), wire.Disk("/data", 28000 * GIB, 6000 * GIB)),
    )
    run = wire.RunState(
        run=f"faults-lora-{index:04d}",
        name="faults-lora",
        phase="training",
        step=1,
        total_steps=100_000,
        loss=1.8,
        tokens_per_s=42_000.0,
        step_time_s=0.9,
        memory_bytes=(70 * GIB,) * GPUS,
        world_size=GPUS,
        model="~/models/m",
        method="lora",
        gpu_uuids=tuple(card.uuid for card in cards),
        started_unix=time.time(),
    )
    return wire.to_tree(wire.NodeState(host, {card.uuid: card for card in cards}, {run.run: run}, 0.1))


class Emulated:
    """What the agent's conversation needs of a daemon. Three nodes in four train, the others idle."""

    def __init__(self, index: int, events: Events, book: OrderBook) -> None:
        self.events, self.book = events, book
        self.node, self.boot_id = f"emulated+{index:04d}", f"boot-{index}"
        self.home, self.python, self.interval_s = "/home/operator", sys.executable, INTERVAL_S
        self.chance = random.Random(index)
        self.tree = first_tree(index, self.chance)
        self.training = index % 4 != 3
        self.frozen = False
        self.consoles: set[Conversation] = set()

    def tick(self) -> None:
        tree, chance = self.tree, self.chance
        host = {**tree["host"], "cpu_percent": float(chance.randrange(20, 40)), "load_1": chance.randrange(3000) / 100}
        gpus = tree["gpus"]
        if self.training:
            gpus = {uuid: self.moved(card) for uuid, card in gpus.items()}
        runs = tree["runs"]
        if self.training:
            runs = {
                name: {**run, "step": run["step"] + 1, "loss": round(chance.uniform(1.0, 2.0), 4)}
                for name, run in runs.items()
            }
        self.tree = {**tree, "host": host, "gpus": gpus, "runs": runs}
        for console in self.consoles:
            console.news.set()

    def moved(self, card: Mapping[str, Any]) -> dict[str, Any]:
        """Utilisation and power waver each second, temperature and clock now and then, memory hardly ever."""
        chance = self.chance
        now = {
            **card,
            "utilisation_percent": float(chance.randrange(94, 101)),
            "power_w": float(chance.randrange(560, 700)),
        }
        if chance.random() < 0.2:
            now["temperature_c"] = float(chance.randrange(58, 66))
        if chance.random() < 0.2:
            now["sm_clock_mhz"] = float(chance.randrange(1700, 1980, 15))
        return now


class Speaker(Conversation):
    """The agent's own conversation, until its machine hangs."""

    async def send(self, message: wire.FromAgent) -> None:
        if cast("Emulated", self.node).frozen:
            await asyncio.Event().wait()
        await super().send(message)


class Book:
    """Every order is answered at once with nothing."""

    async def take(self, order: wire.Order, operator: str, read_only: bool) -> wire.Reply:  # noqa: ARG002
        return wire.Reply(order.id, True, {"runs": []})


class Ring(threading.Event):
    """What paramiko sets when something has come; told to the loop."""

    def __init__(self, pipe: ChannelPipe) -> None:
        super().__init__()
        self.pipe = pipe

    def set(self) -> None:
        self.pipe.loop.call_soon_threadsafe(self.pipe.pull)


class ChannelPipe(asyncio.Transport):
    """A paramiko channel as asyncio's streams want it."""

    def __init__(self, channel: paramiko.Channel, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.channel, self.loop = channel, loop
        self.reader = asyncio.StreamReader(1 << 22, loop=loop)
        protocol = asyncio.StreamReaderProtocol(self.reader, loop=loop)
        protocol.connection_made(self)
        self.protocol = protocol
        self.writer = asyncio.StreamWriter(self, protocol, self.reader, loop)
        channel.in_buffer.set_event(Ring(self))

    def pull(self) -> None:
        while self.channel.recv_ready():
            self.reader.feed_data(self.channel.recv(65536))
        if (self.channel.eof_received or self.channel.closed) and not self.reader.at_eof():
            self.reader.feed_eof()

    def write(self, data: bytes | bytearray | memoryview[int]) -> None:
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            self.channel.sendall(bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """The channel's own window is the limit."""

    def is_closing(self) -> bool:
        return bool(self.channel.closed)

    def close(self) -> None:
        self.channel.close()

    abort = close


class Server(paramiko.ServerInterface):
    def __init__(self, fleet: EmulatedFleet, node: Emulated) -> None:
        self.fleet, self.node = fleet, node

    def get_allowed_auths(self, username: str) -> str:  # noqa: ARG002
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:  # noqa: ARG002
        return paramiko.common.AUTH_SUCCESSFUL if key == self.fleet.client_key else paramiko.common.AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:  # noqa: ARG002
        return paramiko.common.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        self.fleet.loop.call_soon_threadsafe(self.fleet.enter, self.node, channel, command)
        return True


class Connection(paramiko.Transport):
    _active_check_timeout = POLL_S


class EmulatedFleet:
    def __init__(self, nodes: int, folder: Path) -> None:
        self.loop = asyncio.new_event_loop()
        events = Events(folder / "events.jsonl")
        events.add("agent.started", "agent started")
        events.flush()
        book = cast("OrderBook", Book())
        self.nodes = [Emulated(i, events, book) for i in range(nodes)]
        self.host_key, self.client_key = paramiko.ECDSAKey.generate(), paramiko.ECDSAKey.generate()
        self.client_key.write_private_key_file(str(folder / "client_key"))
        self.listener = socket.create_server(("0.0.0.0", 0), backlog=1024)  # strangers are turned away below
        self.port = int(self.listener.getsockname()[1])
        line = f":{self.port} {self.host_key.get_name()} {self.host_key.get_base64()}\n"
        durable.write_bytes(folder / "known_hosts", "".join(f"[{address(i)}]{line}" for i in range(nodes)).encode())
        self.held: list[socket.socket | paramiko.Transport] = []
        self.tasks: set[asyncio.Task[None]] = set()

    def accept(self) -> None:
        while True:
            pipe, peer = self.listener.accept()
            if not peer[0].startswith("127."):
                pipe.close()
                continue
            node = self.nodes[number(pipe.getsockname()[0])]
            if node.frozen:
                self.held.append(pipe)
                continue
            connection = Connection(pipe)
            connection.add_server_key(self.host_key)
            self.held.append(connection)
            with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
                start_small(lambda c=connection, n=node: c.start_server(threading.Event(), Server(self, n)))  # type: ignore[misc]

    def enter(self, node: Emulated, channel: paramiko.Channel, command: bytes) -> None:
        """What the carried line comes to on a node that has the bundle; anything else is answered and done."""
        nonce = NONCE.search(command)
        if nonce is None:
            channel.sendall(b"ok\n")
            return
        pipe = ChannelPipe(channel, self.loop)
        pipe.write(nonce[1] + nonce[2] + b" ready 3.11.7 /usr/bin/python3\n")
        task = self.loop.create_task(self.converse(node, pipe))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def converse(self, node: Emulated, pipe: ChannelPipe) -> None:
        conversation = Speaker(node, pipe.reader, pipe.writer, read_only=False)
        node.consoles.add(conversation)
        with contextlib.suppress(OSError, EOFError, wire.Malformed, asyncio.TimeoutError):
            await conversation.run()
        node.consoles.discard(conversation)
        if not node.frozen:
            pipe.close()

    async def tick(self) -> None:
        """Each node in its own part of the second, as clocks that nobody has set would."""
        slots, due_at = 50, time.monotonic()
        while True:
            for slot in range(slots):
                for node in self.nodes[slot::slots]:
                    if node.consoles and not node.frozen:
                        node.tick()
                due_at += INTERVAL_S / slots
                await asyncio.sleep(max(0.0, due_at - time.monotonic()))

    def freeze(self, count: int) -> None:
        for node in self.nodes[len(self.nodes) - count :]:
            node.frozen = True

    def run(self) -> None:
        start_small(threading.Thread(target=self.accept, daemon=True).start)
        threading.Thread(target=self.listen, daemon=True).start()
        self.loop.create_task(self.tick())
        self.loop.run_forever()

    def listen(self) -> None:
        """Orders of whoever started this; it ends with them."""
        print(self.port, flush=True)
        for line in sys.stdin:
            word, count = line.split()
            if word == "freeze":
                self.loop.call_soon_threadsafe(self.freeze, int(count))
        self.loop.call_soon_threadsafe(self.loop.stop)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nodes", type=int)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    EmulatedFleet(options.nodes, options.folder).run()


if __name__ == "__main__":
    main()
