"""One table of keys: complete, without clashes, and every entry does something."""

from __future__ import annotations

import ast

from textual.binding import Binding
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widget import Widget

from console.app import TunedeckApp
from console.bindings import EVERYWHERE, TABLE, Key, bindings, carried
from console.screens.alerts import AlertsScreen
from console.screens.answering import Typed
from console.screens.base import DeckScreen
from console.screens.checks import ChecksScreen
from console.screens.dialogs import Notice, Question
from console.screens.export import AskExport
from console.screens.fleet import FleetScreen
from console.screens.log import LogScreen
from console.screens.new_run import NewRunScreen
from console.screens.node import NodeScreen
from console.screens.plan import Knobs, PlanScreen
from console.screens.quote import QuoteScreen
from console.screens.rollback import RollBack
from console.screens.run import RunScreen
from console.screens.runs import RunsScreen
from console.screens.triage import TriageScreen
from console.widgets.lines import Lines
from console.widgets.table import Table

SCREENS: tuple[type[DeckScreen], ...] = (
    FleetScreen,
    AlertsScreen,
    ChecksScreen,
    NodeScreen,
    RunsScreen,
    RunScreen,
    LogScreen,
    NewRunScreen,
    PlanScreen,
    TriageScreen,
    QuoteScreen,
)
PLACES: dict[str, tuple[type[DOMNode], ...]] = {
    "app": (TunedeckApp,),
    "screen": SCREENS,
    "question": (Question, RollBack, AskExport),
    "notice": (Notice,),
    "typed": (Typed,),
    "table": (Table,),
    "lines": (Lines,),
    "knobs": (Knobs,),
    **{screen.PLACE: (screen,) for screen in SCREENS},
}


def target(key: Key, owner: type[DOMNode]) -> tuple[type[DOMNode], str]:
    """The class and method an action lands on."""
    name = key.action.partition("(")[0]
    if name.startswith("app."):
        return TunedeckApp, name[4:]
    return owner, name


def test_every_key_has_a_place_and_an_action_there() -> None:
    for key in TABLE:
        assert key.screens, key.id
        for place in key.screens:
            for owner in PLACES[place]:
                found, name = target(key, owner)
                assert hasattr(found, f"action_{name}"), f"{key.id}: {found.__name__} has no action_{name}"


def test_ids_are_unique_and_texts_complete() -> None:
    assert len({key.id for key in TABLE}) == len(TABLE)
    assert all(key.description and key.tooltip for key in TABLE)


def test_no_key_is_bound_twice_in_one_place() -> None:
    for place in PLACES:
        keys = [one for key in TABLE if place in key.screens for one in key.keys.split(",")]
        assert len(keys) == len(set(keys)), place


def test_arguments_of_actions_are_literals() -> None:
    for key in TABLE:
        _name, bracket, rest = key.action.partition("(")
        if bracket:
            ast.literal_eval(f"({rest[:-1]},)")


def test_widgets_and_screens_take_their_keys_from_the_table() -> None:
    for place, owners in PLACES.items():
        wanted = {b.id for b in bindings(place) if isinstance(b, Binding)}
        for owner in owners:
            assert issubclass(owner, (Widget, Screen, TunedeckApp))
            assert wanted <= {b.id for b in owner.BINDINGS if isinstance(b, Binding)}, owner


def test_a_nearer_key_hides_the_one_further_out() -> None:
    shown = carried("question", EVERYWHERE)
    assert [key.id for key in shown if "q" in key.keys.split(",")] == ["no"]


def test_keys_of_the_product_are_there() -> None:
    spelled = {key.shown for key in TABLE}
    assert {"1", "2", "3", "4", "5", "6", "?", "ctrl+p", "/", "esc", "enter", "l", "n", "p", "q"} <= spelled
    assert {"B", "X", "R", "E", "space"} <= spelled
