"""One node: link, GPUs, host, events; its runs to open or kill."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Container, Horizontal

from console.bindings import Key, bindings
from console.fleet import Node, Run
from console.format import age
from console.screens.answering import answer_link
from console.screens.base import WIDE
from console.screens.describe import node_lines
from console.screens.desk import Desk
from console.screens.past import Past
from console.screens.run_list import RunList
from console.screens.runs import COLUMNS, run_table
from console.screens.strips import past_lines, state_word
from console.screens.trail import Trail
from console.strings import _
from console.widgets.lines import Lines
from console.widgets.paint import Line
from console.widgets.panel import Panel, entitle
from console.widgets.table import Row, Table


class NodeScreen(RunList):
    PLACE = "node"
    BINDINGS = bindings("node", "screen")

    def __init__(self, desk: Desk, node: str) -> None:
        super().__init__(desk)
        self.node = node
        self.past, self.trail = Past(), Trail()

    def content(self) -> ComposeResult:
        with Container(id="body"):
            with Horizontal(id="panes"):
                with Panel(self.node, id="detail-panel"):
                    yield Lines(self.detail, id="detail")
                with Panel(_("History"), id="past-panel"):
                    yield Lines(self.charts, id="past", focus=False)
            with Panel(_("Runs"), id="runs-panel"):
                yield Table(COLUMNS, self.rows, empty=_("No runs on this node. n starts one."), id="runs")

    def useful(self, key: Key) -> bool:
        node = self.desk.node(self.node)
        if key.id == "link.answer":
            return node is not None and node.link.question is not None
        return self.charted() if key.id == "node.window" else super().useful(key)

    def action_check(self) -> None:
        self.app.call_later(self.app.run_action, f"check_node({self.node!r})")

    def action_answer_link(self) -> None:
        answer_link(self, self.desk.node(self.node))

    def action_window(self) -> None:
        """The charts over a longer time; after the longest the shortest again."""
        if self.charted():
            self.past.wider()
            self.tick()
        else:
            self.app.notify(_("The charts need a wider terminal: {n} columns.").format(n=WIDE), markup=False)

    def charted(self) -> bool:
        """Whether there is room for the charts."""
        return bool(self.query_one("#past-panel").display)

    def tick(self) -> None:
        node = self.desk.node(self.node)
        if node is not None and not self.desk.paused:
            self.trail.turn(self.desk, node)
        if node is not None and not self.desk.paused and self.charted():
            self.past.turn(self.desk, node, self.desk.wall() + (node.clock_offset_s or 0.0))
            title = _("History, {age}").format(age=age(self.past.window_s))
            entitle(self.query_one("#past-panel"), title, state_word(self.past, self.fresh(node)))
        super().tick()

    def fresh(self, node: Node) -> bool:
        return node.live(self.desk.clock())

    def charts(self, width: int, height: int) -> Sequence[Line]:
        node = self.desk.node(self.node)
        return past_lines(self.past, node, width, height, self.fresh(node)) if node is not None else []

    def title_line(self) -> Line:
        return ((_("Node"), "title"), (f"  {self.node}", "strong"))

    def detail(self, width: int, _height: int) -> Sequence[Line]:
        node = self.desk.node(self.node)
        if node is None:
            return []
        return [*node_lines(node, self.desk.clock(), width, runs=False), *self.trail.lines(width)]

    def rows(self) -> list[Row]:
        node = self.desk.node(self.node)
        return run_table(self.desk, [Run(node.name, state) for state in node.runs()]) if node is not None else []
