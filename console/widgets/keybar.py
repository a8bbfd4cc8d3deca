"""The line of keys at the foot, taken from the table of bindings; every key can be clicked too."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual import events

from console.bindings import Key, carried
from console.widgets.lines import Lines
from console.widgets.paint import Line, Span, cells


class KeyBar(Lines):
    def __init__(self, places: tuple[str, ...], useful: Callable[[Key], bool], *, id: str | None = None) -> None:
        super().__init__(self.keys_line, id=id, focus=False)
        self.places, self.useful = places, useful
        self.spots: list[tuple[int, int, Key]] = []

    def keys_line(self, width: int, height: int) -> Sequence[Line]:  # noqa: ARG002
        """As many keys as fit; help and quit always."""
        shown = [key for key in carried("table", *self.places) if key.footer and self.works(key)]
        always = [key for key in shown if key.id in ("help", "quit")]
        others = [key for key in shown if key not in always]
        room = width - sum(cells(spell(key)) for key in always)
        chosen: list[Key] = []
        for key in others:
            room -= cells(spell(key))
            if room < 0:
                break
            chosen.append(key)
        return [self.placed([*chosen, *always])]

    def works(self, key: Key) -> bool:
        """Whether the key does anything here and now."""
        if key.id == "open":
            return bool(self.screen.query("Table"))
        if not self.useful(key):
            return False
        return key.id != "back" or len(self.app.screen_stack) > 1 or bool(self.screen.query("#filter").filter(".-open"))

    def placed(self, keys: list[Key]) -> Line:
        self.spots, spans, x = [], [], 0
        for key in keys:
            spelled = spell(key)
            self.spots.append((x, x + cells(spelled), key))
            x += cells(spelled)
            spans += list[Span](spelled)
        return tuple(spans)

    def on_click(self, event: events.Click) -> None:
        for start, end, key in self.spots:
            if start <= event.x < end:
                self.app.simulate_key(key.keys.split(",")[0])


def spell(key: Key) -> Line:
    return ((f" {key.shown}", "key"), (f" {key.description} ", "dim"))
