"""A pane that stays at its end until the user scrolls up, and again once the user goes back to the end."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events

from console.widgets.lines import Lines
from console.widgets.paint import Line


class LogPane(Lines):
    following = True

    def show(self, lines: Sequence[Line]) -> None:
        super().show(lines)
        self.keep_end()

    def keep_end(self) -> None:
        if self.following:
            self.scroll_end(animate=False)

    def toggle(self) -> None:
        self.following = not self.following
        self.keep_end()

    def action_scroll_up(self) -> None:
        self.following = False
        super().action_scroll_up()

    def action_page_up(self) -> None:
        self.following = False
        super().action_page_up()

    def action_scroll_home(self) -> None:
        self.following = False
        super().action_scroll_home()

    def action_scroll_end(self) -> None:
        self.following = True
        self.keep_end()

    def on_mouse_scroll_up(self, _event: events.MouseScrollUp) -> None:
        self.following = False
