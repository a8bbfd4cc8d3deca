"""What the palette offers: every action that works now, every node, every run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from console.bindings import EVERYWHERE, carried
from console.screens.base import DeckScreen
from console.screens.node import NodeScreen
from console.screens.run import RunScreen
from console.strings import _

Offer = tuple[str, str, Callable[[], Any]]
"""Name, explanation, what it does"""


class Palette(Provider):
    def offers(self) -> Iterator[Offer]:
        screen = self.screen
        if not isinstance(screen, DeckScreen):
            return
        for key in carried(screen.PLACE, "screen", EVERYWHERE):
            if key.palette:
                place = self.app if EVERYWHERE in key.screens else screen
                yield f"{key.description}  ({key.shown})", key.tooltip, partial(self.app.run_action, key.action, place)
        for name in screen.desk.fleet.nodes:
            yield _("node {name}").format(name=name), _("Open this node"), partial(self.open_node, screen, name)
        for run in screen.desk.fleet.runs():
            text = _("run {run} on {node}").format(run=run.state.run, node=run.node)
            yield text, _("Open this run"), partial(self.open_run, screen, run.node, run.state.run)

    def open_node(self, screen: DeckScreen, name: str) -> None:
        self.app.push_screen(NodeScreen(screen.desk, name))

    def open_run(self, screen: DeckScreen, node: str, run: str) -> None:
        self.app.push_screen(RunScreen(screen.desk, node, run))

    async def discover(self) -> Hits:
        for text, explanation, act in self.offers():
            yield DiscoveryHit(Content(text), act, text, explanation)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for text, explanation, act in self.offers():
            score = matcher.match(text)
            if score > 0:
                yield Hit(score, Content(text), act, text, explanation)
