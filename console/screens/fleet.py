"""All nodes at a glance, and the one under the cursor in full."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from functools import partial
from itertools import islice

from textual import on
from textual.app import ComposeResult
from textual.containers import Container, Vertical

from console.bindings import Key, bindings
from console.fleet import Node
from console.format import UNKNOWN, age, percent, power, round_trip, share
from console.screens.answering import answer_link, waiting
from console.screens.attention import about
from console.screens.describe import event_line, node_lines
from console.screens.desk import Desk
from console.screens.listing import Listing
from console.screens.node import NodeScreen
from console.screens.run import RunScreen
from console.screens.run_list import parted
from console.screens.runs import COLUMNS as RUN_COLUMNS
from console.screens.runs import run_table
from console.strings import _, plural
from console.widgets.levels import busy, fullest, heat, memory, phase, utilisation
from console.widgets.lines import Lines
from console.widgets.paint import Line, wrapped
from console.widgets.panel import Panel, entitle
from console.widgets.table import Column, Row, Table

COLUMNS = (
    Column(_("Node"), 8, grow=True),
    Column(_("Link"), 12),
    Column(_("Age"), 4, right=True, drop=1),
    Column(_("RTT"), 7, right=True, drop=6),
    Column(_("CPU"), 4, right=True, drop=5),
    Column(_("RAM"), 4, right=True, drop=4),
    Column(_("GPUs"), 4, right=True),
    Column(_("Util"), 4, right=True),
    Column(_("Mem"), 5, right=True),
    Column(_("Temp"), 6, right=True, drop=3),
    Column(_("Power"), 7, right=True, drop=7),
    Column(_("Runs"), 4, right=True, drop=2),
)
EVENTS_SHOWN = 60


def node_cells(node: Node, now: float) -> tuple[Line, ...]:
    """A node as a row's cells. GPU memory is its fullest card's, temperature its hottest's, power the sum."""
    state, believed = node.state, node.live(now)
    gpus = list(state.gpus.values())
    full = fullest(gpus)
    temperatures = [gpu.temperature_c for gpu in gpus if gpu.temperature_c is not None]
    watts = [gpu.power_w for gpu in gpus if gpu.power_w is not None]
    live = sum(run.phase not in ("ended", "unknown") for run in state.runs.values())
    unknown: Line = ((UNKNOWN, "dim"),)
    figures: tuple[Line, ...] = (
        ((age(node.level_age_s(now)), "dim"),),
        ((round_trip(node.link.rtt_s), "text"),),
        ((percent(state.host.cpu_percent), "text"),),
        ((share(state.host.ram_used_bytes, state.host.ram_total_bytes), "text"),),
        ((str(len(gpus)) if node.level_at is not None else UNKNOWN, "text"),),
        busy(utilisation(gpus)),
        memory(full.memory_used_bytes, full.memory_total_bytes) if full is not None else unknown,
        heat(max(temperatures, default=None)),
        ((power(sum(watts) if watts else None), "text"),),
        ((str(live) if node.level_at is not None else UNKNOWN, "ok" if live else "dim"),),
    )
    shown = node.link.phase if node.link.phase != "live" or believed or node.level_at is None else "stale"
    name = "dead" if node.link.phase == "down" else "strong" if believed else "text"
    if not believed:
        figures = tuple(tuple((text, "dim") for text, _role in cell) for cell in figures)
    sign = "!" if any(gpu.lost for gpu in gpus) else ""
    shut = " ⊘" if state.host.cordon else ""
    return (((node.name, name), (sign, "bad"), (shut, "warn")), phase(shown), *figures)


