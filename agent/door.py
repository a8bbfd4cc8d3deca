"""Where a console's bridge meets the daemon: a socket and a lock on local disk, in a folder nobody else can enter."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import socket
import stat
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.refusal import Refusal, of_os_error
from agent.state import PRIVATE, StateFolder

ADDRESS_LIMIT_BYTES = 107
"""sockaddr_un.sun_path less its final zero (unix(7))."""
CREDENTIALS = struct.Struct("3i")
"""struct ucred: pid, uid, gid (unix(7))."""


@dataclass(frozen=True, slots=True)
class Door:
    """Homes with different state folders have different doors, so two nodes on one machine do not meet."""

    folder: Path
    name: str

    @classmethod
    def of(cls, state: StateFolder, environ: Mapping[str, str] = os.environ) -> Door:
        folder = Path(environ.get("TUNEDECK_RUNTIME") or f"/tmp/tunedeck-{os.getuid()}")
        return cls(folder, hashlib.sha256(os.fsencode(state.path)).hexdigest()[:16])

    @property
    def socket(self) -> Path:
        return self.folder / f"{self.name}.sock"

    @property
    def lock(self) -> Path:
        return self.folder / f"{self.name}.lock"

    @property
    def starting(self) -> Path:
        """Held by the bridge that starts the daemon"""
        return self.folder / f"{self.name}.starting"

    def keeper_lock(self, run: str) -> Path:
        return self.folder / f"{self.name}.{run}.lock"

    def check(self) -> None:
        """Makes the folder if it is not there. Raises Refusal when it is not a real, private folder of this user.

        In a shared /tmp anybody may have been there first: a link or a foreign folder is never entered.
        """
        try:
            with contextlib.suppress(FileExistsError):
                self.folder.mkdir(mode=PRIVATE)
            status = self.folder.lstat()
        except OSError as error:
            raise of_os_error(error, "cannot make the socket folder", self.folder) from error
        if stat.S_ISLNK(status.st_mode) or not stat.S_ISDIR(status.st_mode):
            raise self.refused("is a link or no folder")
        if status.st_uid != os.getuid():
            raise self.refused(f"belongs to uid {status.st_uid}")
        if status.st_mode & 0o077:
            raise self.refused(f"is open to others (mode {stat.S_IMODE(status.st_mode):04o})")

    def refused(self, why: str) -> Refusal:
        return Refusal(
            f"{self.folder} {why}, so the agent will not use it",
            f"Find out who made it, then remove it; it must be yours (uid {os.getuid()}), a folder, mode 0700.",
        )

    def address(self) -> str:
        """The socket's path in a form the kernel takes; long ones go through a descriptor of the folder."""
        direct = str(self.socket)
        if len(os.fsencode(direct)) <= ADDRESS_LIMIT_BYTES:
            return direct
        handle = os.open(self.folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        return f"/proc/self/fd/{handle}/{self.socket.name}"  # stays open as long as the process: the address needs it

    def touch(self, path: Path) -> None:
        """Keeps cleaners of /tmp, which go by age, away from a file in use."""
        try:
            os.utime(path)
        except FileNotFoundError:
            return


def hold(path: Path) -> int | None:
    """Takes the lock for as long as this process lives. None when another process has it.

    A cleaner may unlink the file between open and lock; then the lock is on a file nobody else finds, so look again.
    """
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        if same_file(handle, path):
            with contextlib.suppress(OSError):  # the pid is for messages only, and the disk may be full
                os.ftruncate(handle, 0)
                os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
            return handle
        os.close(handle)


def same_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.lstat())
    except FileNotFoundError:
        return False


def holder(path: Path) -> int | None:
    """Pid written by whoever took the lock last; for messages only."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def peer_uid(connection: socket.socket) -> int:
    """Uid of the process at the other end, told by the kernel."""
    return _credentials(connection)[1]


def peer_pid(connection: socket.socket) -> int:
    """Its pid, told likewise: the one answer that nobody can leave behind in a file."""
    return _credentials(connection)[0]


def _credentials(connection: socket.socket) -> tuple[int, int, int]:
    """(pid, uid, gid)"""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    pid, uid, gid = CREDENTIALS.unpack(raw)
    return pid, uid, gid
