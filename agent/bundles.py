"""The carried copies of this agent on the node: those that nothing uses any more are removed.

A home may be shared by many machines, and each sees only its own processes. So whoever runs out of a bundle marks it
from time to time, and only what nobody has marked for a month goes. A run has its own copy of the code, but its keeper
runs out of a bundle.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import time
from pathlib import Path

from agent.reexec import ROOT

LOG = logging.getLogger("agent")
UNUSED_S = 30 * 86400.0
MARK = "used"
"""A file in the bundle; it is not in its MANIFEST, so it does not make the bundle another one."""


def in_use() -> set[Path]:
    """Bundles out of which a process of this machine runs: this one, other daemons, keepers."""
    found = {ROOT}  # resolved, as the others must be: a home may be reached by a link
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):  # it has ended, or belongs to somebody else
                words = (entry / "cmdline").read_bytes().split(b"\0")
                found |= {Path(os.fsdecode(word)).parent.resolve() for word in words if word.endswith(b"/enter.py")}
    return found


def tend(home: Path, now_unix: float | None = None) -> list[str]:
    """Mark the bundles in use, remove those unused for long; returns their names. Raises OSError."""
    folder, now = home / "bundles", time.time() if now_unix is None else now_unix
    if not folder.is_dir():
        return []
    used = in_use()
    gone = []
    for bundle in folder.iterdir():
        if bundle.resolve() in used:
            (bundle / MARK).touch(mode=0o600)
        elif now - last_used(bundle) > UNUSED_S:
            doomed = bundle.with_name(f".{bundle.name.lstrip('.')}.{os.uname().nodename}.{os.getpid()}.old")
            bundle.rename(doomed)  # as a whole: nobody may find half of it
            shutil.rmtree(doomed)
            gone.append(bundle.name)
    if gone:
        LOG.info("removed bundles that nothing has used for %d days: %s", UNUSED_S // 86400, " ".join(gone))
    return gone


def last_used(bundle: Path) -> float:
    """Unix time of its last mark, or of when it came."""
    times = [bundle.stat().st_mtime]
    with contextlib.suppress(FileNotFoundError):
        times.append((bundle / MARK).stat().st_mtime)
    return max(times)
