"""What links ask of the user: is this the host's key, a password, a passphrase, a code. Never stored, never shown."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Input

from console.bindings import bindings
from console.fleet import Fleet, Node
from console.refusal import Question
from console.screens.base import DeckScreen
from console.screens.dialogs import Asking, paragraphs
from console.screens.dialogs import Question as YesOrNo
from console.strings import _
from console.widgets.lines import Lines
from console.widgets.panel import entitle

TITLES = {"password": _("Password"), "passphrase": _("Passphrase"), "code": _("The node asks")}


class Typed(Asking[str]):
    """Dismissed with what was typed, or None."""

    BINDINGS = bindings("typed")

    def __init__(self, question: Question) -> None:
        super().__init__()
        self.question = question

    def compose(self) -> ComposeResult:
        note = _("Kept in memory until the console closes; enter sends it, esc leaves the node as it is.")
        with Vertical(id="dialog") as box:
            entitle(box, TITLES.get(self.question.kind, _("The node asks")))
            yield Lines(lambda width, _height: paragraphs((self.question.text, note), width), id="words", focus=False)
            yield Input(password=self.question.secret, id="typed", compact=True)

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value or None)


def waiting(fleet: Fleet) -> list[Node]:
    """The nodes whose links ask something."""
    return [node for node in fleet.nodes.values() if node.link.question is not None]


def answer_link(screen: DeckScreen, node: Node | None) -> None:
    """Ask the user what the link of this node asks. A host's key is not accepted by anything but a yes."""
    question = node.link.question if node is not None else None
    if node is None or question is None:
        screen.notify(_("No link asks anything."), markup=False)
        return
    name = node.name

    def give(text: str | None) -> None:
        if text is not None and screen.desk.session is not None:
            screen.desk.session.answer(name, question, text)

    if question.kind == "host-key":
        warning = _("Compare it with what your provider or administrator shows. If it differs, somebody listens in.")
        dialog = YesOrNo(_("{node}: a key not seen before").format(node=name), [question.text, warning], _("Accept"))
        screen.app.push_screen(dialog, lambda yes: give("yes" if yes else None))
    else:
        screen.app.push_screen(Typed(question), give)
