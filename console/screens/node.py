"""One node: link, GPUs, host, events; its runs to open or kill."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Container

from console.bindings import Key, bindings
from console.fleet import Run
from console.screens.answering import answer_link
from console.screens.describe import node_lines
from console.screens.desk import Desk
from console.screens.run_list import RunList
from console.screens.runs import COLUMNS, run_table
from console.strings import _
from console.widgets.lines import Lines
from console.widgets.paint import Line
from console.widgets.panel import Panel
from console.widgets.table import Row, Table


class NodeScreen(RunList):
    PLACE = "node"
    BINDINGS = bindings("node", "screen")

    def __init__(self, desk: Desk, node: str) -> None:
        super().__init__(desk)
        self.node = node

    def content(self) -> ComposeResult:
        with Container(id="body"):
            with Panel(self.node, id="detail-panel"):
                yield Lines(self.detail, id="detail")
            with Panel(_("Runs"), id="runs-panel"):
                yield Table(COLUMNS, self.rows, empty=_("No runs on this node. n starts one."), id="runs")

    def useful(self, key: Key) -> bool:
        node = self.desk.node(self.node)
        asks = node is not None and node.link.question is not None
        return asks if key.id == "link.answer" else super().useful(key)

    def action_answer_link(self) -> None:
        answer_link(self, self.desk.node(self.node))

    def title_line(self) -> Line:
        return ((_("Node"), "title"), (f"  {self.node}", "strong"))

    def detail(self, width: int, _height: int) -> Sequence[Line]:
        node = self.desk.node(self.node)
        return node_lines(node, self.desk.clock(), width, runs=False) if node is not None else []

    def rows(self) -> list[Row]:
        node = self.desk.node(self.node)
        return run_table(self.desk, [Run(node.name, state) for state in node.runs()]) if node is not None else []
