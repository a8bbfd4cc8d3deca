"""Stopping a run: asked once, with run, node and step named; the outcome is told as proved by the node."""

from __future__ import annotations

from agent import wire
from console.fleet import Run
from console.format import UNKNOWN, age, count, duration
from console.screens.base import DeckScreen
from console.screens.dialogs import Notice, Question
from console.strings import _

GRACE_S = 20.0
DEADLINE_S = GRACE_S + 40.0


def ask_to_kill(screen: DeckScreen, run: Run | None) -> None:
    """Refuses with a reason where there is nothing to kill or it is not allowed."""
    node = screen.desk.node(run.node) if run is not None else None
    if run is None or node is None:
        return screen.app.notify(_("There is no run under the cursor."), markup=False)
    if not run.live:
        return screen.app.notify(_("{run} has already ended.").format(run=run.state.run), markup=False)
    if node.read_only:
        text = _("{node} is open read-only; nothing can be killed from here.").format(node=run.node)
        return screen.app.notify(text, severity="warning", markup=False)
    screen.app.push_screen(question(screen, run), lambda yes: kill(screen, run) if yes else None)
    return None


def question(screen: DeckScreen, run: Run) -> Question:
    state = run.state
    of = f"/{count(state.total_steps)}" if state.total_steps else ""
    first = _("Kill {run} on {node} at step {step}{of}?").format(
        run=state.run, node=run.node, step=count(state.step), of=of
    )
    text = [first, _("It is asked to stop first and killed after {s:.0f} s. Logs and figures stay.").format(s=GRACE_S)]
    if state.snapshot_step is None:
        text.append(_("It has no snapshot: what it has learned so far is lost."))
    node = screen.desk.node(run.node)
    now = screen.desk.clock()
    if node is not None and not node.live(now):
        old = node.level_age_s(now)
        text.append(_("{node} was last heard {age} ago; this may be old.").format(node=run.node, age=age(old)))
    return Question(_("Kill a run"), text, _("Kill it"))


def kill(screen: DeckScreen, run: Run) -> None:
    label = _("killing {name} on {node}").format(name=run.state.name or run.state.run, node=run.node)
    body = wire.Kill(run.state.run, GRACE_S)

    def answer(reply: wire.Reply) -> None:
        if not reply.ok:
            screen.app.push_screen(Notice(_("{run} was not killed").format(run=run.state.run), reply.error, reply.hint))
            return
        gone, alive = reply.result.get("gone") or [], reply.result.get("alive") or []
        text = _("{run} on {node}: {reason}. {n} processes proved gone after {time}.").format(
            run=run.state.run,
            node=run.node,
            reason=reply.result.get("reason") or UNKNOWN,
            n=len(gone),
            time=duration(reply.result.get("seconds")),
        )
        if alive:
            pids = ", ".join(str(pid) for pid in alive)
            screen.app.push_screen(Notice(_("Still alive"), _("These processes did not end: {p}").format(p=pids), text))
            return
        screen.app.notify(text, markup=False)

    screen.desk.ask(label, run.node, body, DEADLINE_S, answer)
    screen.tick()
