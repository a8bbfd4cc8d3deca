"""Letting an ended run go on: the node checks first and says how exact it would be; then it is asked once."""

from __future__ import annotations

from typing import Any

from agent import wire
from agent.wire import NEWEST
from console.commands.resume import expected, question
from console.commands.snapshots import READ_S
from console.fleet import Run
from console.screens.base import DeckScreen
from console.screens.dialogs import Notice, Question
from console.screens.orders import name_of, order
from console.strings import _
from console.widgets.paint import one_line

MEANINGS = {
    "exact": _("exact: it goes on bit for bit as if it had never stopped."),
    "inexact": _("inexact: it goes on from the whole state, but its numbers may differ, for this is different:"),
    "weights-only": _("weights only: optimiser, schedule and place in the data begin anew, for this is different:"),
    "unknown": _("unknown: how exact it would be could not be found out:"),
}


def check_resume(
    screen: DeckScreen, run: Run, chosen: str | None, force: bool = False, without: tuple[str, ...] = ()
) -> None:
    """`without`: UUIDs of cards that it is to leave alone."""
    label = _("checking {name} on {node}").format(name=name_of(run), node=run.node)
    body = wire.Resume(run.state.run, chosen or NEWEST, check=True, force=force, without_gpus=without)
    order(
        screen,
        run,
        label,
        body,
        lambda plan: ask_to_resume(screen, run, plan, force, without),
        READ_S,
        overrule=lambda: check_resume(screen, run, chosen, force=True, without=without),
    )


def ask_to_resume(
    screen: DeckScreen, run: Run, plan: dict[str, Any], force: bool, without: tuple[str, ...] = ()
) -> None:
    """A user who went elsewhere meanwhile is not interrupted by a question that a key might answer."""
    if not sound(plan):
        said = _("{node} sent something that is no plan for a resume").format(node=run.node)
        screen.app.push_screen(Notice(_("Nothing was started"), said))
        return
    if screen.app.screen is not screen:
        said = _("{name} can go on from {snapshot} ({label}); press R there again.")
        text = said.format(name=name_of(run), snapshot=plan.get("snapshot"), label=plan.get("label"))
        screen.app.notify(text, markup=False)
        return
    spared = [_("Left alone: {cards}.").format(cards=", ".join(without))] if without else []
    first, *others = words(run, plan)
    asked = Question(_("Resume a run"), [first, *spared, *others], _("Resume it"))
    screen.app.push_screen(asked, lambda yes: resume(screen, run, plan, force, without) if yes else None)


def sound(plan: dict[str, Any]) -> bool:
    """Whether the answer has what the question is made of."""
    kinds: dict[str, tuple[type, ...]] = {
        "snapshot": (str,),
        "step": (int,),
        "bytes": (int, type(None)),
        "differences": (list,),
        "refused": (list, type(None)),
        "open": (list, type(None)),
    }
    return all(isinstance(plan.get(key), kind) for key, kind in kinds.items())


def words(run: Run, plan: dict[str, Any]) -> list[str]:
    """Everything the preflight found, most important first."""
    label = str(plan.get("label"))
    differences = "; ".join(map(str, plan["differences"]))
    text = [question(run, plan, fork=False), f"{MEANINGS.get(label, label)} {differences}"]
    if plan.get("open"):
        text.append(_("Compared only when it starts: {names}.").format(names=", ".join(map(str, plan["open"]))))
    text += [_("Not usable: {reason}.").format(reason=reason) for reason in plan.get("refused") or ()]
    return [*text, f"{expected(plan)}.", one_line(str(plan.get("memory") or ""))]


def resume(screen: DeckScreen, run: Run, plan: dict[str, Any], force: bool, without: tuple[str, ...] = ()) -> None:
    label = _("resuming {name} on {node}").format(name=name_of(run), node=run.node)

    def started(result: dict[str, Any]) -> None:
        said = _("{run} on {node} goes on from {snapshot}, step {step}")
        where = {"run": run.state.run, "node": run.node}
        text = said.format(**where, snapshot=result.get("snapshot"), step=result.get("step"))
        screen.app.notify(text, markup=False)

    body = wire.Resume(run.state.run, str(plan.get("snapshot")), force=force, without_gpus=without)
    order(screen, run, label, body, started, READ_S)
