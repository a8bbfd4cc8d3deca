"""A C library that is slightly off, for what cannot be done to a machine that others use: its clock, its quotas."""

from __future__ import annotations

import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")


def build(folder: Path) -> Path:
    """What to preload; see the source for what it does."""
    library = folder / "odd.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE)], check=True)
    return library
