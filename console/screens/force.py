"""Refusals that the user may overrule, and what that risks."""

from __future__ import annotations

from collections.abc import Callable

from agent import wire
from console.screens.base import DeckScreen
from console.screens.dialogs import Question
from console.strings import _

RISKS = {
    "busy-gpus": _("Whoever uses these GPUs may run out of memory through it, and so may this run."),
    "does-not-fit": _("It will most likely end with out of memory."),
    "stale-gpus": _("Nobody knows who uses these GPUs now."),
    "full-disk": _("Its snapshots and logs may find no room."),
}


def forceable(reply: wire.Reply) -> bool:
    return str(reply.result.get("kind")) in RISKS


def offer_force(screen: DeckScreen, question: str, reply: wire.Reply, go: Callable[[], None]) -> None:
    """The node has doubts that the user may know better about."""
    words = [question, reply.error, reply.hint, RISKS[str(reply.result["kind"])]]
    asked = Question(_("Nothing was started"), words, _("Start it anyway"))
    screen.app.push_screen(asked, lambda yes: go() if yes else None)
