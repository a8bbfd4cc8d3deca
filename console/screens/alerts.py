"""What fires on all nodes, most pressing first, and below it what has fired."""

from __future__ import annotations

import time
from collections.abc import Sequence
from heapq import nlargest

from textual import on
from textual.app import ComposeResult

from agent import wire
from console.bindings import bindings
from console.format import age, clock, duration
from console.screens.attention import Concern, about, muted, ordered
from console.screens.describe import event_line
from console.screens.listing import Listing
from console.screens.node import NodeScreen
from console.screens.run import RunScreen
from console.strings import _, plural
from console.widgets.lines import Lines
from console.widgets.paint import EMPTY, Line, one_line
from console.widgets.panel import Panel, entitle
from console.widgets.table import Column, Row, Table

COLUMNS = (
    Column("", 2),
    Column(_("For"), 5, right=True),
    Column(_("Node"), 10),
    Column(_("What"), 36, grow=True),
    Column(_("Value"), 10, right=True, drop=3),
    Column(_("Attended"), 14, drop=2),
)
SIGNS = {"bad": "‼", "warn": "!"}
MUTES_S = (3600.0, 8 * 3600.0, 24 * 3600.0, 0.0)
"""What one more press of the key means"""
HISTORY_SHOWN = 100


def attended(alert: wire.Alert | None) -> Line:
    if alert is None:
        return EMPTY
    if muted(alert):
        return ((_("muted to {time}").format(time=clock(alert.muted_until_unix)[:5]), "dim"),)
    return ((one_line(alert.acked_by).partition("@")[0], "ok"),) if alert.acked_by else EMPTY


def row(one: Concern, live: bool) -> Row:
    """A concern as a row; dim when it is attended to or its node is not heard."""
    role = "dim" if one.quiet else one.role
    value = one.alert.value if one.alert is not None else ""
    cells: tuple[Line, ...] = (
        ((SIGNS.get(one.role, "·"), one.role if not one.quiet else "dim"),),
        ((age(one.since_s), "dim"),),
        ((one.node, "text" if live else "dead"),),
        ((one_line(one.text), role if live or one.alert is None else "dim"),),
        ((one_line(value), "strong" if not one.quiet else "dim"),),
        attended(one.alert),
    )
    return Row(one.key, cells)


class AlertsScreen(Listing):
    PLACE = "alerts"
    BINDINGS = bindings("alerts", "screen")

    def content(self) -> ComposeResult:
        with Panel(_("Firing"), id="all"):
            yield Table(COLUMNS, self.rows, empty=_("Nothing fires."), id="alerts")
        with Panel(_("History"), id="history-panel"):
            yield Lines(self.history, id="history")

    def title_line(self) -> Line:
        return ((_("Alerts"), "title"),)

    def concerns(self) -> list[Concern]:
        now = self.desk.clock()
        found = [one for node in self.desk.fleet.nodes.values() for one in about(node, now)]
        return ordered([one for one in found if self.filter.passes(one.node, one.text)])

    def rows(self) -> list[Row]:
        now, nodes = self.desk.clock(), self.desk.fleet.nodes
        return [row(one, nodes[one.node].live(now)) for one in self.concerns()]

    def history(self, width: int, _height: int) -> Sequence[Line]:
        told = (
            (event.unix_s, node.name, event)
            for node in self.desk.fleet.nodes.values()
            for event in node.events
            if event.kind.startswith("alert.")
        )
        newest = nlargest(HISTORY_SHOWN, told, key=lambda one: one[0])
        return [event_line(event, width, name) for _at, name, event in newest] or [((_("Nothing yet."), "dim"),)]

    def tick(self) -> None:
        super().tick()
        found = self.concerns()
        waiting = sum(not one.quiet for one in found)
        many = plural("{n} waits for somebody", "{n} wait for somebody", waiting)
        entitle(self.query_one("#all"), f"{_('Firing')}: {len(found)}, {many}" if found else _("Firing"))

    def on_mount(self) -> None:
        super().on_mount()
        self.query_one(Table).focus()

    def subject(self) -> Concern | None:
        cursor = self.query_one(Table).cursor
        return next((one for one in self.concerns() if one.key == cursor), None)

    @on(Table.Chosen)
    def open_place(self) -> None:
        one = self.subject()
        if one is None:
            return
        if one.alert is not None and one.alert.run is not None:
            self.app.push_screen(RunScreen(self.desk, one.node, one.alert.run))
        else:
            self.app.push_screen(NodeScreen(self.desk, one.node))

    def ordered_about(self, body: wire.Acknowledge | wire.Mute, node: str, done: str) -> None:
        def answer(reply: wire.Reply) -> None:
            said = done if reply.ok else f"{reply.error}\n{reply.hint}"
            self.app.notify(f"{node}: {said}", severity="information" if reply.ok else "warning", markup=False)

        self.desk.ask(f"{type(body).__name__.lower()} {body.alert}", node, body, 30.0, answer)

    def own(self, one: Concern | None) -> wire.Alert | None:
        """The node's alert under the cursor; otherwise says why there is none."""
        if one is None:
            self.app.notify(_("There is no alert under the cursor."), markup=False)
        elif one.alert is None:
            self.app.notify(_("This is seen from here and ends by itself when the node is heard again."), markup=False)
        return one.alert if one is not None else None

    def action_acknowledge(self) -> None:
        one = self.subject()
        alert = self.own(one)
        if one is not None and alert is not None:
            self.ordered_about(wire.Acknowledge(alert.id), one.node, _("acknowledged: {text}").format(text=alert.text))

    def action_mute(self) -> None:
        """For an hour; pressed again for longer, then not at all."""
        one = self.subject()
        alert = self.own(one)
        if one is None or alert is None:
            return
        left = (alert.muted_until_unix or 0.0) - time.time()
        seconds = next(length for length in MUTES_S if length > 1.5 * left or not length)
        done = _("muted for {time}").format(time=duration(seconds)) if seconds else _("heard again")
        self.ordered_about(wire.Mute(alert.id, seconds), one.node, f"{done}: {alert.text}")
