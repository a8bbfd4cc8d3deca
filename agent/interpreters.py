"""Which Python on this node can train: the first one that has what a run imports."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.reexec import environment
from agent.refusal import Refusal

NEEDED = ("torch", "transformers", "peft")
CONDA = ("miniconda3", "anaconda3", "miniforge3", "mambaforge", "micromamba")
DEADLINE_S = 20.0
"""A cold conda on a shared file system takes seconds to start."""
CANDIDATE_LIMIT = 24

# finds packages without importing them: importing torch takes seconds and a GPU context
QUESTION = f"""
import importlib.util, json, os, re, sys
missing = [name for name in {NEEDED!r} if importlib.util.find_spec(name) is None]
cuda = None
if "torch" not in missing:
    path = os.path.join(os.path.dirname(importlib.util.find_spec("torch").origin), "version.py")
    text = open(path, encoding="utf-8").read() if os.path.exists(path) else ""
    found = re.search(r"^cuda[^=]*= *['\\"]([^'\\"]*)", text, re.M)
    cuda = found.group(1) if found else None
print(json.dumps({{"version": sys.version_info[:2], "missing": missing, "cuda": cuda}}))
"""


@dataclass(frozen=True, slots=True)
class Interpreter:
    path: str
    cuda: str | None
    """CUDA version its torch was built for; None for a CPU build."""


def choose(given: str | None, home: Path, environ: Mapping[str, str] = os.environ) -> Interpreter:
    """The interpreter to train with: the spec's own if it names one, else the first that can. Raises Refusal."""
    if given is not None:
        path = str(home / given.removeprefix("~/"))
        found, why = examine(path)
        if found is None:
            raise Refusal(f"python: {path} cannot train: {why}", f"It needs Python 3.10 and {', '.join(NEEDED)}.")
        return found
    tried = []
    for path in candidates(home, environ):
        found, why = examine(path)
        if found is not None:
            return found
        tried.append(f"{path}: {why}")
    raise Refusal(
        "no Python on this node has torch, transformers and peft (" + "; ".join(tried) + ")",
        "Set `python: PATH` in the spec or TUNEDECK_PYTHON on the node, or install the three there.",
    )


def candidates(home: Path, environ: Mapping[str, str]) -> Iterator[str]:
    """Executable interpreters in the order they are tried, each once by its own path (a venv is not its base)."""
    seen: set[str] = set()
    for path in wanted(home, environ):
        if path and path not in seen and len(seen) < CANDIDATE_LIMIT and os.access(path, os.X_OK):
            seen.add(path)
            yield path


def wanted(home: Path, environ: Mapping[str, str]) -> Iterator[str]:
    yield environ.get("TUNEDECK_PYTHON", "")
    yield sys.executable
    yield str(home / ".tunedeck/env/bin/python")
    yield shutil.which("python3", path=environ.get("PATH")) or ""
    if "CONDA_PREFIX" in environ:
        yield str(Path(environ["CONDA_PREFIX"]) / "bin/python")
    for base in [*(home / name for name in CONDA), Path("/opt/conda")]:
        yield str(base / "bin/python")
        yield from (str(path) for path in sorted(base.glob("envs/*/bin/python")))


def examine(path: str) -> tuple[Interpreter | None, str]:
    """What one interpreter can do; the reason in words when it cannot train."""
    try:
        done = subprocess.run(
            [path, "-c", QUESTION],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=DEADLINE_S,
            env=environment(),
            cwd="/",
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, f"did not answer within {DEADLINE_S:.0f} s"
    except OSError as error:
        return None, error.strerror or str(error)
    return judge(path, answer(done.stdout))


def judge(path: str, found: dict[str, Any] | None) -> tuple[Interpreter | None, str]:
    if found is None:
        return None, "is no working Python"
    if tuple(found["version"]) < (3, 10):
        return None, "is Python {}.{}".format(*found["version"])
    if found["missing"]:
        return None, "lacks " + ", ".join(found["missing"])
    return Interpreter(path, found["cuda"]), ""


def answer(output: bytes) -> dict[str, Any] | None:
    """The last line: a site-packages hook may print before it."""
    try:
        value = json.loads(output.strip().rpartition(b"\n")[2])
    except ValueError:
        return None
    return value if isinstance(value, dict) and {"version", "missing", "cuda"} <= value.keys() else None
