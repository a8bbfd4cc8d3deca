"""An error for the operator: what is wrong, where, and what to do about it."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Mapping
from typing import Any

FULL = (errno.ENOSPC, errno.EDQUOT)
FORBIDDEN = (errno.EROFS, errno.EACCES, errno.EPERM)


DOES_NOT_FIT, BUSY_GPUS, STALE_GPUS, FULL_DISK = "does-not-fit", "busy-gpus", "stale-gpus", "full-disk"
CORDONED = "cordoned"
"""Kinds of refusals that `force` overrides."""
NO_ROOM, NOT_WRITABLE = "disk-full", "read-only-home"
"""Kinds that the console tells apart when the agent itself cannot start."""
STATUS = {NO_ROOM: errno.ENOSPC, NOT_WRITABLE: errno.EACCES}
"""By which a process that ended so tells whoever started it."""


class Refusal(Exception):
    """Something asked for that cannot be done. `message` says what and where, `hint` what to do.

    `result` goes along in the reply: {"kind": one of the above, ...} where there is one that fits.
    """

    def __init__(self, message: str, hint: str = "", result: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message, self.hint, self.result = message, hint, dict(result or {})

    def __str__(self) -> str:
        return f"{self.message}. {self.hint}" if self.hint else self.message

    @property
    def status(self) -> int:
        """What a process that ends with this leaves behind."""
        return STATUS.get(self.result.get("kind", ""), 1)


def of_os_error(error: OSError, doing: str, where: str | os.PathLike[str] = "") -> Refusal:
    """The one sentence for an operating system error met while `doing` something at `where`."""
    error = first_cause(error)
    place = f" ({where or error.filename})" if where or error.filename else ""
    if error.errno in FULL:
        return Refusal(
            f"{doing}: the disk is full{place}",
            "Free some space there (`df -h`, quota) and ask again; nothing was left.",
            {"kind": NO_ROOM},
        )
    if error.errno in FORBIDDEN:
        return Refusal(
            f"{doing}: not allowed to write{place}: {error.strerror}",
            "Make the folder writable, or set TUNEDECK_HOME on the node to a folder that is.",
            {"kind": NOT_WRITABLE},
        )
    return Refusal(f"{doing}: {error.strerror or error}{place}")


def first_cause(error: OSError) -> OSError:
    """shutil's copying collects its errors as text, their numbers included; the first one is the reason."""
    if not isinstance(error, shutil.Error):
        return error
    found = re.search(r"\[Errno (\d+)\]", str(error))
    return OSError(int(found[1]), os.strerror(int(found[1]))) if found else error