class FleetScreen(Listing):
    PLACE = "fleet"
    BINDINGS = bindings("fleet", "screen")

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.heard = (0, 0)
        self.newest: list[Line] = []

    def content(self) -> ComposeResult:
        yield Lines(self.banner, id="banner", focus=False)
        with Container(id="body"):
            with Vertical(id="left"):
                with Panel(_("Nodes"), id="nodes-panel"):
                    yield Table(COLUMNS, self.rows, empty=_("No nodes."), id="nodes")
                with Panel(_("Runs"), id="live-panel"):
                    yield Table(RUN_COLUMNS, self.run_rows, empty=_("No runs yet. n starts one."), id="live")
                with Panel(_("Events"), id="events-panel"):
                    yield Lines(self.event_lines, id="events")
            with Panel(id="detail-panel"):
                yield Lines(self.detail, id="detail")

    def on_mount(self) -> None:
        super().on_mount()
        self.query_one("#nodes", Table).focus()

    def main_table(self) -> Table:
        return self.query_one("#nodes", Table)

    def title_line(self) -> Line:
        return ((_("Fleet"), "title"),)

    def banner(self, width: int, _height: int) -> Sequence[Line]:
        """The one thing to know or do now; nothing most of the time."""
        session = self.desk.session
        if self.desk.trouble:
            return wrapped(self.desk.trouble, width - 2, "bad", " ")
        if session is None:
            return [((_(" Opening the links to the nodes…"), "dim"),)]
        if asking := waiting(self.desk.fleet):
            text = plural(
                "{n} node waits for your answer: press a", "{n} nodes wait for your answer: press a", len(asking)
            )
            return [((f" ? {text}", "warn"),)]
        if session.demo is not None and not any(run.live for run in self.desk.fleet.runs()):
            note = _("Press n: {note}, on {node}").format(note=session.demo.note, node=session.demo.node)
            return wrapped(note, width - 2, "accent", " ▸ ")
        return []

    def tick(self) -> None:
        banner = self.query_one("#banner", Lines)
        banner.display = bool(self.banner(self.size.width or 80, 1))
        super().tick()
        nodes = self.query_one("#nodes", Table)
        entitle(self.query_one("#detail-panel"), nodes.cursor or "")
        hidden = len(self.desk.fleet.nodes) - len(nodes.rows)
        note = _("{n} filtered out").format(n=hidden) if hidden else ""
        entitle(self.query_one("#nodes-panel"), _("Nodes"), note)

    def useful(self, key: Key) -> bool:
        return key.id != "link.answer" or bool(waiting(self.desk.fleet))

    def action_answer_link(self) -> None:
        """The node under the cursor if it asks, else the first that does."""
        asking = waiting(self.desk.fleet)
        here = self.desk.node(self.main_table().cursor)
        answer_link(self, here if here in asking else next(iter(asking), None))

    def action_check(self) -> None:
        if name := self.main_table().cursor:
            self.app.call_later(self.app.run_action, f"check_node({name!r})")

    def rows(self) -> list[Row]:
        now = self.desk.clock()
        every = self.desk.fleet.nodes.values()
        nodes = [node for node in every if self.passes(node)] if self.filter.words else every
        return [Row(node.name, partial(node_cells, node, now)) for node in nodes]

    def passes(self, node: Node) -> bool:
        """Name, link, GPU models and run names can be searched."""
        gpus = " ".join({gpu.name for gpu in node.state.gpus.values()})
        runs = " ".join(run.name for run in node.state.runs.values())
        return self.filter.passes(node.name, node.link.phase, node.state.host.hostname, gpus, runs)

    def run_rows(self) -> list[Row]:
        return run_table(self.desk, self.desk.fleet.runs())

    def detail(self, width: int, _height: int) -> Sequence[Line]:
        node = self.desk.node(self.main_table().cursor)
        if node is None:
            return []
        now = self.desk.clock()
        concerns = [
            line for c in about(node, now) if node.link.phase != "down" for line in wrapped(c.text, width, c.role)
        ]
        return [*concerns, *node_lines(node, now, width)]

    def event_lines(self, width: int, _height: int) -> Sequence[Line]:
        """The newest events of all nodes, newest first; looked for again only when one has come."""
        nodes = self.desk.fleet.nodes.values()
        heard = (width, sum(node.last_seq for node in nodes))
        if heard != self.heard:
            every = ((event.unix_s, node.name, event) for node in nodes for event in islice(reversed(node.events), 20))
            newest = heapq.nlargest(EVENTS_SHOWN, every, key=lambda found: found[:2])
            self.heard, self.newest = heard, [event_line(event, width, name) for _unix, name, event in newest]
        return self.newest or [((_("Nothing yet."), "dim"),)]

    @on(Table.Moved, "#nodes")
    def follow_cursor(self) -> None:
        self.query_one("#detail", Lines).scroll_home(animate=False)
        entitle(self.query_one("#detail-panel"), self.main_table().cursor or "")
        self.query_one("#detail", Lines).renew()

    @on(Table.Chosen, "#nodes")
    def open_node(self) -> None:
        if name := self.main_table().cursor:
            self.app.push_screen(NodeScreen(self.desk, name))

    @on(Table.Chosen, "#live")
    def open_run(self) -> None:
        if place := parted(self.query_one("#live", Table).cursor):
            self.app.push_screen(RunScreen(self.desk, *place))
