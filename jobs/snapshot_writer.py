"""Publishing snapshots: built in a staging folder, synced, the manifest last, then one rename."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from jobs import durable
from jobs.progress import plain
from jobs.run_folder import RunFolder
from jobs.snapshot import BLOCK_BYTES, MANIFEST, Snapshot, SnapshotError, digest_of, name_of, read

_STAGING, _PRUNED = ".staging-", ".pruned-"
_SPARE_BYTES = 64 << 20  # left free on the disk, for logs and records

Buffer = bytes | memoryview


def write(
    folder: RunFolder,
    branch: int,
    step: int,
    parts: Mapping[str, Iterable[Buffer]],
    size_bytes: int,
    meta: Mapping[str, Any],
) -> Snapshot:
    """Publishes a snapshot of `parts` (file name → content). Raises SnapshotError; then nothing of it is left.

    `size_bytes` is what the parts will take, to find out beforehand whether the disk has room.
    """
    name = name_of(branch, step)
    target = folder.snapshots / name
    staging = folder.snapshots / f"{_STAGING}{name}-{secrets.token_hex(4)}"
    try:
        _check_room(folder.snapshots, size_bytes)
        if target.exists():
            raise SnapshotError(f"snapshot {name} is there already", "Nothing was overwritten.")
        staging.mkdir(mode=durable.FOLDER_MODE)
        files = {part: _write_part(staging / part, chunks) for part, chunks in parts.items()}
        manifest = {"run": folder.name, "branch": branch, "step": step, "created_unix": time.time(), **plain(meta)}
        manifest["files"] = {part: {"bytes": size, "sha256": digest} for part, (size, digest) in files.items()}
        durable.write_json(staging / MANIFEST, {**manifest, "digest": digest_of(manifest)})
        durable.sync_folder(staging)
        staging.rename(target)
        durable.sync_folder(folder.snapshots)
    except OSError as wrong:
        raise SnapshotError(
            f"snapshot {name} could not be written: {wrong.strerror or wrong}",
            "The run goes on; check the node's disk.",
        ) from wrong
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return read(folder, name)


def _check_room(path: Path, size_bytes: int) -> None:
    state = os.statvfs(path)
    free = state.f_bavail * state.f_frsize
    if free < size_bytes + _SPARE_BYTES:
        raise SnapshotError(
            f"no room for a snapshot: it takes {size_bytes >> 20} MiB and the disk has {free >> 20} MiB free",
            "The run goes on; free space or keep fewer snapshots.",
        )


def _write_part(path: Path, chunks: Iterable[Buffer]) -> tuple[int, str]:
    """Size and SHA-256 of what was written and synced."""
    digest, size = hashlib.sha256(), 0
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, durable.FILE_MODE)
    with os.fdopen(handle, "wb", buffering=0) as stream:
        for block in _blocks(chunks):
            digest.update(block)
            size += _write_all(stream.fileno(), block)
        os.fsync(stream.fileno())
    return size, digest.hexdigest()


def _blocks(chunks: Iterable[Buffer]) -> Iterator[memoryview]:
    for chunk in chunks:
        view = memoryview(chunk).cast("B")
        yield from (view[at : at + BLOCK_BYTES] for at in range(0, len(view), BLOCK_BYTES))


def _write_all(handle: int, block: memoryview) -> int:
    done = 0
    while done < len(block):
        done += os.write(handle, block[done:])
    return done


def sweep(folder: RunFolder) -> None:
    """Removes what writers left behind that died: only to be called while no writer is at work."""
    for entry in list(folder.snapshots.iterdir()):
        if entry.name.startswith((_STAGING, _PRUNED)):
            shutil.rmtree(entry, ignore_errors=True)


def remove(snapshot: Snapshot) -> None:
    """Out of sight first, by rename: half a snapshot is never seen under its name."""
    gone = snapshot.path.with_name(f"{_PRUNED}{snapshot.name}")
    snapshot.path.rename(gone)
    durable.sync_folder(gone.parent)  # else a power cut may bring the name back after its files are gone
    shutil.rmtree(gone, ignore_errors=True)
