"""Every key, once. Footer, help, palette and a user's keymap derive from this table."""

from __future__ import annotations

from dataclasses import dataclass

from textual.binding import Binding

from console.strings import _

EVERYWHERE = "app"


@dataclass(frozen=True, slots=True)
class Key:
    id: str
    """Stable name, what a keymap file refers to."""
    keys: str
    """Comma-separated, as Textual spells them."""
    action: str
    description: str
    tooltip: str
    screens: tuple[str, ...]
    """Screens and widgets that carry it; `app`: all of them."""
    footer: bool = True
    palette: bool = True

    @property
    def shown(self) -> str:
        """The first key as a person writes it."""
        return spelled(self.keys.split(",")[0])


def spelled(key: str) -> str:
    return _SPELLING.get(key, key)


_SPELLING = {
    "question_mark": "?",
    "slash": "/",
    "escape": "esc",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
    "pageup": "pgup",
    "pagedown": "pgdn",
}
_LISTS = ("fleet", "runs", "alerts")
_RUNS = ("run", "runs", "node")
_REMEDY = (*_RUNS, "triage")

TABLE: tuple[Key, ...] = (
    Key("open", "enter", "open", _("open"), _("Open what the cursor is on"), ("table",), palette=False),
    Key(
        "filter",
        "slash",
        "filter",
        _("filter"),
        _("Show only rows with these words; esc clears"),
        _LISTS,
    ),
    Key("alert.acknowledge", "a", "acknowledge", _("acknowledge"), _("Say that you look after it"), ("alerts",)),
    Key("alert.mute", "m", "mute", _("mute"), _("Quiet for 1 h; again for 8 h, 24 h, not at all"), ("alerts",)),
    Key(
        "link.answer",
        "a",
        "answer_link",
        _("answer"),
        _("Answer what a link asks: host key, password"),
        ("fleet", "node"),
    ),
    Key("node.window", "h", "window", _("history"), _("Charts over 1 h, 6 h, 24 h, 14 days"), ("node",)),
    Key("check", "c", "check", _("check"), _("Look whether this node is sound"), ("fleet", "node", "checks")),
    Key("check.all", "C", "check_all", _("check all"), _("Check every node that answers"), ("checks",)),
    Key("run.log", "l", "log", _("log"), _("The whole log of this run, by rank"), ("run", "runs")),
    Key("run.rollback", "B", "roll_back", _("roll back"), _("Back to the chosen snapshot; asks first"), _REMEDY),
    Key("run.pause", "P", "pause_run", _("pause"), _("Save it, end it, free its GPUs; asks first"), _RUNS),
    Key("run.resume", "R", "resume", _("resume"), _("Let an ended run go on; checks and asks first"), _REMEDY),
    Key("run.fork", "F", "fork", _("fork"), _("A new run from that snapshot with a changed spec"), _RUNS, False),
    Key("run.export", "E", "export", _("export"), _("Bring the result here, compared and verified"), _RUNS),
    Key("run.triage", "t", "triage", _("triage"), _("Why it died or stalls; its node is asked"), _REMEDY),
    Key("triage.save", "w", "save", _("save"), _("Save the evidence as one file, secrets left out"), ("triage",)),
    Key("triage.copy", "y", "copy", _("copy"), _("Copy the remedy to the clipboard"), ("triage",)),
    Key("triage.without", "W", "resume_without", _("without it"), _("Go on without the blamed GPU"), ("triage",)),
    Key("triage.check", "c", "check_again", _("check"), _("Look again at the part that is blamed"), ("triage",)),
    Key("triage.cordon", "C", "cordon", _("cordon"), _("Keep new runs off this node; asks first"), ("triage",)),
    Key("run.kill", "X", "kill", _("kill"), _("Stop this run; asks first"), _RUNS),
    Key("run.snapshot", "S", "snapshot", _("snapshot"), _("Take a snapshot now"), ("run",)),
    Key("snapshot.pin", "space", "pin", _("pin"), _("Pin the snapshot at the cursor, or unpin it"), ("run",)),
    Key("snapshot.verify", "v", "verify", _("verify"), _("Read every byte of its snapshots and compare"), ("run",)),
    Key(
        "log.previous",
        "left_square_bracket",
        "rank(-1)",
        _("rank"),
        _("Log of the rank before, or of the launcher"),
        ("log", "run"),
        footer=False,
    ),
    Key("log.next", "right_square_bracket", "rank(1)", _("rank"), _("Log of the next rank"), ("log", "run")),
    Key("log.follow", "f", "follow", _("follow"), _("Follow the end of the log, or stop following"), ("log",)),
    Key("new.launch", "ctrl+s", "launch", _("launch"), _("Start this run on the chosen node"), ("new",)),
    Key("new.editor", "ctrl+e", "edit", _("edit spec"), _("Put the cursor into the spec"), ("new",)),
    Key("plan.less", "left,minus", "turn(-1)", _("less"), _("Turn this knob down"), ("knobs",), palette=False),
    Key("plan.more", "right,plus", "turn(1)", _("more"), _("Turn this knob up"), ("knobs",), palette=False),
    Key("plan.fit", "f", "fit", _("make it fit"), _("The least harmful changes with which it fits"), ("plan",)),
    Key("plan.claim", "a", "claim", _("claim"), _("Hold a seller's claim against arithmetic"), ("plan",)),
    Key("back", "escape", "back", _("back"), _("Back, or clear the filter; never quits"), ("screen",)),
    Key("fleet", "1", "section('fleet')", _("fleet"), _("All nodes and their GPUs"), (EVERYWHERE,)),
    Key("runs", "2", "section('runs')", _("runs"), _("All runs, live and ended"), (EVERYWHERE,)),
    Key("checks", "3", "section('checks')", _("checks"), _("Whether nodes are sound"), (EVERYWHERE,)),
    Key("alerts", "4", "section('alerts')", _("alerts"), _("What fires on all nodes"), (EVERYWHERE,)),
    Key("plan", "5", "section('plan')", _("plan"), _("What fits, on which cards, and how long"), (EVERYWHERE,)),
    Key("costs", "6", "absent('Costs')", _("costs"), _("Not in this version"), (EVERYWHERE,), False, False),
    Key("new", "n", "new_run", _("new run"), _("Fine-tune a model on one of the nodes"), (EVERYWHERE,)),
    Key("pause", "p", "pause", _("hold"), _("Hold the screen still; nodes and runs go on"), (EVERYWHERE,)),
    Key("palette", "ctrl+p", "command_palette", _("palette"), _("Every action, node and run by name"), (EVERYWHERE,)),
    Key("theme", "T", "theme", _("theme"), _("Dark or light"), (EVERYWHERE,), footer=False),
    Key("help", "question_mark", "help", _("help"), _("The keys of this screen"), (EVERYWHERE,)),
    Key("quit", "q,ctrl+q", "quit", _("quit"), _("Leave; runs go on, except the demo's"), (EVERYWHERE,)),
    Key("up", "up,k", "move(-1)", _("up"), _("One row up"), ("table",), False, False),
    Key("down", "down,j", "move(1)", _("down"), _("One row down"), ("table",), False, False),
    Key("page.up", "pageup", "page(-1)", _("page up"), _("One page up"), ("table",), False, False),
    Key("page.down", "pagedown", "page(1)", _("page down"), _("One page down"), ("table",), False, False),
    Key("first", "g,home", "edge(-1)", _("first"), _("To the first row"), ("table",), False, False),
    Key("last", "G,end", "edge(1)", _("last"), _("To the last row"), ("table",), False, False),
    Key("scroll.up", "up,k", "scroll_up", _("up"), _("Scroll up"), ("lines",), False, False),
    Key("scroll.down", "down,j", "scroll_down", _("down"), _("Scroll down"), ("lines",), False, False),
    Key("scroll.page.up", "pageup", "page_up", _("page up"), _("One page up"), ("lines",), False, False),
    Key("scroll.page.down", "pagedown", "page_down", _("page down"), _("One page down"), ("lines",), False, False),
    Key("scroll.first", "g,home", "scroll_home", _("top"), _("To the top"), ("lines",), False, False),
    Key("scroll.last", "G,end", "scroll_end", _("end"), _("To the end"), ("lines",), False, False),
    Key("pane", "tab", "app.focus_next", _("pane"), _("To the next pane"), ("screen",), footer=False, palette=False),
    Key(
        "answer.left", "left", "app.focus_previous", _("other"), _("To the other answer"), ("question",), palette=False
    ),
    Key("answer.right", "right", "app.focus_next", _("other"), _("To the other answer"), ("question",), palette=False),
    Key("yes", "y", "answer(True)", _("yes"), _("Do it"), ("question",), palette=False),
    Key("no", "n,escape,q", "answer(False)", _("no"), _("Leave everything as it is"), ("question",), palette=False),
    Key("words.up", "up", "scroll_words(-1)", _("up"), _("Text one line up"), ("question",), False, False),
    Key("words.down", "down", "scroll_words(1)", _("down"), _("Text one line down"), ("question",), False, False),
    Key("typed.leave", "escape", "dismiss", _("close"), _("Leave the node as it is"), ("typed",), palette=False),
    Key("close", "escape,q,question_mark", "dismiss", _("close"), _("Close"), ("notice",), palette=False),
)


def bindings(*places: str) -> list[Binding | tuple[str, str] | tuple[str, str, str]]:
    """Textual's bindings of a screen or widget."""
    return [
        Binding(key.keys, key.action, key.description, show=key.footer, tooltip=key.tooltip, id=key.id)
        for key in TABLE
        if set(places) & set(key.screens)
    ]


def carried(*places: str) -> list[Key]:
    """The keys that work at these places, nearest first; a key taken nearer hides the one further out."""
    found: list[Key] = []
    taken: set[str] = set()
    for place in places:
        here = [key for key in TABLE if place in key.screens and not taken & set(key.keys.split(","))]
        taken |= {one for key in here for one in key.keys.split(",")}
        found += here
    return found
