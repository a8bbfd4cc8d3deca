"""Files that are either whole or absent, whatever dies in between."""

from __future__ import annotations

import errno
import json
import os
import secrets
from pathlib import Path
from typing import Any

FILE_MODE = 0o600
FOLDER_MODE = 0o700
DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def sync_folder(path: Path) -> None:
    """Makes the names in `path` survive a power cut. Raises OSError: a failed fsync must not be taken for success."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(path: Path) -> None:
    """Makes all files and folders below `path` survive a power cut, itself included. Raises OSError."""
    for parent, _folders, files in os.walk(path, topdown=False):
        for name in files:
            handle = os.open(Path(parent, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        sync_folder(Path(parent))


def write_bytes(path: Path, content: bytes) -> None:
    """Replaces `path` atomically and durably: temporary file beside it, fsync, rename, fsync of the folder."""
    staging = path.parent / f".{path.name}.{secrets.token_hex(4)}.tmp"
    handle = os.open(staging, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        staging.replace(path)
    except BaseException:
        staging.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_json(path: Path, value: dict[str, Any]) -> None:
    write_bytes(path, json.dumps(value, allow_nan=False, separators=(",", ":")).encode())


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in `path`, None when the file is absent. Raises ValueError when it is there and is no JSON object."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds {type(value).__name__}, expected a JSON object")
    return value
