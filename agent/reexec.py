"""How the agent starts itself again: the same code, from the same folder, whatever the working directory holds."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENTER = ROOT / "enter.py"
RUN_MARK = "TUNEDECK_RUN"
"""In the environment of every process of a run, and of no other."""


def command(*arguments: str) -> list[str]:
    """The command line of a sub-command of this very agent."""
    if ENTER.is_file():
        return [sys.executable, str(ENTER), *arguments]
    code = f"import sys; sys.path[0] = {str(ROOT)!r}; from agent.__main__ import main; sys.exit(main())"
    return [sys.executable, "-c", code, *arguments]


def environment() -> dict[str, str]:
    """An agent started from inside a run must not look like a part of it: it would be killed along with the run."""
    return {key: value for key, value in os.environ.items() if key != RUN_MARK}
