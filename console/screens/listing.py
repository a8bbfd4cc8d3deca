"""A screen whose main thing is a list that can be filtered."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.widgets import Input

from console.screens.base import DeckScreen
from console.widgets.filter import Filter
from console.widgets.table import Table


class Listing(DeckScreen):
    def foot(self) -> ComposeResult:
        yield Filter()

    @property
    def filter(self) -> Filter:
        return self.query_one(Filter)

    def main_table(self) -> Table:
        return self.query(Table).first()

    def action_filter(self) -> None:
        self.filter.open()

    @on(Input.Changed, "#filter")
    def narrow(self) -> None:
        self.main_table().renew()

    @on(Input.Submitted, "#filter")
    def keep(self) -> None:
        if not self.filter.words:
            self.filter.shut()
        self.main_table().focus()

    def action_back(self) -> None:
        if self.filter.display:
            self.filter.shut()
            self.main_table().focus()
            self.main_table().renew()
        else:
            super().action_back()
