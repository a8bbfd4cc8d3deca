"""One rank of a run before anything heavy is imported: its log, its end with the launcher, its own record."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobs import durable
from jobs.durable import DISK_FULL, FILE_MODE
from jobs.identity import ProcessIdentity
from jobs.run_folder import RunFolder

_PR_SET_PDEATHSIG = 1


@dataclass(slots=True)
class Rank:
    """`number` of `world` ranks; `local` is its place among those of this node."""

    number: int
    world: int
    local: int
    folder: RunFolder
    started_unix: float = field(default_factory=time.time)
    imported_unix: float | None = None
    """When torch and all that comes with it was loaded."""

    @classmethod
    def from_environment(cls, folder: RunFolder) -> Rank:
        """Reads RANK, WORLD_SIZE and LOCAL_RANK as torchrun sets them; a lone process is rank 0 of 1."""
        number, world, local = (int(os.environ.get(name, default)) for name, default in _VARIABLES)
        return cls(number, world, local, folder)

    def enter(self) -> None:
        """Must be the first thing a rank does: what fails later is then in its own log, and it cannot be orphaned."""
        launcher = os.getppid()
        self._redirect()
        die_with_parent()
        # the launcher may have died before the line above took effect; somebody else is the parent then
        if os.getppid() != launcher or not self._launched_by(launcher):
            raise SystemExit("the launcher of this rank is gone")
        self._write({})

    @property
    def import_s(self) -> float | None:
        """How long loading the libraries took; None before that, and where they were loaded by another process."""
        return None if self.imported_unix is None else round(self.imported_unix - self.started_unix, 3)

    def _redirect(self) -> None:
        path = self.folder.rank_log(self.number)
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, FILE_MODE)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        os.close(handle)

    def _launched_by(self, pid: int) -> bool:
        """Every launcher has our script among its arguments; whoever inherits orphans has not."""
        try:
            arguments = Path(f"/proc/{pid:d}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return os.fsencode(self.folder.script) in arguments or self.world == 1

    def ended(self, outcome: str, error: dict[str, Any] | None = None) -> None:
        """The end record. `outcome`: completed, stopped or failed."""
        self._write({"ended_unix": time.time(), "outcome": outcome, "error": error})

    def _write(self, end: dict[str, Any]) -> None:
        identity = ProcessIdentity.of(os.getpid())
        record = {
            "rank": self.number,
            "identity": identity.to_json() if identity else None,
            "started_unix": self.started_unix,
            "ended_unix": None,
            "outcome": None,
            "error": None,
        }
        durable.write_json(self.folder.rank(self.number), record | end)


_VARIABLES = (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"))


def die_with_parent() -> None:
    """Asks the kernel for SIGKILL when the parent thread ends. Not inherited: every child of a rank asks by itself."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")


def say(text: str) -> None:
    """A line for this rank's log. A disk too full for it is no reason to end a training."""
    try:
        print(text, flush=True)
    except OSError as wrong:
        if wrong.errno not in DISK_FULL:
            raise
