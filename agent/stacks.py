"""The stacks of a process that does not answer itself: py-spy, where somebody has installed it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

SECONDS = 15.0
MOST_BYTES = 1 << 18


def program(python: str = "") -> str | None:
    """py-spy beside the run's interpreter, else on PATH."""
    beside = Path(python).parent / "py-spy" if python else None
    if beside is not None and os.access(beside, os.X_OK):
        return str(beside)
    return shutil.which("py-spy")


def dump(pid: int, python: str = "") -> str:
    """The stacks as text, or one line that says why there are none."""
    found = program(python)
    if found is None:
        return "no stacks: py-spy is installed neither beside the run's interpreter nor on PATH\n"
    # --nonblocking: a process that was stopped would otherwise be waited for
    command = [found, "dump", "--nonblocking", "--full-filenames", "--pid", f"{pid:d}"]
    try:
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"no stacks: py-spy did not end within {SECONDS:.0f} s\n"
    except OSError as error:
        return f"no stacks: py-spy cannot be run ({error.strerror})\n"
    if not done.stdout.strip():
        return f"no stacks: {done.stderr.decode('utf-8', 'replace').strip()[:400] or 'py-spy said nothing'}\n"
    return done.stdout[:MOST_BYTES].decode("utf-8", "replace")
