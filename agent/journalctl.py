"""The kernel log through a child that follows the system's journal: for members of adm or systemd-journal."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from agent.kmsg import LONGEST_BYTES, Record

FOLDERS = (Path("/run/log/journal"), Path("/var/log/journal"))
COMMAND = ("journalctl", "-k", "-f", "-q", "--no-tail", "--no-pager", "-o", "json")
LOOK_BYTES = 1 << 18
END_S = 1.0


class Journal:
    """Whoever may not read the system's journal is shown an empty one: no child is started for nothing.

    The child ends by itself when nobody holds the other end of its pipe, so not even a killed agent leaves it behind.
    """

    def __init__(self, command: Sequence[str] = COMMAND, folders: Sequence[Path] = FOLDERS) -> None:
        self.command, self.folders, self.why = list(command), folders, ""
        self.child: subprocess.Popen[bytes] | None = None
        self.rest = b""

    def open(self, since_unix: float) -> bool:
        if shutil.which(self.command[0]) is None:
            self.why = f"{self.command[0]}: not installed"
        elif not any(readable(folder) for folder in self.folders):
            self.why = "journal: not readable"
        else:
            self.start(since_unix)
        return self.alive

    def start(self, since_unix: float) -> None:
        self.why = ""
        try:
            self.child = subprocess.Popen(
                [*self.command, f"--since=@{since_unix:.0f}"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd="/",
            )
        except OSError as error:
            self.why = f"{self.command[0]}: {error.strerror}"
            return
        assert self.child.stdout is not None
        os.set_blocking(self.child.stdout.fileno(), False)

    def read(self) -> tuple[list[Record], bool]:
        """What is new, and whether that was all of it for now."""
        if self.child is None or self.child.stdout is None:
            return [], True
        left = LOOK_BYTES
        while left > 0:
            try:
                chunk = os.read(self.child.stdout.fileno(), left)
            except BlockingIOError:
                break
            if not chunk:
                self.why = f"{self.command[0]} ended"
                break
            self.rest += chunk
            left -= len(chunk)
        *lines, self.rest = self.rest.split(b"\n")
        self.rest = self.rest if len(self.rest) <= LONGEST_BYTES else b""
        if self.why:
            self.close()
        return [record for line in lines if (record := parse(line)) is not None], left > 0

    @property
    def alive(self) -> bool:
        return self.child is not None

    def close(self) -> None:
        child, self.child, self.rest = self.child, None, b""
        if child is None:
            return
        if child.stdout is not None:
            child.stdout.close()
        child.kill()
        try:
            child.wait(END_S)
        except subprocess.TimeoutExpired:
            self.why = f"{self.command[0]} (pid {child.pid}) waits in the kernel"


def readable(folder: Path) -> bool:
    return any(os.access(path, os.R_OK) for path in folder.glob("*/system.journal"))


def parse(line: bytes) -> Record | None:
    """None for what is no message of the kernel. A text that is no UTF-8 stands there as a list of bytes."""
    try:
        entry = json.loads(line)
        said = entry["MESSAGE"]
        text = bytes(said).decode("utf-8", "replace") if isinstance(said, list) else str(said or "")
        at_us = int(entry.get("_SOURCE_MONOTONIC_TIMESTAMP") or entry["__MONOTONIC_TIMESTAMP"])
        return Record(0, at_us, text, int(entry["__REALTIME_TIMESTAMP"]) / 1e6)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
