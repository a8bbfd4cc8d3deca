"""A bundle whose agent is a few lines, for tests of the way there; started as sshd starts a login shell."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from console import carry
from console.stream import ProcessStream


def bundle(folder: Path, agent: str) -> carry.Bundle:
    """The real bundle's enter.py with an `agent` package that runs this code."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "__init__.py").write_text("")
    (folder / "__main__.py").write_text(agent)
    content = {
        name: path for name, path in carry.files() if not name.startswith(("agent/", "jobs/", "configs/", "vendor"))
    }
    content |= {"agent/__init__.py": folder / "__init__.py", "agent/__main__.py": folder / "__main__.py"}
    content |= {
        "agent/wire.py": carry.HERE.parent / "agent/wire.py",
        "agent/codec.py": carry.HERE.parent / "agent/codec.py",
    }
    return carry.pack(content)


def environ(home: Path, **more: str) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    return {"HOME": str(home), "PATH": path, **more}


def login(command: str, env: dict[str, str], shell: Sequence[str] = ("/bin/sh",)) -> ProcessStream:
    """What sshd does with a command: `$SHELL -c COMMAND`."""
    return ProcessStream([*shell, "-c", command], "local", env)
