"""Whether nodes are sound: what their checks came to, most pressing first. Nothing is checked before a key says so."""

from __future__ import annotations

from collections.abc import Sequence

from textual import on
from textual.app import ComposeResult
from textual.containers import Container, Vertical

from agent import wire
from console.bindings import bindings
from console.checked import HEALTHS, QUICK_S, SIGNS, Checked, name_of, read
from console.fleet import Node
from console.format import UNKNOWN, age
from console.screens.base import DeckScreen
from console.screens.desk import Desk
from console.screens.node import NodeScreen
from console.strings import _
from console.widgets.lines import Lines
from console.widgets.paint import EMPTY, Line, fit, one_line, wrapped
from console.widgets.panel import Panel, entitle
from console.widgets.table import Column, Row, Table

NODES = (
    Column("", 1),
    Column(_("Node"), 10, grow=True),
    Column(_("Faults"), 6, right=True),
    Column(_("Watch"), 5, right=True),
    Column(_("Unknown"), 7, right=True, drop=2),
    Column(_("Good"), 4, right=True, drop=1),
    Column(_("Age"), 9, right=True),
)
CHECKS = (
    Column("", 1),
    Column(_("Family"), 9),
    Column(_("Check"), 16),
    Column(_("Result"), 36, grow=True),
    Column(_("Seen"), 60, drop=1),
)
LABEL = 6
ROLES = {"fault": "bad", "watch": "warn", "unknown": "dim", "good": "text"}


def begin(desk: Desk, node: Node) -> str:
    """Ask one node to check itself. Returns why not, where it makes no sense."""
    name = node.name
    if name in desk.checking:
        return _("{node} is being checked already").format(node=name)
    if node.link.phase != "live":
        return _("{node} does not answer: {why}").format(node=name, why=node.link.why or node.link.phase)

    def answered(reply: wire.Reply) -> None:
        desk.checking.discard(name)
        desk.checked[name] = read(name, reply, desk.wall())

    desk.checking.add(name)
    desk.ask(_("checking {node}").format(node=name), name, wire.RunChecks(console_unix=desk.wall()), QUICK_S, answered)
    return ""


def node_row(desk: Desk, node: Node) -> Row:
    found = desk.checked.get(node.name)
    name: Line = ((node.name, "strong" if node.live(desk.clock()) else "dead"),)
    if found is None or found.trouble:
        figures: tuple[Line, ...] = (((UNKNOWN, "dim"),),) * len(HEALTHS)
        sign: Line = EMPTY if found is None else (("✕", "bad"),)
    else:
        figures = tuple(counted(found, health) for health in HEALTHS)
        sign = (SIGNS[found.worst],) if found.worst else EMPTY
    old = _("checking…") if node.name in desk.checking else age(desk.wall() - found.at_unix) if found else _("never")
    return Row(node.name, (sign, name, *figures, ((old, "dim"),)))


def counted(found: Checked, health: str) -> Line:
    count = found.count(health)
    return ((str(count), ROLES[health] if count else "dim"),)


def check_row(one: wire.Check) -> Row:
    role = ROLES[one.health]
    cells: tuple[Line, ...] = (
        (SIGNS[one.health],),
        ((one_line(one.family), "dim"),),
        ((one_line(one.name), role),),
        ((one_line(one.reason), "dim" if one.health == "good" else role),),
        ((one_line(one.evidence), "dim"),),
    )
    return Row(name_of(one), cells)


class ChecksScreen(DeckScreen):
    PLACE = "checks"
    BINDINGS = bindings("checks", "screen")

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        # kept, not looked for: a tick may come while the screen is taken apart
        self.nodes = Table(NODES, self.node_rows, empty=_("No nodes."), id="checked")
        self.checks = Table(CHECKS, self.check_rows, id="checks")
        self.words = Lines(self.told, id="told")
        self.frame = Panel(id="checks-panel")

    def content(self) -> ComposeResult:
        with Container(id="body"):
            with Panel(_("Nodes"), id="checked-panel"):
                yield self.nodes
            with Vertical(id="found"):
                with self.frame:
                    yield self.checks
                with Panel(_("Seen, and what to do"), id="told-panel"):
                    yield self.words

    def title_line(self) -> Line:
        return ((_("Checks"), "title"),)

    def on_mount(self) -> None:
        super().on_mount()
        self.nodes.focus()

    def tick(self) -> None:
        if self.desk.look_at:
            self.nodes.cursor, self.desk.look_at = self.desk.look_at, ""
        super().tick()
        self.entitle_checks()

    def entitle_checks(self) -> None:
        """The frame says whose checks these are; the empty table, what to do."""
        name, found = self.nodes.cursor or "", self.found()
        old = age(self.desk.wall() - found.at_unix) if found is not None else ""
        entitle(self.frame, name, _("{age} ago").format(age=old) if old else "")
        empty = self.emptiness(name, found)
        if self.checks.empty != empty:
            self.checks.empty = empty
            self.checks.draw()

    def emptiness(self, name: str, found: Checked | None) -> str:
        if name in self.desk.checking:
            return _("Checking; this takes some seconds.")
        if found is not None:
            return _("It could not be checked.") if found.trouble else _("It had nothing to say.")
        return _("Not checked yet. c checks it.")

    def found(self) -> Checked | None:
        return self.desk.checked.get(self.nodes.cursor or "")

    def node_rows(self) -> list[Row]:
        return [node_row(self.desk, node) for node in self.desk.fleet.nodes.values()]

    def check_rows(self) -> list[Row]:
        found = self.found()
        return [check_row(one) for one in found.ordered()] if found is not None else []

    def told(self, width: int, _height: int) -> Sequence[Line]:
        found, cursor = self.found(), self.checks.cursor
        if found is None:
            return []
        if found.trouble:
            return [*wrapped(found.trouble, width, "bad"), *wrapped(found.hint, width, "text")]
        one = next((one for one in found.checks if name_of(one) == cursor), None)
        if one is None:
            return []
        sign, role = SIGNS[one.health]
        lines = wrapped(f"{sign} {one.reason}", width, role if one.health != "good" else "text")
        for label, text in ((_("seen"), one.evidence), (_("do"), one.action)):
            for number, line in enumerate(wrapped(one_line(text), max(8, width - LABEL), "text")):
                lines.append(((fit(label if number == 0 else "", LABEL), "dim"), *line))
        return lines

    @on(Table.Moved)
    def follow(self, moved: Table.Moved) -> None:
        if moved.table is self.nodes:
            self.checks.cursor = None  # of another node the most pressing comes first again
            self.checks.scroll_home(animate=False)
            self.checks.renew()
            self.entitle_checks()
        self.words.scroll_home(animate=False)
        self.words.renew()

    @on(Table.Chosen, "#checked")
    def open_node(self) -> None:
        if name := self.nodes.cursor:
            self.app.push_screen(NodeScreen(self.desk, name))

    def action_check(self) -> None:
        node = self.desk.node(self.nodes.cursor)
        if node is not None and (why := begin(self.desk, node)):
            self.app.notify(why, severity="warning", markup=False)
        self.tick()

    def action_check_all(self) -> None:
        for node in self.desk.fleet.nodes.values():
            if node.link.phase == "live":
                begin(self.desk, node)
        self.tick()
