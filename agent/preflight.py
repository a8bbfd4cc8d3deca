"""What a resume would be like, found out without loading torch: exact, inexact and why, or the weights only."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent import interpreters
from agent.interpreters import Interpreter
from agent.reexec import environment
from jobs.snapshot import Snapshot

EXACT, INEXACT, WEIGHTS_ONLY, UNKNOWN = "exact", "inexact", "weights-only", "unknown"
REMEMBERED_S = 30.0
"""A list of snapshots is asked for again and again; packages are not replaced that often."""
PACKAGES = ("torch", "transformers", "peft", "accelerate", "numpy")

# the same names and values as the job notes in its manifests, from the packages' metadata: nothing is imported
QUESTION = """
import json, os, platform, sys
from importlib.metadata import PackageNotFoundError, version
found = {"python": platform.python_version(), "machine": platform.machine(), "os": os.name}
for name in sys.argv[1:]:
    try:
        found[name] = version(name)
    except PackageNotFoundError:
        found[name] = None
print(json.dumps(found))
"""


@dataclass(frozen=True, slots=True)
class Badge:
    """`label`: exact | inexact | weights-only | unknown. `open`: names nobody can compare before torch is loaded."""

    label: str
    reasons: tuple[str, ...] = ()
    open: tuple[str, ...] = ()

    @property
    def why(self) -> str:
        later = f"compared only when it starts: {', '.join(self.open)}" if self.open else ""
        return "; ".join(part for part in (*self.reasons, later) if part)


@dataclass(slots=True)
class Versions:
    """Interpreters of this node and what is installed for them, remembered for a little while."""

    known: dict[str, tuple[float, Interpreter | None, dict[str, Any] | None]] = field(default_factory=dict)

    def of(self, path: str) -> tuple[Interpreter | None, dict[str, Any] | None]:
        """The interpreter, None when it cannot train; and the answer to the question above, None when there is none."""
        at, found, installed = self.known.get(path, (-REMEMBERED_S, None, None))
        if time.monotonic() - at > REMEMBERED_S:
            found, _why = interpreters.examine(path)
            installed = None if found is None else ask(path)
            self.known[path] = (time.monotonic(), found, installed)
        return found, installed


def ask(path: str) -> dict[str, Any] | None:
    try:
        done = subprocess.run(
            [path, "-c", QUESTION, *PACKAGES],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=interpreters.DEADLINE_S,
            env=environment(),
            cwd="/",
            check=False,
        )
        value = json.loads(done.stdout.strip().rpartition(b"\n")[2])
    except (subprocess.TimeoutExpired, OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def surroundings(
    python: Interpreter,
    installed: Mapping[str, Any],
    ranks: int,
    gpu_names: Sequence[str] | None,
    variables: Mapping[str, str],
) -> dict[str, Any]:
    """What a training would run on, as far as it is known. `gpu_names`: of its GPUs; None when it has none."""
    found = {**installed, "ranks": ranks, "device": "cpu" if gpu_names is None else "cuda"}
    if gpu_names is None:
        threads = variables.get("OMP_NUM_THREADS", "")
        return found | ({"threads": int(threads)} if threads.isdecimal() else {})
    return found | {"cuda": python.cuda} | ({"gpu": gpu_names[0]} if gpu_names and gpu_names[0] else {})


def judge(found: Snapshot, changes: Sequence[str], now: Mapping[str, Any] | None) -> Badge:
    """`changes` of the spec in words; `now` None when the interpreter does not answer."""
    if changes:
        return Badge(WEIGHTS_ONLY, tuple(changes))
    before = found.meta.get("environment")
    if not isinstance(before, dict):
        return Badge(UNKNOWN, ("the snapshot does not say what it was taken on",))
    if now is None:
        return Badge(UNKNOWN, ("the run's Python does not answer",))
    differing = [key for key in sorted(before) if key in now and before[key] != now[key]]
    other_device = "device" in differing
    left = () if other_device else tuple(key for key in sorted(before) if key not in now)
    words = tuple(f"{key} {before[key]} → {now[key]}" for key in differing)
    return Badge(INEXACT if words else EXACT, words, left)
