"""What can be done about a verdict by a key: go on without a card, check again, keep runs off a node, go back."""

from __future__ import annotations

from agent import wire
from agent.triage.verdict import Verdict
from console.bindings import Key
from console.fleet import Run
from console.screens.desk import Desk
from console.screens.dialogs import Notice, Question
from console.screens.orders import allowed, order
from console.screens.resume import check_resume
from console.screens.run import RunScreen
from console.screens.steering import SteeringScreen
from console.strings import _, plural
from console.widgets.paint import one_line

SAID = ("health", "family", "reason", "action")
GPU_KINDS = ("gpu.", "pcie.", "nvlink.", "perf.rank-slow")
"""Faults that stay with a card: the next run on it has them too."""


CHECK_S = 60.0
FAMILIES = (
    ("rdma.", ("rdma", "network")),
    ("net.", ("network",)),
    ("gloo.", ("network",)),
    ("nvlink.", ("nvlink",)),
    ("nvswitch.", ("nvlink",)),
    ("pcie.", ("pcie",)),
    ("gpu.", ("gpus", "pcie", "nvlink")),
    ("perf.rank-slow", ("gpus", "pcie")),
    ("host.disk", ("disk",)),
    ("limits.", ("limits",)),
    ("app.host-oom", ("memory",)),
)
"""Which checks of a node look at the part that a kind of fault blames; see agent/checks."""


def families_of(kind: str) -> tuple[str, ...]:
    return next((families for start, families in FAMILIES if kind.startswith(start)), ())


def told(checks: object) -> str:
    """In words: what is not good, or that all is."""
    known = [one for one in checks if isinstance(one, dict)] if isinstance(checks, list) else []
    bad = [one for one in known if one.get("health") != "good"]
    if not bad:
        return plural("{n} check: it is good now", "{n} checks: all are good now", len(known))
    words = _("{health}: {family}, {reason}. {action}")
    return " · ".join(one_line(words.format(**{name: one.get(name) or "" for name in SAID})) for one in bad)


def blamed(verdict: Verdict, run: Run, gpus: dict[str, wire.Gpu]) -> tuple[str, ...]:
    """UUIDs of the run's cards that a verdict holds to be at fault: by rank, whose card is known, else by index."""
    found: list[str] = []
    for fault in verdict.faults:
        if not fault.kind.startswith(GPU_KINDS):
            continue
        uuids = run.state.gpu_uuids
        by_rank = [uuids[rank] for rank in fault.culprit.ranks if rank < len(uuids)]
        by_index = [gpu.uuid for gpu in gpus.values() if gpu.index in fault.culprit.gpus and gpu.uuid in uuids]
        found += by_rank or by_index
    return tuple(dict.fromkeys(found))


class RemedyScreen(SteeringScreen):
    """`found`: the verdict, once there is one."""

    def __init__(self, desk: Desk, node: str, run: str) -> None:
        super().__init__(desk)
        self.node, self.run_id = node, run
        self.found: Verdict | None = None

    def subject(self) -> Run | None:
        return self.desk.run(self.node, self.run_id)

    def useful(self, key: Key) -> bool:
        if key.id == "triage.without":
            run = self.subject()
            return run is not None and not run.live and bool(self.cards())
        return bool(self.families()) if key.id == "triage.check" else super().useful(key)

    def cards(self) -> tuple[str, ...]:
        run, node = self.subject(), self.desk.node(self.node)
        if self.found is None or run is None or node is None:
            return ()
        return blamed(self.found, run, node.state.gpus)

    def families(self) -> tuple[str, ...]:
        kinds = [fault.kind for fault in self.found.faults] if self.found is not None else []
        return tuple(dict.fromkeys(one for kind in kinds for one in families_of(kind)))

    def action_copy(self) -> None:
        if self.found is None or not self.found.faults:
            self.app.notify(_("There is no remedy to copy."), markup=False)
            return
        self.app.copy_to_clipboard(self.found.faults[0].remedy)
        self.app.notify(_("The remedy was sent to the clipboard of this terminal."), markup=False)

    def action_resume_without(self) -> None:
        """Go on, on the cards that the verdict does not blame."""
        run = self.subject()
        if run is None or not allowed(self, run, live=False):
            return
        cards = self.cards()
        if not cards:
            text = _("The verdict blames no card of this run, so there is none to leave out. R goes on as it was.")
            self.app.notify(text, markup=False)
            return
        check_resume(self, run, self.start(), without=cards)

    def action_check_again(self) -> None:
        """Ask the node how the blamed part is by now."""
        families = self.families()
        if not families:
            self.app.notify(_("There is no check for what this verdict blames."), severity="warning", markup=False)
            return
        label = _("checking {what} on {node}").format(what=", ".join(families), node=self.node)
        body = wire.RunChecks(families, console_unix=self.desk.wall())
        self.desk.ask(label, self.node, body, CHECK_S, self.checked)
        self.tick()

    def checked(self, reply: wire.Reply) -> None:
        title = _("The blamed part of {node} now").format(node=self.node)
        if not reply.ok:
            self.app.push_screen(Notice(title, reply.error, reply.hint))
            return
        between = _("This looks at {node} alone; the way to other nodes is not measured in this version.")
        self.app.push_screen(Notice(title, told(reply.result.get("checks")), between.format(node=self.node)))

    def action_cordon(self) -> None:
        run = self.subject()
        if run is None or not allowed(self, run):
            return
        words = [
            _("Keep new runs off {node}?").format(node=self.node),
            _("Runs that are live go on. `tunedeck uncordon {node}` takes it back.").format(node=self.node),
        ]
        reason = self.found.faults[0].title if self.found is not None and self.found.faults else ""
        body = wire.Cordon(True, reason or f"triage of {self.run_id}")
        label = _("cordoning {node}").format(node=self.node)
        said = _("{node} takes no new runs").format(node=self.node)

        def cordon(yes: bool | None) -> None:
            if yes:
                order(self, run, label, body, lambda _result: self.app.notify(said, markup=False))

        self.app.push_screen(Question(_("Cordon a node"), words, _("Cordon it")), cordon)

    def action_roll_back(self) -> None:
        run = self.subject()
        if run is not None and allowed(self, run, live=True):
            self.app.push_screen(RunScreen(self.desk, self.node, self.run_id, rolling_back=True))
