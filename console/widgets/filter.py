"""The line in which one types what a list shall show."""

from __future__ import annotations

from textual.widgets import Input

from console.strings import _


class Filter(Input):
    """Hidden until asked for. Words narrow the list; every word must occur."""

    def __init__(self) -> None:
        super().__init__(
            placeholder=_("words that a row must have; enter keeps, esc clears"), id="filter", compact=True
        )
        self.display = False

    @property
    def words(self) -> list[str]:
        return self.value.casefold().split()

    def passes(self, *texts: str) -> bool:
        everything = " ".join(texts).casefold()
        return all(word in everything for word in self.words)

    def open(self) -> None:
        self.display = True
        self.add_class("-open")
        self.focus()

    def shut(self) -> None:
        self.value = ""
        self.display = False
        self.remove_class("-open")
