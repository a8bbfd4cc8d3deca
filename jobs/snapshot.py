"""Snapshots of a run, as a reader sees them: believed only when every byte is the one that was written.

A snapshot is a folder of flat files with a manifest that holds their SHA-256. What the files mean is not known here.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs import durable
from jobs.failure import JobError
from jobs.run_folder import RunFolder

MANIFEST = "manifest.json"
_NAME = re.compile(r"b(\d+)-s(\d+)")
_PIN = ".pin"
BLOCK_BYTES = 8 << 20


class SnapshotError(JobError):
    """A snapshot that could not be written, or must not be used."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a manifest says. `loss`: mean of the last steps before it, None where unknown; `meta`: all of it."""

    path: Path
    name: str
    branch: int
    step: int
    created_unix: float
    size_bytes: int
    loss: float | None
    pinned: bool
    meta: Mapping[str, Any]
    files: Mapping[str, tuple[int, str]]

    @property
    def good(self) -> bool:
        """Not known to be spoilt: its loss is no NaN and not infinite."""
        return self.loss is None or math.isfinite(self.loss)


def name_of(branch: int, step: int) -> str:
    return f"b{branch}-s{step:08d}"


def digest_of(manifest: Mapping[str, Any]) -> str:
    plain = {key: value for key, value in manifest.items() if key != "digest"}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def names(folder: RunFolder) -> list[str]:
    """Names of the published snapshots, believed or not, by branch and step."""
    if not folder.snapshots.is_dir():
        return []
    found = [entry.name for entry in folder.snapshots.iterdir() if _NAME.fullmatch(entry.name)]
    return sorted(found, key=lambda name: tuple(int(part) for part in _NAME.fullmatch(name).groups()))  # type: ignore[union-attr]


def read(folder: RunFolder, name: str, run: str | None = None) -> Snapshot:
    """The manifest of a snapshot, itself checked; the files are not (see `verify`). Raises SnapshotError.

    `run`: the run that wrote it, when it is not the one of this folder.
    """
    path = folder.snapshots / name
    if not _NAME.fullmatch(name):
        raise SnapshotError(f"{name!r} is not a snapshot's name", "They look like b0-s00000120.")
    if not _is(path, stat.S_ISDIR):
        raise _refused(name, "is missing or a link")
    try:
        manifest = durable.read_json(path / MANIFEST) if _is(path / MANIFEST, stat.S_ISREG) else None
    except (ValueError, OSError) as wrong:
        raise _refused(name, "has a damaged manifest") from wrong
    if manifest is None:
        raise _refused(name, "has no manifest")
    if manifest.get("digest") != digest_of(manifest):
        raise _refused(name, "has a damaged manifest")
    if manifest["run"] != (run or folder.name):
        raise _refused(name, f"belongs to another run ({manifest['run']})")
    if name_of(manifest["branch"], manifest["step"]) != name:
        raise _refused(name, "was renamed")
    return _snapshot(folder, path, manifest)


def _snapshot(folder: RunFolder, path: Path, manifest: dict[str, Any]) -> Snapshot:
    files = {part: (int(entry["bytes"]), str(entry["sha256"])) for part, entry in manifest["files"].items()}
    loss = manifest.get("loss")
    return Snapshot(
        path=path,
        name=path.name,
        branch=manifest["branch"],
        step=manifest["step"],
        created_unix=manifest["created_unix"],
        size_bytes=sum(size for size, _ in files.values()),
        loss=None if loss is None else float(loss),
        pinned=_pin(folder, path.name).exists(),
        meta=manifest,
        files=files,
    )


def verify(folder: RunFolder, name: str, run: str | None = None) -> Snapshot:
    """Reads every byte. Raises SnapshotError naming the first thing that is not as it was written."""
    found = read(folder, name, run)
    extra = sorted({entry.name for entry in found.path.iterdir()} - set(found.files) - {MANIFEST})
    if extra:
        raise _refused(name, f"holds a file that does not belong to it ({extra[0]})")
    for part, (size, digest) in found.files.items():
        path = found.path / part
        if Path(part).name != part or not _is(path, stat.S_ISREG):
            raise _refused(name, f"lacks the file {part}, or it is a link")
        actual = path.stat().st_size
        if actual != size:
            raise _refused(name, f"{part} has {actual} bytes, written were {size}")
        if _hash(path) != digest:
            raise _refused(name, f"{part} was changed after it was written (SHA-256 differs)")
    return found


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb", buffering=0) as stream:
            while block := stream.read(BLOCK_BYTES):
                digest.update(block)
    except OSError as wrong:
        raise SnapshotError(f"{path} cannot be read: {wrong.strerror}", "Check the node's disk.") from wrong
    return digest.hexdigest()


def newest(
    folder: RunFolder, wanted: Callable[[Snapshot], bool] = lambda _: True
) -> tuple[Snapshot | None, list[SnapshotError]]:
    """The newest wanted snapshot that verifies, and why newer ones were refused."""
    refused: list[SnapshotError] = []
    for found in reversed(listing(folder, refused)):
        if not wanted(found):
            continue
        try:
            return verify(folder, found.name), refused
        except SnapshotError as wrong:
            refused.append(wrong)
    return None, refused


def listing(folder: RunFolder, refused: list[SnapshotError] | None = None) -> list[Snapshot]:
    """All snapshots with a sound manifest, oldest first; the others go to `refused`."""
    found = []
    for name in names(folder):
        try:
            found.append(read(folder, name))
        except SnapshotError as wrong:
            if refused is not None:
                refused.append(wrong)
    return sorted(found, key=lambda snapshot: (snapshot.created_unix, snapshot.step))


def _refused(name: str, reason: str) -> SnapshotError:
    return SnapshotError(f"snapshot {name} {reason}", "It is not used; take an older one.")


def _is(path: Path, kind: Callable[[int], bool]) -> bool:
    """Whether `path` itself, not what a link there leads to, is of that kind."""
    try:
        return kind(path.lstat().st_mode)
    except OSError:
        return False


def _pin(folder: RunFolder, name: str) -> Path:
    return folder.snapshots / f"{name}{_PIN}"


def pin(folder: RunFolder, name: str, pinned: bool) -> None:
    """A pinned snapshot is never pruned. Raises SnapshotError when there is none of that name."""
    read(folder, name)
    if pinned:
        durable.write_bytes(_pin(folder, name), b"")
    else:
        _pin(folder, name).unlink(missing_ok=True)
