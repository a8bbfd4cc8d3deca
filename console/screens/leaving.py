"""Leaving a console whose runs end with it: the demo's."""

from __future__ import annotations

from collections.abc import Sequence

from console.fleet import Run
from console.screens.dialogs import Question
from console.screens.orders import at_step
from console.strings import _


def question(live: Sequence[Run]) -> Question:
    said = _("{run} on {node}, at step {step}, ends with it.")
    ending = [said.format(run=run.state.run, node=run.node, step=at_step(run)) for run in live]
    text = [_("End the demo?"), *ending, _("What it has learned stays in the demo's folder, in its snapshots.")]
    return Question(_("Leave the demo"), text, _("End the demo"))
