"""A new run: on which node, from which spec. It is checked while it is written, and wholly by the node at launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.timer import Timer
from textual.widgets import Button, Input, Select, TextArea

import configs
from agent import wire
from console.bindings import bindings
from console.format import size
from console.screens.base import DeckScreen
from console.screens.desk import Desk, Draft
from console.screens.dialogs import Notice
from console.screens.force import forceable, offer_force
from console.screens.run import RunScreen
from console.strings import _, plural
from console.widgets.choice import Choice
from console.widgets.editor import SpecEditor
from console.widgets.lines import Lines
from console.widgets.paint import Line, wrapped
from console.widgets.panel import Panel, entitle
from jobs.spec import Spec, SpecError

LAUNCH_DEADLINE_S = 90.0
CHECK_AFTER_S = 0.2
FILE_LIMIT_BYTES = 256 * 1024


def templates() -> dict[str, Path]:
    """Shipped specs by file name."""
    return {path.name: path for path in sorted((configs.FOLDER / "specs").glob("*.yaml"))}


class NewRunScreen(DeckScreen):
    PLACE = "new"
    BINDINGS = bindings("new", "screen")

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        demo = desk.session.demo if desk.session is not None else None
        start = Draft(demo.node, demo.spec_text, "demo.yaml") if demo is not None else self.template_draft()
        self.draft = desk.draft or start
        self.problem: SpecError | None = None
        self.spec: Spec | None = None
        self.checking: Timer | None = None
        self.launching = False

    def template_draft(self) -> Draft:
        name, path = next(iter(templates().items()), ("spec.yaml", None))
        return Draft(None, path.read_text(encoding="utf-8") if path is not None else "", name)

    def content(self) -> ComposeResult:
        origin = self.draft.origin  # the snapshot lies on one node
        nodes = list(self.desk.fleet.nodes) if origin is None else [origin.node]
        chosen = self.draft.node if self.draft.node in nodes else nodes[0] if len(nodes) == 1 else Select.NULL
        shipped = [(Text(name), name) for name in templates()]
        with Horizontal(id="choices"):
            node = Select([(Text(n), n) for n in nodes], prompt=_("which node?"), value=chosen, id="node", compact=True)
            yield Choice(_("Node"), node)
            yield Choice(_("Template"), Select(shipped, prompt=_("shipped specs"), id="template", compact=True))
            yield Choice(_("File"), Input(placeholder=_("or a path, enter reads it"), id="path", compact=True))
        with Panel(_("Spec"), id="spec-panel"):
            yield SpecEditor(self.draft.text, id="spec")
        with Horizontal(id="verdict-row"):
            yield Lines(self.verdict, id="verdict", focus=False)
            yield Button(_("Launch"), id="launch", variant="primary")

    def on_mount(self) -> None:
        self.check()
        super().on_mount()
        ready = self.spec is not None and self.node is not None
        self.query_one("#launch" if ready else "#spec" if self.node is not None else "#node").focus()

    def title_line(self) -> Line:
        origin = self.draft.origin
        if origin is None:
            return ((_("New run"), "title"),)
        where = _("  fork of {run} from {snapshot}").format(run=origin.run, snapshot=origin.snapshot)
        return ((_("New run"), "title"), (where, "strong"))

    @property
    def node(self) -> str | None:
        value = self.query_one("#node", Select).value
        return value if isinstance(value, str) else None

    @property
    def text(self) -> str:
        return self.query_one(SpecEditor).text

    def check(self) -> None:
        """Read the spec as the node would, except for the files it names."""
        try:
            self.spec, self.problem = Spec.parse(self.text, self.draft.name), None
        except SpecError as error:
            self.spec, self.problem = None, error
        self.query_one(SpecEditor).mark(self.problem.line if self.problem is not None else 0)
        self.query_one("#verdict", Lines).renew()
        self.query_one("#launch", Button).disabled = self.spec is None or self.launching

    def verdict(self, width: int, height: int) -> Sequence[Line]:
        if self.problem is not None:
            where = _("line {n}: ").format(n=self.problem.line) if self.problem.line else ""
            lines = wrapped(f"✕ {where}{self.problem.message}", width, "bad")
            return [*lines, *wrapped("→ " + self.problem.hint, width, "text")][:height]
        if self.launching:
            return [((_("⋯ starting; the node checks files and GPUs first"), "accent"),)]
        if self.spec is None:
            return []
        where = _(" on {node}").format(node=self.node) if self.node is not None else _("; choose a node")
        line: Line = ((_("✓ the spec is valid"), "ok"), (where, "text" if self.node is not None else "warn"))
        return [line, ((summary(self.spec), "dim"),), *self.room_on_node(width)][:height]

    def room_on_node(self, width: int) -> list[Line]:
        """What the chosen node has free, so that the choice is not blind."""
        node = self.desk.node(self.node)
        if node is None:
            return []
        if not node.live(self.desk.clock()):
            return wrapped(_("{node} is not heard at the moment").format(node=node.name), width, "warn")
        gpus = sorted(node.state.gpus.values(), key=lambda gpu: gpu.index)
        free = [size(gpu.memory_free_bytes) for gpu in gpus if gpu.memory_free_bytes is not None]
        text = _("free GPU memory: {sizes}").format(sizes=", ".join(free)) if free else _("no GPU figures from it")
        return wrapped(text, width, "dim")

    @on(TextArea.Changed, "#spec")
    def check_soon(self) -> None:
        if self.checking is not None:
            self.checking.stop()
        self.checking = self.set_timer(CHECK_AFTER_S, self.check)

    @on(Select.Changed, "#node")
    def show_room(self) -> None:
        self.query_one("#verdict", Lines).renew()

    @on(Select.Changed, "#template")
    def take_template(self, event: Select.Changed) -> None:
        if isinstance(event.value, str):
            self.take(event.value, templates()[event.value].read_text(encoding="utf-8"))

    @on(Input.Submitted, "#path")
    def take_file(self, event: Input.Submitted) -> None:
        """Read a spec from the operator's own disk."""
        path = Path(event.value.strip())
        try:
            path = path.expanduser()
            with path.open("rb") as stream:
                raw = stream.read(FILE_LIMIT_BYTES + 1)
            text = raw.decode("utf-8")
        except (OSError, RuntimeError, ValueError) as error:
            hint = _("Give the path of a YAML file on this machine.")
            self.app.push_screen(Notice(_("The file was not read"), f"{path}: {reason(error)}", hint))
            return
        if len(raw) > FILE_LIMIT_BYTES:
            hint = _("Give a YAML file with a run spec.")
            self.app.push_screen(
                Notice(_("The file was not read"), _("{p} is too long for a spec").format(p=path), hint)
            )
            return
        self.take(path.name, text)

    def take(self, name: str, text: str) -> None:
        self.draft = replace(self.draft, node=self.node, text=text, name=name)
        self.query_one(SpecEditor).load_text(text)
        entitle(self.query_one("#spec-panel"), _("Spec: {name}").format(name=name))
        self.check()

    @on(Button.Pressed, "#launch")
    def action_launch(self) -> None:
        self.check()
        node = self.desk.node(self.node)
        if self.launching:
            return
        if self.spec is None:
            self.app.notify(_("The spec has an error; it is shown below the text."), severity="warning", markup=False)
        elif node is None:
            self.app.notify(_("Choose a node first."), severity="warning", markup=False)
            self.query_one("#node").focus()
        elif node.read_only:
            self.app.notify(_("{n} is open read-only.").format(n=node.name), severity="warning", markup=False)
        else:
            self.launch(node.name, self.spec)

    def launch(self, node: str, spec: Spec, force: bool = False) -> None:
        self.launching = True
        label = _("starting {name} on {node}").format(name=spec.name, node=node)
        origin = self.draft.origin
        body: wire.Body = wire.Launch(self.text, self.draft.name, force)
        if origin is not None:
            body = wire.Resume(origin.run, origin.snapshot, fork=True, spec_text=self.text, force=force)
        self.desk.ask(label, node, body, LAUNCH_DEADLINE_S, lambda reply: self.launched(node, spec, reply))
        self.check()

    def launched(self, node: str, spec: Spec, reply: wire.Reply) -> None:
        """The node's answer: the run in front, or why there is none. The user may have left this screen meanwhile."""
        self.launching = False
        run = reply.result.get("run")
        if reply.ok and isinstance(run, str):
            self.desk.draft = None
            self.app.notify(_("{run} started on {node}").format(run=run, node=node), markup=False)
            if self.is_current:
                self.app.switch_screen(RunScreen(self.desk, node, run))
            return
        if self.is_attached:
            self.check()
        if self.app.screen is self and forceable(reply):
            first = _("Launch {name} on {node} anyway?").format(name=spec.name, node=node)
            offer_force(self, first, reply, lambda: self.launch(node, spec, force=True))
            return
        self.app.push_screen(Notice(_("Nothing was started on {node}").format(node=node), reply.error, reply.hint))

    def action_edit(self) -> None:
        self.query_one(SpecEditor).focus()

    def action_back(self) -> None:
        self.desk.draft = replace(self.draft, node=self.node, text=self.text)
        super().action_back()


def reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else _("not a UTF-8 text")


def summary(spec: Spec) -> str:
    """The spec in one line."""
    train = spec.train
    long = (
        plural("{n} step", "{n} steps", train.steps)
        if train.steps is not None
        else _("{n:g} epochs").format(n=train.epochs)
    )
    ranks = plural("{n} process", "{n} processes", spec.hardware.processes)
    return f"{spec.method} · {spec.model} · {spec.data.path} · {long} · {ranks}"
