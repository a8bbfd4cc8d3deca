"""Two themes of our own. Quiet grounds, one accent, and warning colours that stand apart in lightness too."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from rich.style import Style
from textual.theme import Theme

DARK = Theme(
    name="tunedeck-dark",
    primary="#7aa2d6",
    secondary="#8fb8a8",
    accent="#7fc8d8",
    success="#86c58b",
    warning="#e2b866",
    error="#ec7a75",
    foreground="#d3d9e2",
    background="#12161c",
    surface="#171c24",
    panel="#1d242e",
    dark=True,
    variables={
        "ink-dim": "#828d9c",
        "ink-faint": "#3a4553",
        "ink-strong": "#f3f6fa",
        "edge": "#2c3643",
        "edge-focus": "#5b7ea8",
        "cursor-ground": "#263443",
        "resting-ground": "#1c242e",
        "footer-background": "#12161c",
    },
)
LIGHT = Theme(
    name="tunedeck-light",
    primary="#2f5f9e",
    secondary="#3b7a63",
    accent="#0f6f86",
    success="#2b7a35",
    warning="#8f5b00",
    error="#b3261e",
    foreground="#26303b",
    background="#f7f8f6",
    surface="#f1f3f1",
    panel="#e8ebe8",
    dark=False,
    variables={
        "ink-dim": "#68737f",
        "ink-faint": "#c3cad0",
        "ink-strong": "#0b1117",
        "edge": "#cfd5d9",
        "edge-focus": "#6d95c6",
        "cursor-ground": "#d6e3f1",
        "resting-ground": "#e9edf0",
        "footer-background": "#f7f8f6",
    },
)

_ROLES = {
    "text": "foreground",
    "dim": "ink-dim",
    "strong": "ink-strong",
    "title": "primary",
    "accent": "accent",
    "ok": "success",
    "warn": "warning",
    "bad": "error",
    "track": "ink-faint",
    "dead": "ink-dim",
    "badge": "background",
    "key": "primary",
}
_BOLD = {"strong", "title", "bad", "badge", "key"}


@functools.lru_cache(maxsize=64)
def _style(role: str, colour: str, ground: str) -> Style:
    return Style(
        color=colour,
        bgcolor=ground if role == "badge" else None,
        bold=True if role in _BOLD else None,
        strike=True if role == "dead" else None,
    )


def style(role: str, variables: Mapping[str, str]) -> Style:
    """The style of a role of `paint.ROLES` in a theme, given the theme's variables.

    By hand and not by component classes: those cost a pass of the style sheet for every role of every pane.
    """
    return _style(role, variables.get(_ROLES[role], variables["foreground"])[:7], variables["warning"][:7])
