"""What is written to a terminal for its desktop: one whole sequence, whatever the text holds."""

from __future__ import annotations

from console.desktop import CHARACTERS, notification


def test_the_text_cannot_end_or_begin_another_sequence() -> None:
    said = notification("gpu01: \x1b]52;c;aGk=\x07 9;4;1\n GPU 3\x9c lost", {})
    assert said == "\x1b]9;tunedeck: gpu01: 9;4;1 GPU 3 lost\x07"


def test_tmux_is_asked_to_pass_it_on() -> None:
    said = notification("gpu01: lost", {"TMUX": "/tmp/tmux-0/default,1,0"})
    assert said == "\x1bPtmux;\x1b\x1b]9;tunedeck: gpu01: lost\x07\x1b\\"


def test_it_is_bounded() -> None:
    assert len(notification("x" * 10_000, {})) < CHARACTERS + 30
