"""The editor of a run spec. The line with the mistake is marked."""

from __future__ import annotations

from rich.style import Style
from rich.text import Text
from textual.widgets import TextArea


class SpecEditor(TextArea):
    def __init__(self, text: str, *, id: str | None = None) -> None:
        super().__init__(text, id=id, show_line_numbers=True, soft_wrap=False, tab_behavior="focus")
        self.wrong_line = 0
        """1-based, 0 for none"""

    def mark(self, line: int) -> None:
        if line != self.wrong_line:
            self.wrong_line = line
            self.clear_painted()

    def clear_painted(self) -> None:
        """Lines are cached by what TextArea knows of; the mark is not among it."""
        self._line_cache.clear()
        self.refresh()

    def get_line(self, line_index: int) -> Text:
        text = super().get_line(line_index)
        if line_index + 1 == self.wrong_line:
            text.stylize(Style(underline=True, bold=True))
        return text
