"""Bringing a run's result home: the node makes and compares it, a thread fetches it, and what was verified is told."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import Button, Input

from agent import wire
from console.bindings import bindings
from console.commands.export import MAKING_S, SLICE_S, FromNode
from console.failure import Failure
from console.fleet import Run
from console.format import figure, size
from console.screens.base import DeckScreen
from console.screens.dialogs import Asking, Notice, paragraphs
from console.screens.figures import number
from console.screens.orders import doubts, name_of, order
from console.session import Session
from console.strings import _, plural
from console.transfer import File, Pull
from console.widgets.choice import Choice
from console.widgets.lines import Lines
from console.widgets.panel import entitle

NEWEST = "newest"
SETTLE_S = 0.5
"""By then the screen's own loop has taken in what the link said with a failed answer."""
TOLD_S = 30.0


def ask_to_export(screen: DeckScreen, run: Run, chosen: str | None) -> None:
    """The final result where there is one, else a snapshot."""
    source = chosen or (None if run.state.reason == "completed" else NEWEST)

    def export(folder: Path | None) -> None:
        if folder is not None:
            label = _("exporting {name}: {node} loads and compares").format(name=name_of(run), node=run.node)
            body = wire.Export(run.state.run, source)
            order(screen, run, label, body, lambda made: fetch(screen, run, made, folder), MAKING_S)

    screen.app.push_screen(AskExport(screen, run, source), export)


def what(source: str | None) -> str:
    if source is None:
        return _("the final result")
    return _("the newest snapshot") if source == NEWEST else _("snapshot {name}").format(name=source)


class AskExport(Asking["Path | None"]):
    """Dismissed with the folder on this machine that it is to come to."""

    BINDINGS = bindings("question")

    def __init__(self, screen: DeckScreen, run: Run, source: str | None) -> None:
        super().__init__()
        where = {"what": what(source), "run": run.state.run, "node": run.node}
        first = _("Export {what} of {run} on {node} to this machine?").format(**where)
        second = _("It is loaded there in a fresh process and its logits are compared before anything is sent.")
        self.text = [first, second, *doubts(screen, run)]
        self.start = f"{run.state.run}-{source or 'output'}"

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog", classes="-plain") as box:
            entitle(box, _("Export a run"))
            yield Lines(lambda width, _height: paragraphs(self.text, width), id="words", focus=False)
            with Horizontal(id="fields"):
                yield Choice(
                    _("Folder here, below {cwd}").format(cwd=Path.cwd()), Input(self.start, id="folder", compact=True)
                )
            with Horizontal(id="answers"):
                yield Button(_("No (n)"), id="no", compact=True)
                yield Button(_("Export (y)"), id="yes", variant="primary", compact=True)

    def on_mount(self) -> None:
        self.query_one("#folder", Input).focus()

    @on(Input.Submitted)
    def submitted(self) -> None:
        self.action_answer(True)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.action_answer(event.button.id == "yes")

    def action_answer(self, yes: bool) -> None:
        text = self.query_one("#folder", Input).value.strip()
        if not yes:
            self.dismiss(None)
        elif not text or not text.isprintable():
            self.app.notify(_("Give the path of a folder on this machine."), severity="warning", markup=False)
        else:
            self.dismiss(path(text))


def path(text: str) -> Path:
    """As the user means it; a home that does not exist is left as it was typed."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)


class Waiting(FromNode):
    """Asks from a thread of its own; the screen's loop is the one that moves what the links say."""

    def wait(self, future: Future[wire.Reply]) -> None:
        wait_for([future], SLICE_S + 5.0)
        if not future.done() or not future.result().ok:
            time.sleep(SETTLE_S)

    def away(self, why: str) -> None:
        """The header and the fleet say it already."""


@dataclass(slots=True)
class Transfer:
    """Files on their way. `done_bytes` and `total_bytes` are written by its thread, read by the screen."""

    pull: Pull
    name: str
    outcome: Future[Failure | int]
    done_bytes: int = 0
    total_bytes: int = 0

    def note(self, done: int, total: int) -> None:
        self.done_bytes, self.total_bytes = done, total

    def label(self) -> str:
        of = f" {size(self.done_bytes)} / {size(self.total_bytes)}" if self.total_bytes else ""
        return _("fetching {name}").format(name=self.name) + of

    def run(self) -> None:
        try:
            self.outcome.set_result(self.pull.run())
        except Failure as failure:
            self.outcome.set_result(failure)
        finally:
            if not self.outcome.done():
                self.outcome.set_result(Failure(_("the transfer has broken down inside tunedeck")))


def fetch(screen: DeckScreen, run: Run, made: dict[str, Any], folder: Path) -> None:
    session = screen.desk.session
    if session is None:
        return
    try:
        transfer = begin(session, run, made, folder)
    except Failure as failure:
        refused(screen, run, failure)
        return

    def fetched(outcome: Failure | int) -> None:
        if isinstance(outcome, Failure):
            refused(screen, run, outcome)
        else:
            screen.app.notify(told(run, made, transfer.pull), timeout=TOLD_S, markup=False)

    screen.desk.await_result(transfer.label, transfer.outcome, fetched)


def begin(session: Session, run: Run, made: dict[str, Any], folder: Path) -> Transfer:
    """Raises Failure when the node lists something that cannot be fetched."""
    try:
        files = [File.listed(entry) for entry in made.get("files") or ()]
    except (AttributeError, TypeError, ValueError) as error:
        raise Failure(_("{node} sent something that is no list of files").format(node=run.node)) from error
    source = Waiting(session, run.node, run.state.run, str(made.get("folder")))
    transfer = Transfer(Pull(source, files, folder), name_of(run), Future())
    transfer.pull.tell = transfer.note
    threading.Thread(target=transfer.run, name=f"export {run.state.run}", daemon=True).start()
    return transfer


def refused(screen: DeckScreen, run: Run, failure: Failure) -> None:
    title = _("{run} was not exported").format(run=run.state.run)
    screen.app.push_screen(Notice(title, failure.message, failure.hint))


def told(run: Run, made: dict[str, Any], pull: Pull) -> str:
    """What is here now and how it is known to be right."""
    first = _("{source} of {run} is in {folder}: {files}, {size}, every SHA-256 verified.").format(
        source=made.get("source"),
        run=run.state.run,
        folder=pull.target.absolute(),
        files=plural("{n} file", "{n} files", len(pull.files)),
        size=size(pull.total_bytes),
    )
    second = _("Loaded again on {node} in a fresh process, its logits differ by at most {difference}.")
    return f"{first} {second.format(node=run.node, difference=figure(number(made.get('difference'))))}"
