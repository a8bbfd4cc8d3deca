"""Files of an export brought home: resumable, verified against the list they came with, put in place by rename.

What arrives is collected beside its place, in `.tunedeck-partial`, under a name made of its SHA-256. So whatever breaks
off goes on where it was, and a file of another export is never continued. Nothing in the target folder is touched
before all files are whole and verified.
"""

from __future__ import annotations

import base64
import binascii
import errno
import fcntl
import hashlib
import os
import shutil
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from agent import wire
from console.failure import Failure
from console.format import size
from console.strings import _

PARTIAL = ".tunedeck-partial"
SLICE_BYTES = 1 << 20
IN_FLIGHT = 4
"""Slices asked for ahead, so that a round trip of 200 ms costs a quarter of itself."""
TRIES = 2
FULL = (errno.ENOSPC, errno.EDQUOT)


class Source(Protocol):
    """The node that has the files."""

    def ask(self, path: str, offset: int, limit_bytes: int) -> Future[wire.Reply]: ...

    def result(self, path: str, offset: int, future: Future[wire.Reply]) -> dict[str, Any]:
        """The answer; over lost links it asks again. Raises Failure when the node refuses or stays away."""


@dataclass(frozen=True, slots=True)
class File:
    path: str
    size_bytes: int
    sha256: str

    @classmethod
    def listed(cls, entry: dict[str, Any]) -> File:
        """An entry of the node's list. Raises Failure for one that would lead out of the target folder."""
        found = cls(str(entry.get("path")), int(entry.get("bytes") or 0), str(entry.get("sha256")))
        parts = found.path.split("/")
        if any(part in ("", ".", "..", PARTIAL) or "\\" in part or not part.isprintable() for part in parts):
            raise Failure(_("the node lists {path!r}, which is no place in a folder").format(path=found.path))
        if len(found.sha256) != 64 or not set(found.sha256) <= set("0123456789abcdef"):
            raise Failure(_("the node gives no SHA-256 for {path}").format(path=found.path))
        return found

    @property
    def partial_name(self) -> str:
        return f"{self.sha256[:32]}-{hashlib.sha256(self.path.encode()).hexdigest()[:8]}"


