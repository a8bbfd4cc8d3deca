"""A framed part of a screen. Titles come from nodes and users, so they are never read as markup."""

from __future__ import annotations

from textual.containers import Vertical
from textual.content import Content
from textual.widget import Widget


def entitle(widget: Widget, title: str | Content, subtitle: str | Content = "") -> None:
    """Set a frame's titles; the frame is drawn again only if one of them differs."""
    for name, wanted in (("border_title", title), ("border_subtitle", subtitle)):
        content = Content(wanted) if isinstance(wanted, str) else wanted
        if getattr(widget, name) != (content.markup if content else None):
            setattr(widget, name, content or None)


class Panel(Vertical):
    def __init__(self, title: str = "", *, id: str | None = None, classes: str = "") -> None:
        super().__init__(id=id, classes=f"panel {classes}".strip())
        entitle(self, title)
