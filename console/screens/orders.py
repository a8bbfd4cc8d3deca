"""Orders to one run, as dialogs give them: whether they make sense now, what is asked, and how the answer is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agent import wire
from console.fleet import Run
from console.format import UNKNOWN, age, count
from console.screens.base import DeckScreen
from console.screens.dialogs import Notice, Question
from console.screens.force import forceable, offer_force
from console.strings import _

ANSWER_S = 900.0
"""Until the next step boundary, then writing or reading a large state."""
Done = Callable[[dict[str, Any]], None]


def allowed(screen: DeckScreen, run: Run, live: bool | None = None) -> bool:
    """Whether orders of that kind make sense for this run; where not, the user is told why."""
    node, state = screen.desk.node(run.node), run.state
    words = {"run": state.run, "node": run.node, "reason": state.reason or UNKNOWN, "phase": state.phase or UNKNOWN}
    if node is not None and node.read_only:
        why = _("{node} is open read-only; no order can be given from here.")
    elif live and state.phase == "ended":
        why = _("{run} has ended ({reason}); R lets it go on from a snapshot.")
    elif live and state.step is None:
        why = _("{run} has not made a step yet ({phase}); there is nothing to keep or to go back to.")
    elif live is False and run.live:
        why = _("{run} is live; B rolls it back, P pauses it.")
    else:
        return True
    screen.app.notify(why.format(**words), severity="warning", markup=False)
    return False


def order(
    screen: DeckScreen,
    run: Run,
    label: str,
    body: wire.Body,
    done: Done,
    deadline_s: float = ANSWER_S,
    overrule: Callable[[], None] | None = None,
) -> None:
    """Give an order for a run; a refusal is shown in the node's own words, and `overrule` offered where that helps."""

    def answer(reply: wire.Reply) -> None:
        if reply.ok:
            done(reply.result)
        elif overrule is not None and forceable(reply):
            first = _("Start {run} on {node} anyway?").format(run=run.state.run, node=run.node)
            offer_force(screen, first, reply, overrule)
        else:
            title = _("{run} on {node}: not done").format(run=run.state.run, node=run.node)
            screen.app.push_screen(Notice(title, reply.error, reply.hint))

    screen.desk.ask(label, run.node, body, deadline_s, answer)
    screen.tick()


def tell(screen: DeckScreen, run: Run, said: dict[str, Any]) -> None:
    """What the job answered."""
    message = str(said.get("message") or _("done"))
    screen.app.notify(f"{name_of(run)} · {run.node}: {message}", markup=False)


def name_of(run: Run) -> str:
    return run.state.name or run.state.run


def at_step(run: Run) -> str:
    state = run.state
    return count(state.step) + (f"/{count(state.total_steps)}" if state.total_steps else "")


def doubts(screen: DeckScreen, run: Run) -> list[str]:
    """Said when what is asked about may be old."""
    node, now = screen.desk.node(run.node), screen.desk.clock()
    if node is None or node.live(now):
        return []
    old = age(node.level_age_s(now))
    return [_("{node} was last heard {age} ago; this may be old.").format(node=run.node, age=old)]


def pause_question(screen: DeckScreen, run: Run) -> Question:
    first = _("Pause {run} on {node} at step {step}?").format(run=run.state.run, node=run.node, step=at_step(run))
    text = _("It keeps its state in a snapshot, then its processes end and its GPUs are free. R lets it go on.")
    return Question(_("Pause a run"), [first, text, *doubts(screen, run)], _("Pause it"))


def pause(screen: DeckScreen, run: Run) -> None:
    label = _("pausing {name} on {node}").format(name=name_of(run), node=run.node)
    order(screen, run, label, wire.Steer(run.state.run, "pause"), lambda said: tell(screen, run, said))
