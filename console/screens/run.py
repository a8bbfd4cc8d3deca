"""One run live: how far, how well, how fast; its charts, the end of its log and what happened to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual import on
from textual.app import ComposeResult
from textual.containers import Container, Horizontal

from agent import wire
from console.bindings import bindings
from console.fleet import History, LogTail, Run
from console.format import UNKNOWN, figure, tokens_s
from console.screens.branches import ORIGIN, Path, Traces, present, traces
from console.screens.describe import event_lines
from console.screens.desk import Desk
from console.screens.figures import run_figures
from console.screens.log import LogScreen, log_lines, next_rank, rank_name
from console.screens.orders import allowed, order
from console.screens.shelf import VERIFY_S, Shelf
from console.screens.steering import SteeringScreen
from console.screens.timeline import Timeline, explained
from console.strings import _, plural
from console.widgets.chart import Chart, Curve
from console.widgets.levels import run_phase
from console.widgets.lines import Lines
from console.widgets.paint import EMPTY, Line, one_line, wrapped
from console.widgets.panel import Panel, entitle


class RunScreen(SteeringScreen):
    PLACE = "run"
    BINDINGS = bindings("run", "screen")
    VERTICAL_BREAKPOINTS = [(0, "-low"), (36, "-tall")]  # noqa: RUF012

    def __init__(self, desk: Desk, node: str, run: str, rolling_back: bool = False) -> None:
        super().__init__(desk)
        self.rolling_back = rolling_back
        """Ask where to roll back to, as soon as the snapshots are known."""
        self.node, self.run_id = node, run
        self.rank: int | None = 0
        self.history: History | None = None
        self.log_tail: LogTail | None = None
        self.shelf = Shelf()

    def content(self) -> ComposeResult:
        yield Lines(self.figures, id="figures", focus=False)
        with Container(id="charts"):
            yield self.chart("loss", _("Loss"), figure, smooth=True)
            yield self.chart("tokens_per_s", _("Throughput"), tokens_s, from_zero=True)
            yield self.chart("learning_rate", _("Learning rate"), figure, from_zero=True)
            yield self.chart("grad_norm", _("Gradient norm"), figure)
        with Horizontal(id="below"):
            with Panel(id="tail-panel"):
                yield Lines(self.tail_lines, id="tail", focus=False)
            with Panel(_("Snapshots"), id="snapshots-panel"):
                yield Timeline(self.shelf, self.path, self.node_wall)
                yield Lines(self.snapshot_lines, id="snapshot", focus=False)
            with Panel(_("Events"), id="events-panel"):
                yield Lines(self.event_lines, id="events")

    def chart(
        self,
        name: str,
        title: str,
        show: Callable[[float | None], str],
        smooth: bool = False,
        from_zero: bool = False,
    ) -> Chart:
        def curve() -> Curve:
            state, stale = self.liveness()
            found = traces(self.history, name) if self.history is not None else Traces()
            return Curve(title, found.kept, state, show, smooth, from_zero, stale, found.left, found.turns)

        return Chart(curve, id=name)

    def path(self) -> Path:
        return present(self.history) if self.history is not None else ORIGIN

    def node_wall(self) -> float:
        """The node's clock in unix seconds: ages of its files are told by it."""
        node = self.desk.node(self.node)
        return self.desk.wall() + ((node.clock_offset_s if node is not None else None) or 0.0)

    def liveness(self) -> tuple[str, bool]:
        """What the charts are: live, or since when not; and whether to dim them."""
        run, node = self.run_here(), self.desk.node(self.node)
        if self.desk.paused:
            return _("paused"), False
        if run is not None and not run.live:
            return _("history"), False
        if node is None or not node.live(self.desk.clock()):
            return _("stale"), True
        if self.history is not None and not self.history.complete:
            return _("reading…"), False
        return _("live"), False

    def run_here(self) -> Run | None:
        return self.desk.run(self.node, self.run_id)

    def title_line(self) -> Line:
        run = self.run_here()
        name = one_line(run.state.name) or self.run_id if run is not None else self.run_id
        return ((_("Run"), "title"), (f"  {name}", "strong"), (_(" on {node}").format(node=self.node), "dim"))

    def on_mount(self) -> None:
        self.history = self.desk.follow(self.node, self.run_id)
        self.log_tail = self.desk.tail(self.node, self.run_id, self.rank)
        super().on_mount()
        self.query_one(Timeline).focus()

    def on_unmount(self) -> None:
        self.desk.unfollow(self.node, self.run_id)
        self.desk.untail(self.node, self.run_id, self.rank)

    def tick(self) -> None:
        if not self.desk.paused:
            self.shelf.turn(self.desk, self.run_here(), self.history)
        super().tick()
        entitle(self.query_one("#snapshots-panel"), self.snapshots_title())
        entitle(self.query_one("#tail-panel"), _("Log, {rank}").format(rank=rank_name(self.rank)))
        known = self.shelf.heard and self.history is not None and self.history.complete
        if self.rolling_back and known and self.app.screen is self:
            self.rolling_back = False
            self.action_roll_back()

    def figures(self, width: int, _height: int) -> Sequence[Line]:
        run, node = self.run_here(), self.desk.node(self.node)
        if run is None or node is None:
            return wrapped(_("{node} has not told of this run yet.").format(node=self.node), width, "dim")
        now, wall = self.desk.clock(), self.node_wall()
        last = self.history.steps[-1] if self.history is not None and self.history.steps else {}
        return [self.state_line(run), *run_figures(run, last, node, now, wall, width)]

    def state_line(self, run: Run) -> Line:
        state = run.state
        ranks = plural("{n} rank", "{n} ranks", state.world_size)
        facts = " · ".join(filter(None, (one_line(state.model), state.method, ranks, state.run)))
        detail = f"  {one_line(state.detail)}" if state.detail else ""
        died = state.reason in ("failed", "lost")
        role = "bad" if died else "text"
        why: Line = ((_("  t tells why"), "accent"),) if died or state.stalled_s is not None else EMPTY
        return (*run_phase(state), *why, (detail, role), (f"   {facts or UNKNOWN}", "dim"))

    def tail_lines(self, width: int, height: int) -> Sequence[Line]:
        tail = self.log_tail
        if tail is None or tail.offset is None:
            return [((_("reading…"), "dim"),)]
        texts = [*list(tail.lines)[-height:], *([tail.rest] if tail.rest else [])]
        return log_lines(texts, width)[-height:] or [((_("This log is empty."), "dim"),)]

    def event_lines(self, width: int, _height: int) -> Sequence[Line]:
        node = self.desk.node(self.node)
        events = [event for event in node.events if event.run == self.run_id] if node is not None else []
        lines = [line for event in reversed(events) for line in event_lines(event, width)]
        return lines or [((_("Nothing yet."), "dim"),)]

    def action_rank(self, by: int) -> None:
        wanted = next_rank(self.rank, self.log_tail.ranks if self.log_tail is not None else (), by)
        self.desk.untail(self.node, self.run_id, self.rank)
        self.rank = wanted
        self.log_tail = self.desk.tail(self.node, self.run_id, wanted)
        self.tick()

    def action_log(self) -> None:
        self.app.push_screen(LogScreen(self.desk, self.node, self.run_id, self.rank))

    def subject(self) -> Run | None:
        return self.run_here()

    def start(self) -> str | None:
        timeline = self.query_one(Timeline)
        return timeline.cursor if timeline.touched else None

    def snapshots_title(self) -> str:
        shelf = self.shelf
        n = len(shelf.snapshots)
        return _("Snapshots, verifying…") if shelf.verifying else _("Snapshots") + (f" ({n})" if n else "")

    def snapshot_lines(self, width: int, _height: int) -> Sequence[Line]:
        return explained(self.shelf, self.query_one(Timeline).cursor, self.path(), width)

    @on(Timeline.Moved)
    def explain(self) -> None:
        self.query_one("#snapshot", Lines).renew()

    @on(Timeline.Chosen)
    def go_there(self) -> None:
        run, timeline = self.run_here(), self.query_one(Timeline)
        timeline.touched = True
        if run is not None and run.live:
            self.action_roll_back()
        else:
            self.action_resume()

    def action_back(self) -> None:
        """First back to the newest snapshot, then off the screen."""
        timeline = self.query_one(Timeline)
        if timeline.touched:
            timeline.let_go()
        else:
            super().action_back()

    def action_roll_back(self) -> None:
        from console.screens.rollback import ask_to_roll_back

        run = self.run_here()
        if run is not None and self.history is not None and allowed(self, run, live=True):
            ask_to_roll_back(self, run, self.shelf, self.history, self.start())

    def action_pin(self) -> None:
        """Pin the snapshot under the cursor, or let it go."""
        run, one = self.run_here(), self.shelf.named(self.query_one(Timeline).cursor)
        if one is None:
            self.app.notify(_("There is no snapshot under the cursor."), markup=False)
        elif run is not None and allowed(self, run):
            label = _("unpinning {name}") if one.pinned else _("pinning {name}")
            body = wire.Pin(run.state.run, one.name, not one.pinned)
            order(self, run, label.format(name=one.name), body, lambda _result: self.shelf.again())

    def action_verify(self) -> None:
        """Every byte of every snapshot read and compared with its SHA-256, by the node."""
        run = self.run_here()
        if run is not None and not self.shelf.verifying and self.desk.session is not None:
            self.shelf.verifying = True
            label = _("verifying snapshots of {name}").format(name=run.state.name or run.state.run)
            self.desk.ask(label, run.node, wire.ListSnapshots(run.state.run, True), VERIFY_S, self.verified)

    def verified(self, reply: wire.Reply) -> None:
        self.shelf.verifying = False
        self.shelf.take(reply)
        bad = len(self.shelf.refused)
        said = (
            plural("{n} snapshot is damaged", "{n} snapshots are damaged", bad)
            if bad
            else _("every byte is as it was written")
        )
        text = self.shelf.trouble or said
        self.app.notify(text, severity="warning" if bad or self.shelf.trouble else "information", markup=False)
