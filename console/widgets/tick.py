"""A box to tick. Textual's own differs only by colour."""

from __future__ import annotations

from textual.widgets import Checkbox


class Tick(Checkbox):
    BUTTON_LEFT, BUTTON_INNER, BUTTON_RIGHT = "[", " ", "]"

    def watch_value(self) -> None:
        self.BUTTON_INNER = "x" if self.value else " "
        super().watch_value()
        self.refresh()
