"""Who sits where, from every tool that says so: the layout is learnt from all events of an incident together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agent.formats.event import Event
from agent.formats.kernel import short_bus
from agent.formats.launcher import ranks_of
from agent.triage.layout import ADDRESS, Layout


def learn(events: Mapping[str, list[Event]], documents: Iterable[str | None]) -> Layout:
    """The layout told by all events together. `documents`: hosts that file names speak of."""
    layout = Layout()
    _addresses(layout, events)
    _nccl(layout, events)
    _bench(layout, events)
    _launchers(layout, events)
    _cards(layout, events)
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


def _cards(layout: Layout, events: Mapping[str, list[Event]]) -> None:
    """The cards of a node, and which of them each rank of a run on it was given."""
    given = [e.get("uuids").split() for e in events.get("run.cards", ())]
    for event in events.get("run.card", ()):
        if event.node is None or event.gpu is None:
            continue
        bus, uuid = short_bus(event.get("bus")), event.get("uuid")
        layout.index_at[event.node, bus] = event.gpu
        if len(given) == 1 and uuid in given[0]:
            rank = given[0].index(uuid)
            _seat(layout, rank, event.node, event.gpu)
            layout.bus_of.setdefault(rank, bus)


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
