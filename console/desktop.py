"""A word to the terminal's own desktop: OSC 9, known to iTerm2, WezTerm, kitty, foot, ghostty, Windows Terminal."""

from __future__ import annotations

from collections.abc import Mapping

from agent.wire import clean

CHARACTERS = 200


def notification(text: str, environment: Mapping[str, str]) -> str:
    """What is to be written. Terminals that do not know it show nothing; tmux passes it on where that is allowed.

    In Windows Terminal and ConEmu "9;" and a digit is another order, so a text never begins with one.
    """
    said = " ".join(clean(text).split())[:CHARACTERS]
    plain = f"\x1b]9;tunedeck: {said}\x07"
    if not environment.get("TMUX"):
        return plain
    return f"\x1bPtmux;{plain.replace(chr(27), chr(27) * 2)}\x1b\\"
