"""Everything read from one incident: events by kind, the layout, and the questions that rules ask of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from agent.formats.clock import same_year
from agent.formats.event import Event
from agent.formats.line import Line
from agent.triage import alias
from agent.triage.layout import ADDRESS, Layout
from agent.triage.seats import learn

MOST_OF_A_KIND = 4000  # events of one kind kept from one file; the rest repeat them
# Kinds of which only the first and the newest of each file and rank matter.
ENDS_ONLY = frozenset({"app.train", "app.work", "app.step", "nccl.channel", "nccl.p2p", "nccl.connected"})


@dataclass(slots=True)
class Case:
    """Events of one incident. Fill with `add`, then call `settle` once."""

    events: dict[str, list[Event]] = field(default_factory=lambda: defaultdict(list))
    documents: dict[str, str | None] = field(default_factory=dict)
    layout: Layout = field(default_factory=Layout)
    notes: list[str] = field(default_factory=list)
    heard: set[int] = field(default_factory=set)  # ranks whose launcher prefix stands before some line
    lines: int = 0
    _counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    _newest: dict[tuple[str, str, int | None], int] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        """Take an event in, within bounds."""
        if event.kind in ENDS_ONLY:
            self._add_end(event)
            return
        key = (event.kind, event.line.file)
        self._counts[key] += 1
        if self._counts[key] <= MOST_OF_A_KIND:
            self.events[event.kind].append(event)

    def _add_end(self, event: Event) -> None:
        key = (event.kind, event.line.file, event.rank)
        kept = self.events[event.kind]
        if self._counts[(event.kind, f"{event.line.file}#{event.rank}")] < 2:
            self._counts[(event.kind, f"{event.line.file}#{event.rank}")] += 1
            self._newest[key] = len(kept)
            kept.append(event)
        else:
            kept[self._newest[key]] = event

    def settle(self) -> None:
        """Learn the layout, then give every event the node and rank that the layout implies."""
        self._rename()
        self.layout = learn(self.events, self.documents.values())
        self.layout.ranks |= self.heard
        for kind, events in self.events.items():
            self.events[kind] = [self._placed(e) for e in events]

    def _rename(self) -> None:
        aliases = alias.told(self.of("run.node"))
        if not aliases:
            return
        for kind, events in self.events.items():
            self.events[kind] = [alias.renamed(aliases, e) for e in events]
        self.documents = {name: alias.word(aliases, host, name) for name, host in self.documents.items()}

    def _placed(self, event: Event) -> Event:
        node = self.layout.resolve(event.node)
        rank = event.rank
        if node is not None and ADDRESS.fullmatch(node):
            node = None if event.line.node == event.node else node
        if rank is None and node and event.get("pid"):
            rank = self.layout.rank_of_pid.get((node, event.get("pid")))
        if node is None:
            node = self.layout.node_of.get(rank) if rank is not None else None
        return event if (node, rank) == (event.node, event.rank) else event.at(node, rank)

    def of(self, *kinds: str) -> list[Event]:
        """Events of these kinds, in the order read."""
        return [e for kind in kinds for e in self.events.get(kind, ())]

    def has(self, *kinds: str) -> bool:
        return any(self.events.get(kind) for kind in kinds)

    def alone(self) -> bool:
        """A run of tunedeck's own that never leaves its node."""
        return self.has("run.node") and self.layout.sole_node() is not None

    def env(self, name: str) -> list[Event]:
        """Where NCCL said that a variable was set."""
        return [e for e in self.of("nccl.env") if e.get("name") == name]

    def node(self, event: Event) -> str | None:
        """The event's node, else its rank's, else the only one."""
        return event.node or self.layout.node(event.rank)

    def nodes(self, events: Iterable[Event]) -> list[str]:
        """Distinct nodes of events, in the order met."""
        return list(dict.fromkeys(n for e in events if (n := self.node(e))))

    def time(self, event: Event) -> float | None:
        """When it happened, on the clock of its writer; a year that was not printed is taken from the other lines."""
        at = event.line.time_s
        return None if at is None else same_year(at, self.reference_s())

    def reference_s(self) -> float:
        """A dated moment of this incident (0 where no line is dated with its year)."""
        dated = [e.line.time_s for kind in ("app.train", "nccl.init", "c10d.timeout", "kernel.xid", "kernel.oom")
                 for e in self.events.get(kind, ()) if e.line.time_s and e.line.time_s > 1e9]  # fmt: skip
        return dated[0] if dated else 0.0

    def timed_out(self) -> dict[int, Event]:
        """The first watchdog timeout of each rank."""
        first: dict[int, Event] = {}
        for event in self.of("c10d.timeout"):
            if event.rank is not None and (event.rank not in first or not first[event.rank].get("seq")):
                first[event.rank] = event
        return first

    def ran(self) -> bool:
        """Whether the ranks had met: NCCL says so where it speaks of its start at all, else training steps do."""
        if self.has("nccl.connected", "bench.row") or any(e.get("phase") == "COMPLETE" for e in self.of("nccl.init")):
            return True
        return self.has("app.train") and not self.has("nccl.init", "nccl.bootstrap", "nccl.socket")

    def stopped(self) -> bool:
        """Whether anything shows that a job failed or hung."""
        return self.has("c10d.timeout", "c10d.heartbeat", "c10d.async", "c10d.store_lost", "c10d.client_timeout",
                        "c10d.clients", "c10d.barrier", "exit.elastic", "exit.slurm", "exit.mpi", "exit.deepspeed",
                        "exit.report", "app.exception", "nccl.completion", "exit.segv")  # fmt: skip

    def began(self) -> list[Event]:
        return [e for e in self.of("nccl.init") if e.get("phase") != "COMPLETE"]

    def hung_in_init(self) -> bool:
        """Communicators were begun and none was completed."""
        return bool(self.began()) and not self.ran()


def quoted(events: Iterable[Event], most: int = 4) -> tuple[Line, ...]:
    """The lines of events, without repeats, at most `most`."""
    return tuple({(e.line.file, e.line.number): e.line for e in events}.values())[:most]


def each_node(events: Iterable[Event]) -> Iterator[Event]:
    """The first event of every node."""
    seen: set[str | None] = set()
    for event in events:
        if event.node not in seen:
            seen.add(event.node)
            yield event