@dataclass(slots=True)
class Pull:
    """One export on its way into `target`."""

    source: Source
    files: Sequence[File]
    target: Path
    tell: Callable[[int, int], None] = lambda _done, _total: None
    """Hears how many bytes of how many are here."""
    done_bytes: int = 0

    def run(self) -> int:
        """Returns how many bytes came over the link; what was here already did not. Raises Failure."""
        try:
            return self.fetch_all()
        except OSError as error:
            raise unwritable(error, self.target) from error

    def fetch_all(self) -> int:
        self.target.mkdir(parents=True, exist_ok=True)
        missing = [file for file in self.files if not self.is_here(file)]
        self.done_bytes = sum(file.size_bytes for file in self.files if file not in missing)
        fetched = 0
        if missing:
            self.partial.mkdir(mode=0o700, exist_ok=True)
            self.refuse_link(self.partial)
            self.check_room(missing)
            fetched = sum(self.fetch(file) for file in missing)
            for file in missing:
                self.publish(file)
        if self.partial.is_dir():
            self.clear_partial()
        return fetched

    @property
    def partial(self) -> Path:
        return self.target / PARTIAL

    @property
    def total_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    def is_here(self, file: File) -> bool:
        place = self.target / file.path
        return (
            place.is_file()
            and not place.is_symlink()
            and place.stat().st_size == file.size_bytes
            and digest_of(place) == file.sha256
        )

    def check_room(self, missing: Sequence[File]) -> None:
        here = sum(part.stat().st_size for part in self.partial.iterdir())
        needed, free = sum(file.size_bytes for file in missing) - here, shutil.disk_usage(self.target).free
        if needed > free:
            said = _("{target} has {free} free, {needed} are still to come")
            raise Failure(said.format(target=self.target, free=size(free), needed=size(needed)), _("Free some space."))

    def fetch(self, file: File) -> int:
        """Completes the partial file and verifies it. Returns the bytes that came over the link."""
        handle = os.open(self.partial / file.partial_name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "r+b", buffering=0):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise Failure(_("another tunedeck is writing to {target}").format(target=self.target)) from error
            fetched = 0
            for _try in range(TRIES):
                fetched += self.complete(file, handle)
                if whole(handle) == file.sha256:
                    os.fsync(handle)
                    return fetched
                self.done_bytes -= file.size_bytes
                os.ftruncate(handle, 0)
        said = _("{path} arrived damaged {tries} times: its SHA-256 is not the one the node listed")
        raise Failure(said.format(path=file.path, tries=TRIES), _("It was discarded. Export again."))

    def complete(self, file: File, handle: int) -> int:
        here = os.fstat(handle).st_size
        if here > file.size_bytes:
            os.ftruncate(handle, 0)
            here = 0
        self.done_bytes += here
        return self.receive(file, handle, here)

    def receive(self, file: File, handle: int, start: int) -> int:
        asked: deque[tuple[int, Future[wire.Reply]]] = deque()
        at = following = start
        while at < file.size_bytes:
            while len(asked) < IN_FLIGHT and following < file.size_bytes:
                limit = min(SLICE_BYTES, file.size_bytes - following)
                asked.append((following, self.source.ask(file.path, following, limit)))
                following += limit
            offset, future = asked.popleft()
            block = content(file, self.source.result(file.path, offset, future))
            wanted = min(SLICE_BYTES, file.size_bytes - offset)
            while len(block) < wanted:  # a node may give less at a time than it was asked for
                at_byte = offset + len(block)
                more = self.source.ask(file.path, at_byte, wanted - len(block))
                block += content(file, self.source.result(file.path, at_byte, more))
            write(handle, block[:wanted], offset)
            at = offset + wanted
            self.done_bytes += wanted
            self.tell(self.done_bytes, self.total_bytes)
        return file.size_bytes - start

    def publish(self, file: File) -> None:
        place = self.target / file.path
        for folder in [*reversed(place.relative_to(self.target).parents[:-1])]:
            (self.target / folder).mkdir(exist_ok=True)
            self.refuse_link(self.target / folder)
        if place.is_dir() and not place.is_symlink():
            raise Failure(
                _("{place} is a folder; a file is to come there").format(place=place), _("Choose another folder.")
            )
        (self.partial / file.partial_name).replace(place)

    def refuse_link(self, folder: Path) -> None:
        if folder.is_symlink():
            said = _("{folder} is a link, and nothing is written through it").format(folder=folder)
            raise Failure(said, _("Choose another folder."))

    def clear_partial(self) -> None:
        """Also what an earlier export left unfinished: its successor is in place."""
        self.refuse_link(self.partial)
        shutil.rmtree(self.partial)
        handle = os.open(self.target, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def content(file: File, answer: dict[str, Any]) -> bytes:
    """The bytes of one slice. Raises Failure when the file on the node is another one by now."""
    try:
        block = base64.b64decode(str(answer["base64"]), validate=True)
        complete = int(answer["size"]) == file.size_bytes
    except (KeyError, ValueError, binascii.Error) as error:
        raise Failure(_("the node sent something that is no piece of {path}").format(path=file.path)) from error
    if not complete or not block:
        raise Failure(_("{path} changed on the node meanwhile").format(path=file.path), _("Export again."))
    return block


def write(handle: int, block: bytes, offset: int) -> None:
    done = 0
    while done < len(block):
        done += os.pwrite(handle, block[done:], offset + done)


def whole(handle: int) -> str:
    digest, offset = hashlib.sha256(), 0
    while block := os.pread(handle, SLICE_BYTES, offset):
        digest.update(block)
        offset += len(block)
    return digest.hexdigest()


def digest_of(path: Path) -> str:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return whole(handle)
    finally:
        os.close(handle)


def unwritable(error: OSError, target: Path) -> Failure:
    if error.errno in FULL:
        said = _("the disk is full at {target}").format(target=target)
        return Failure(said, _("Free some space and give the same command again: what has arrived is kept."))
    said = _("cannot write to {target}: {reason}").format(target=error.filename or target, reason=error.strerror)
    return Failure(said, _("Choose another folder."))
