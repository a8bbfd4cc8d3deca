"""A tmux pane as a picture: `python -m tests.picture TARGET OUT.svg|OUT.png [TMUX-SOCKET]`.

This is how the README's pictures are made and how a changed screen is looked at.
"""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text


def capture(target: str, socket: str | None = None) -> str:
    """The pane with its colours, as ANSI text."""
    argv = ["tmux", *(["-S", socket] if socket else []), "capture-pane", "-e", "-p", "-t", target]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def svg(ansi: str, title: str) -> str:
    lines = [Text.from_ansi(line, no_wrap=True) for line in ansi.rstrip("\n").split("\n")]
    width = max(line.cell_len for line in lines)
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for line in lines:
        console.print(line, overflow="crop")
    # the font rich names is fetched from the web, which a converter does not do
    return console.export_svg(title=title).replace("Fira Code", "DejaVu Sans Mono")


def main(argv: list[str]) -> None:
    target, out = argv[0], Path(argv[1])
    drawn = svg(capture(target, argv[2] if len(argv) > 2 else None), "tunedeck")
    if out.suffix == ".png":  # librsvg takes each character from a font that has it; braille needs that
        subprocess.run(["rsvg-convert", "-o", str(out)], input=drawn.encode(), check=True)
    else:
        out.write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
