"""A run's snapshots as a list to choose from. Untouched, its cursor stays on the newest usable one."""

from __future__ import annotations

from collections.abc import Callable

from agent import wire
from console.bindings import bindings
from console.format import UNKNOWN, age, count, figure, size
from console.screens.branches import Path, leads
from console.screens.shelf import Refused, Shelf
from console.strings import _
from console.widgets.paint import Line, Span, one_line, wrapped
from console.widgets.table import Column, Row, Table

COLUMNS = (
    Column(_("Step"), 7, right=True),
    Column("", 3),
    Column(_("Age"), 4, right=True),
    Column(_("Size"), 8, right=True, drop=1),
    Column(_("Resume"), 12, grow=True),
)
LEFT = "↶"
"""Beside what a rollback went back over"""
_BADGES = {"exact": ("✓", "ok"), "inexact": ("≈", "warn"), "weights-only": ("○", "warn")}


class Timeline(Table):
    BINDINGS = bindings("snapshots")
    keys_place = "snapshots"

    def __init__(self, shelf: Shelf, path: Callable[[], Path], wall: Callable[[], float]) -> None:
        super().__init__(COLUMNS, self.timeline_rows, id="snapshots")
        self.shelf, self.path, self.wall = shelf, path, wall
        self.touched = False
        """The user chose a row; else the newest is meant"""

    def timeline_rows(self) -> list[Row]:
        self.empty = self.shelf.trouble or (_("none yet") if self.shelf.heard else _("reading…"))
        path, wall = self.path(), self.wall()
        rows = [self.row(one, path, wall) for one in self.shelf.snapshots]
        known = {one.name for one in self.shelf.snapshots}
        return rows + [refused_row(one) for one in self.shelf.refused if one.name not in known]

    def row(self, one: wire.SnapshotState, path: Path, wall: float) -> Row:
        """Dim when the steps it belongs to were left behind."""
        here = leads(path, one.branch, one.step)
        role = "text" if here else "dim"
        pin: Span = ("⚑" if one.pinned else " ", "accent")
        hashed: Span = {None: (" ", "dim"), True: ("✓", "ok"), False: ("✕", "bad")}[one.verified]
        left: Span = (" " if here else LEFT, "dim")
        return Row(
            one.name,
            (
                ((count(one.step), "strong" if here else "dim"),),
                (pin, hashed, left),
                ((age(wall - one.created_unix), "dim"),),
                ((size(one.size_bytes), role),),
                badge(one, self.shelf.reason(one.name)),
            ),
        )

    def renew(self) -> None:
        super().renew()
        newest = next((one.name for one in self.shelf.usable() if leads(self.path(), one.branch, one.step)), None)
        if not self.touched and newest is not None and newest != self.cursor:
            self.cursor = newest
            self.refresh()
            self.post_message(self.Moved(self))

    def place(self, index: int) -> None:
        self.touched = True
        super().place(index)

    def let_go(self) -> None:
        """Back to the newest."""
        self.touched = False
        self.renew()


def badge(one: wire.SnapshotState, refused: str) -> Line:
    """How a resume from it would be, as sign and word."""
    if refused or one.verified is False:
        return ((_("✕ damaged"), "bad"),)
    sign, role = _BADGES.get(one.badge, ("?", "warn"))
    return ((f"{sign} {one.badge or UNKNOWN}", role),)


def refused_row(one: Refused) -> Row:
    branch, _s, step = one.name.partition("-s")
    number = int(step) if step.isdecimal() and branch.startswith("b") else None
    unknown: Line = ((UNKNOWN, "dim"),)
    return Row(one.name, (((count(number), "dim"),), (("", "dim"),), unknown, unknown, ((_("✕ unusable"), "bad"),)))


def explained(shelf: Shelf, name: str | None, path: Path, width: int) -> list[Line]:
    """The snapshot under the cursor in words."""
    if name is None:
        return []
    refused, one = shelf.reason(name), shelf.named(name)
    if refused:
        return wrapped(one_line(refused), width, "bad")
    if one is None:
        return []
    hashed = {None: "", True: _("verified"), False: _("damaged")}[one.verified]
    pinned = _("pinned") if one.pinned else ""
    left = "" if leads(path, one.branch, one.step) else _("abandoned branch")
    facts = " · ".join(filter(None, (one.name, _("loss {x}").format(x=figure(one.loss)), pinned, hashed, left)))
    why = wrapped(one_line(one.why), width, "warn" if one.badge != "exact" else "dim") if one.why else []
    return [*wrapped(facts, width, "dim"), *why]
