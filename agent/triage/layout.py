"""Which rank runs on which node and GPU, and which address belongs to which node."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field

from agent.formats.kernel import short_bus

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
    """Filled by `seats.learn`, then asked. Unknown is None, never a guess without a stated basis."""

    node_of: dict[int, str] = field(default_factory=dict)
    gpu_of: dict[int, int] = field(default_factory=dict)
    bus_of: dict[int, str] = field(default_factory=dict)
    rank_of_pid: dict[tuple[str, str], int] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, None] = field(default_factory=dict)  # in the order met
    ranks: set[int] = field(default_factory=set)
    world: int | None = None
    per_node: int | None = None
    index_at: dict[tuple[str, str], int] = field(default_factory=dict)
    """GPU index by node and bus, as a node told it of itself"""
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
        if (node or "", wanted) in self.index_at:
            return self.index_at[node or "", wanted]
        heard = self.buses.get(node or "", set()) | {wanted}
        for board in BOARDS:
            if heard <= set(board):
                return board.index(wanted)
        order = sorted(heard, key=_bus_number)
        return order.index(wanted) if len(order) in (4, 8, 10, 16) else None


def _bus_number(bus: str) -> tuple[int, ...]:
    return tuple(int(part, 16) for part in bus.split(":"))
