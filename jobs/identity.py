"""Which process a number means: pids come back after a reboot, after reuse and in every container."""

from __future__ import annotations

import os
import signal
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_DEAD = frozenset("ZXx")


def boot_id() -> str:
    """The kernel's id of this boot, or an empty string where the sandbox hides it."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def pid_namespace() -> str:
    """The pid namespace that this process counts pids in, for example ``pid:[4026531836]``; empty where hidden."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _status(pid: int) -> tuple[str, int] | None:
    """State letter and start time (clock ticks after boot) from ``/proc/PID/stat``; None without such a process."""
    try:
        text = Path(f"/proc/{pid:d}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # the second field is the command, which may itself hold spaces and brackets
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[19])


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process for good: the same four values never name another one."""

    boot_id: str
    pid_namespace: str
    pid: int
    start_ticks: int

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity | None:
        """Identity of the live process `pid` as numbered here; None when it is gone or a zombie."""
        status = _status(pid)
        if status is None or status[0] in _DEAD:
            return None
        return cls(boot_id(), pid_namespace(), pid, status[1])

    def state(self) -> Literal["alive", "gone", "unknown"]:
        """ "unknown" when the process belongs to another pid namespace of this boot: not seen from here is not dead."""
        if self.boot_id != boot_id():
            return "gone"
        if self.pid_namespace != pid_namespace():
            return "unknown"
        status = _status(self.pid)
        if status is None or status[0] in _DEAD or status[1] != self.start_ticks:
            return "gone"
        return "alive"

    def send(self, number: signal.Signals) -> bool:
        """Sends a signal to this very process. False when it is gone or cannot be seen from here.

        Raises PermissionError when the process belongs to somebody else.
        """
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        except OSError:  # kernels before 5.3 and some sandboxes: a plain kill leaves a window of microseconds
            return self._kill(number)
        try:
            # the handle holds the pid: what is alive now under our start time is what the signal reaches
            if self.state() != "alive":
                return False
            signal.pidfd_send_signal(handle, number)
            return True
        except ProcessLookupError:
            return False
        finally:
            os.close(handle)

    def _kill(self, number: signal.Signals) -> bool:
        if self.state() != "alive":
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> ProcessIdentity:
        """Raises KeyError or ValueError for something that is no identity."""
        return cls(str(value["boot_id"]), str(value["pid_namespace"]), int(value["pid"]), int(value["start_ticks"]))
