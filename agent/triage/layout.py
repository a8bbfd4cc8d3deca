"""Which rank runs on which node and GPU, from every tool that says so; and which address belongs to which node."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from agent.formats.event import Event
from agent.formats.kernel import short_bus
from agent.formats.launcher import ranks_of

ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+|[0-9a-f]*:[0-9a-f:]+")
BLOCKS = (1, 2, 4, 8, 16)
# Bus order of the eight GPUs in common HGX and DGX boards, for kernel logs that come without NCCL's init lines.
# Source: `nvidia-smi topo -m` and `lspci` listings published for DGX A100/V100 and HGX H100.
BOARDS = (
    ("7", "f", "47", "4e", "87", "90", "b7", "bd"),
    ("18", "2a", "3a", "5d", "9a", "ab", "ba", "db"),
    ("1b", "43", "52", "61", "9d", "c3", "d1", "df"),
)


@dataclass(slots=True)
class Layout:
    """Filled by `learn`, then asked. Unknown is None, never a guess without a stated basis."""

    node_of: dict[int, str] = field(default_factory=dict)
    gpu_of: dict[int, int] = field(default_factory=dict)
    bus_of: dict[int, str] = field(default_factory=dict)
    rank_of_pid: dict[tuple[str, str], int] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, None] = field(default_factory=dict)  # in the order met
    ranks: set[int] = field(default_factory=set)
    world: int | None = None
    per_node: int | None = None
    buses: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def resolve(self, name: str | None) -> str | None:
        """The node behind an address or an alias such as `node7-ib`; the name itself where nothing better is known."""
        if not name or name in self.nodes:
            return name
        bare = name.strip("[]").removeprefix("::ffff:")
        if bare in self.addresses:
            return self.addresses[bare]
        if bare in self.nodes:
            return bare
        shorter = [n for n in self.nodes if bare.startswith((n + "-", n + "."))]
        return max(shorter, key=len) if shorter else bare

    def knows(self, name: str) -> bool:
        """Whether a peer's address or name belongs to this job."""
        return self.resolve(name) in self.nodes

    def sole_node(self) -> str | None:
        return next(iter(self.nodes)) if len(self.nodes) == 1 else None

    def block(self) -> int | None:
        """Ranks per node: told, or the smallest power of two that puts every known rank on its known node."""
        if self.per_node:
            return self.per_node
        for size in BLOCKS:
            if len(self.node_of) > 1 and self._fits(size):
                return size
        world, count = self.size(), len(self.nodes)
        if world and count > 1 and world % count == 0:
            return world // count
        return None

    def _fits(self, size: int) -> bool:
        slots: dict[int, str] = {}
        seen: dict[str, int] = {}
        for rank, node in self.node_of.items():
            if slots.setdefault(rank // size, node) != node or seen.setdefault(node, rank // size) != rank // size:
                return False
        return True

    def size(self) -> int | None:
        """World size: told, else the smallest usual size that holds every rank heard of."""
        if self.world:
            return self.world
        if not self.ranks:
            return None
        return max(self.ranks) + 1

    def node(self, rank: int | None) -> str | None:
        """The node of a rank: told, or that of another rank in the same block, or the only node there is."""
        if rank is None:
            return self.sole_node()
        if rank in self.node_of:
            return self.node_of[rank]
        size = self.block()
        if size:
            for other, node in self.node_of.items():
                if other // size == rank // size:
                    return node
        return self.sole_node()

    def gpu(self, rank: int | None) -> int | None:
        """A rank's GPU index: told, or its place in its block (one node alone: the rank itself)."""
        if rank is None:
            return None
        if rank in self.gpu_of:
            return self.gpu_of[rank]
        size = self.block()
        if size:
            return rank % size
        world = self.size() or 0
        return rank if world <= 8 else rank % 8 if world % 8 == 0 else None

    def rank_at(self, node: str | None, bus: str) -> int | None:
        """The rank whose GPU sits on a bus of a node, through NCCL's init lines."""
        wanted = short_bus(bus)
        found = [r for r, b in self.bus_of.items() if b == wanted and (node is None or self.node_of.get(r) == node)]
        return found[0] if len(found) == 1 else None

    def gpu_at(self, node: str | None, bus: str) -> int | None:
        """The index of the GPU on a bus: by rank, else by the order of a known board, else of all buses heard of."""
        rank = self.rank_at(node, bus)
        if rank is not None:
            return self.gpu(rank)
        wanted = short_bus(bus)
        heard = self.buses.get(node or "", set()) | {wanted}
        for board in BOARDS:
            if heard <= set(board):
                return board.index(wanted)
        order = sorted(heard, key=_bus_number)
        return order.index(wanted) if len(order) in (4, 8, 10, 16) else None


def _bus_number(bus: str) -> tuple[int, ...]:
    return tuple(int(part, 16) for part in bus.split(":"))


def learn(events: Mapping[str, list[Event]], documents: Iterable[str | None]) -> Layout:
    """The layout told by all events together. `documents`: hosts that file names speak of."""
    layout = Layout()
    _addresses(layout, events)
    _nccl(layout, events)
    _bench(layout, events)
    _launchers(layout, events)
    for name in documents:
        if name and not ADDRESS.fullmatch(name):
            layout.nodes.setdefault(name)
    _prefixed(layout, events)
    return layout


def _addresses(layout: Layout, events: Mapping[str, list[Event]]) -> None:
    for event in (*events.get("nccl.bootstrap", ()), *events.get("nccl.socket", ())):
        if event.node and not event.get("addr").startswith(("127.", "::1")):
            owner = layout.addresses.setdefault(event.get("addr"), event.node)
            if owner != event.node:
                continue  # one address on two nodes: a rule of its own
            layout.nodes.setdefault(event.node)
    own = [e for e in events.get("host.own_address", ()) if not e.get("addr").startswith("127.")]
    for event in (*events.get("host.address", ()), *own):
        if event.node:
            layout.addresses[event.get("addr")] = event.node


def _nccl(layout: Layout, events: Mapping[str, list[Event]]) -> None:
    starts = events.get("nccl.init", ())
    widest = max((int(e.get("nranks")) for e in starts), default=0)
    for event in starts:
        if event.node is None or event.rank is None or int(event.get("nranks")) != widest:
            continue
        layout.world = widest
        _seat(layout, event.rank, event.node, event.gpu)
        layout.rank_of_pid.setdefault((event.node, event.get("pid")), event.rank)
        if event.get("bus"):
            layout.bus_of.setdefault(event.rank, short_bus(event.get("bus")))
    for kind, all_of_kind in events.items():
        if kind.startswith("nccl."):
            for event in all_of_kind:
                if event.get("host"):
                    layout.nodes.setdefault(event.get("host"))


def _seat(layout: Layout, rank: int, node: str, gpu: int | None) -> None:
    layout.nodes.setdefault(node)
    layout.ranks.add(rank)
    layout.node_of.setdefault(rank, node)
    if gpu is not None:
        layout.gpu_of.setdefault(rank, gpu)


def _bench(layout: Layout, events: Mapping[str, list[Event]]) -> None:
    for event in events.get("bench.rank", ()):
        if event.rank is not None and event.node is not None and event.line.file == _first_file(events, "bench.rank"):
            _seat(layout, event.rank, event.node, event.gpu)
            layout.bus_of.setdefault(event.rank, short_bus(event.get("bus")))
            layout.rank_of_pid.setdefault((event.node, event.get("pid")), event.rank)


def _first_file(events: Mapping[str, list[Event]], kind: str) -> str:
    return events[kind][0].line.file


def _launchers(layout: Layout, events: Mapping[str, list[Event]]) -> None:
    for event in events.get("exit.report", ()):
        if event.node and event.rank is not None:
            local = event.get("local_rank")
            _seat(layout, event.rank, event.node, int(local) if local.isdecimal() else None)
    for event in events.get("exit.slurm", ()):
        for rank in ranks_of(event.get("tasks")):
            if event.node:
                _seat(layout, rank, event.node, None)
    for event in events.get("ras.rank", ()):
        node = layout.resolve(event.node)
        if node and event.rank is not None:
            _seat(layout, event.rank, node, event.gpu)
    for event in events.get("run.node", ()):
        if event.node:
            layout.nodes.setdefault(event.node)
    for kind in ("run.rank", "flight.answer"):
        layout.ranks |= {event.rank for event in events.get(kind, ()) if event.rank is not None}
    for event in events.get("c10d.world", ()):
        layout.world = layout.world or int(event.get("world"))
    for kind, name in (("c10d.local_world", "local_world"), ("exit.nproc", "nproc")):
        for event in events.get(kind, ()):
            layout.per_node = layout.per_node or int(event.get(name)) or None
    for event in events.get("kernel.xid", ()):
        layout.buses[event.node or ""].add(short_bus(event.get("bus")))


# Kinds whose rank stands in the message itself, so that it is a global rank and not a launcher's local one.
RANKED = ("c10d.timeout", "c10d.enqueued", "c10d.alive", "c10d.heartbeat", "c10d.async", "app.exception", "app.oom",
          "app.work", "app.step", "app.cuda", "app.train")  # fmt: skip


def _prefixed(layout: Layout, events: Mapping[str, list[Event]]) -> None:
    """A parallel shell's host before a line that names its rank seats the rank."""
    for kind in RANKED:
        for event in events.get(kind, ()):
            if event.rank is None:
                continue
            layout.ranks.add(event.rank)
            if event.node and event.node == event.line.node:
                node = layout.resolve(event.node)
                if node and not ADDRESS.fullmatch(node):
                    _seat(layout, event.rank, node, None)
