"""One thing to choose, with its name in the frame."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.widgets import Input, Select

from console.widgets.panel import Panel


class Choice(Panel):
    def __init__(self, label: str, widget: Select[str] | Input) -> None:
        super().__init__(label, classes="choice")
        self.widget = widget

    def compose(self) -> ComposeResult:
        yield self.widget
