"""Append-only lines that are on disk when `append` returns."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

from jobs import durable
from jobs.durable import FILE_MODE


class Journal:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = threading.Lock()

    def append(self, entry: dict[str, Any]) -> None:
        """Raises OSError, with nothing of the entry left behind."""
        line = json.dumps(entry, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        with self.lock:
            handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
            try:
                self.write(handle, line)
            finally:
                os.close(handle)

    def write(self, handle: int, line: bytes) -> None:
        size = os.fstat(handle).st_size
        try:
            written = 0
            while written < len(line):
                written += os.pwrite(handle, line[written:], size + written)
            os.fsync(handle)
        except OSError:
            os.ftruncate(handle, size)
            raise

    def entries(self) -> list[dict[str, Any]]:
        """Whole entries in order; the half line of a power cut is none. An absent journal is empty."""
        try:
            lines = self.path.read_bytes().splitlines()
        except FileNotFoundError:
            return []
        return [entry for line in lines if (entry := parsed(line)) is not None]

    def keep(self, latest: int) -> None:
        """Drops all entries but the latest ones. Raises OSError."""
        with self.lock:
            entries = self.entries()[-latest:]
            lines = [json.dumps(entry, allow_nan=False, separators=(",", ":")) + "\n" for entry in entries]
            durable.write_bytes(self.path, "".join(lines).encode())

    def rotate(self, limit_bytes: int) -> None:
        """Begins anew when it has grown to that size; the one before stays beside it. Raises OSError."""
        with self.lock:
            if self.path.exists() and self.path.stat().st_size >= limit_bytes:
                self.path.replace(self.path.with_name(f"{self.path.name}.1"))


def parsed(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
