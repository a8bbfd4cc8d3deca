"""What a node gathered about one run that died or stalls, kept here as an archive that triages the same anywhere."""

from __future__ import annotations

import base64
import binascii
import os
import re
import shutil
import tarfile
import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.triage import triage
from agent.triage.catalogue import CatalogueError
from agent.triage.source import SourceError
from agent.triage.verdict import Quote, Verdict
from console.config import folders
from console.failure import Failure
from console.strings import _
from jobs import durable

EVIDENCE_S = 120.0
"""For a node to gather it: stalled ranks are asked first, and logs may be long."""
ARCHIVE_LIMIT_BYTES = 16 << 20
GZIP = b"\x1f\x8b"
"""RFC 1952, 2.3.1"""
QUOTED_LIMIT_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Incident:
    """`left_out`: what the node could not read or had no room for, in words."""

    archive: Path
    taken_unix: float
    left_out: tuple[str, ...] = ()

    def verdict(self) -> Verdict:
        """Raises Failure. Takes up to some seconds."""
        try:
            return triage([self.archive], own_faults())
        except (SourceError, CatalogueError) as error:
            raise Failure(str(error)) from error

    def lines(self, quote: Quote) -> list[str]:
        """The file of the archive that a quote is from. Raises Failure."""
        try:
            with tarfile.open(self.archive) as tar:
                inner = next((one for one in tar if one.isfile() and quote.file.endswith(one.name)), None)
                stream = tar.extractfile(inner) if inner is not None else None
                text = stream.read(QUOTED_LIMIT_BYTES) if stream is not None else b""
        except (OSError, tarfile.TarError, EOFError) as error:
            raise Failure(_("{archive} cannot be read: {why}").format(archive=self.archive, why=error)) from error
        return text.decode("utf-8", "replace").split("\n")

    def copied_to(self, folder: Path) -> Path:
        """A copy under a name that was free. Raises OSError."""
        stem, number = self.archive.name.removesuffix(".tar.gz"), 0
        while True:
            target = folder / (f"{stem}-{number}.tar.gz" if number else f"{stem}.tar.gz")
            try:
                handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, durable.FILE_MODE)
            except FileExistsError:
                number += 1
                continue
            with os.fdopen(handle, "wb") as copy, self.archive.open("rb") as source:
                shutil.copyfileobj(source, copy)
            return target


Found = tuple[Incident, Verdict]


def kept(answer: Mapping[str, Any], run: str, now_unix: float, place: Path | None = None) -> Incident:
    """A node's answer to wire.Evidence, as a file below `place`. Raises Failure or OSError."""
    try:
        packed = base64.b64decode(str(answer.get("archive") or ""), validate=True)
    except (binascii.Error, ValueError) as error:
        raise Failure(_("the node sent something that is no evidence: {why}").format(why=error)) from error
    if not packed.startswith(GZIP) or len(packed) > ARCHIVE_LIMIT_BYTES:
        raise Failure(_("the node sent no evidence that can be kept ({n} bytes)").format(n=len(packed)))
    folder = incidents() if place is None else place
    folder.mkdir(mode=durable.FOLDER_MODE, parents=True, exist_ok=True)
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now_unix))
    archive = folder / f"incident-{re.sub(r'[^a-z0-9-]', '', run)[:80]}-{stamp}.tar.gz"
    durable.write_bytes(archive, packed)
    left_out = answer.get("left_out")
    return Incident(archive, now_unix, tuple(map(str, left_out)) if isinstance(left_out, list) else ())


def look(answer: Mapping[str, Any], run: str, now_unix: float, found: Future[Found | str]) -> None:
    """On a thread of its own: what the evidence says, or in words why it says nothing."""
    try:
        incident = kept(answer, run, now_unix)
        found.set_result((incident, incident.verdict()))
    except (Failure, OSError) as error:
        found.set_result(str(error))
    except BaseException as error:  # a mistake of ours must not leave the screen waiting
        found.set_result(_("triage failed inside tunedeck: {why}").format(why=type(error).__name__))
        raise


def incidents() -> Path:
    return folders(os.environ)[1] / "incidents"


def own_faults() -> Path | None:
    """The user's own signatures, where there are any."""
    file = folders(os.environ)[0] / "faults.yaml"
    return file if file.is_file() else None
