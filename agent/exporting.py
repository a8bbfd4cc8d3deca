"""An export made and proved by the run's own copy of the code, and its files in pieces."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import re
import signal
import stat
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from agent import wire
from agent.reexec import environment
from agent.refusal import Refusal
from jobs import durable
from jobs.run_folder import RunFolder

LIMIT_S = 1800.0
"""Loading a large model twice from a slow disk, the second time in a fresh process."""
SLICE_BYTES = 2 << 20
"""Four thirds of it, as base64, stay well below the longest line of the wire."""
SUMS = "SHA256SUMS"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
SUM_LINE = re.compile(r"([0-9a-f]{64})  (\S.*)")


async def export(folder: RunFolder, body: wire.Export, taken: Collection[str]) -> dict[str, Any]:
    """The answer to Export. `taken`: GPUs that live runs hold; an export keeps off them. Raises Refusal."""
    record = durable.read_json(folder.record) or {}
    if not folder.export_script.is_file():
        raise Refusal(
            f"{folder.name} was started by an older tunedeck, whose runs export nothing",
            f"Copy {folder.output} by other means.",
        )
    python = str(record.get("python") or "")
    command = [python, str(folder.export_script), *(["--snapshot", body.snapshot] if body.snapshot else [])]
    said = await run(command, folder, variables(record, taken))
    made = folder.path / "exports" / Path(str(said["folder"])).name
    return {
        "folder": made.name,
        "source": said.get("source"),
        "bytes": said.get("bytes"),
        "difference": said.get("difference"),
        "files": await asyncio.to_thread(files, made),
    }


def variables(record: Mapping[str, Any], taken: Collection[str]) -> dict[str, str]:
    """As the run has them. On the CPU where its GPUs are in use: loading beside a training could end it."""
    given = {str(key): str(value) for key, value in (record.get("environment") or {}).items()}
    free = [str(uuid) for uuid in record.get("gpu_uuids") or () if uuid not in taken]
    return {**environment(), **given, "CUDA_VISIBLE_DEVICES": ",".join(free)}


async def run(command: list[str], folder: RunFolder, surroundings: dict[str, str]) -> dict[str, Any]:
    """The JSON object in the last line of its output. Raises Refusal with the reason it gave."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=folder.path,
        env=surroundings,
        start_new_session=True,
    )
    try:
        output, errors = await asyncio.wait_for(process.communicate(), LIMIT_S)
    except asyncio.TimeoutError as error:
        raise Refusal(f"the export of {folder.name} was not done within {LIMIT_S:.0f} s") from error
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)  # its own session, and it is not reaped yet: nobody else's pid
            await process.wait()
    if process.returncode != 0:
        words = errors.decode(errors="replace").strip().rpartition("\n")[2].removeprefix("error: ")
        raise Refusal(f"no export of {folder.name}: {words or f'exit status {process.returncode} without a word'}")
    try:
        return dict(json.loads(output.decode().strip().rpartition("\n")[2]))
    except (ValueError, TypeError) as error:
        raise Refusal(f"the export of {folder.name} ended without a result") from error


def files(made: Path) -> list[dict[str, Any]]:
    """Path, size and SHA-256 of each file, from the list that was written when they were checked."""
    found = []
    text = (made / SUMS).read_bytes()
    for line in text.decode().splitlines():
        matched = SUM_LINE.fullmatch(line)
        if matched:
            found.append({"path": matched[2], "bytes": (made / matched[2]).stat().st_size, "sha256": matched[1]})
    return [*found, {"path": SUMS, "bytes": len(text), "sha256": hashlib.sha256(text).hexdigest()}]


def read(folder: RunFolder, body: wire.ReadExport) -> dict[str, Any]:
    """The answer to ReadExport. Raises Refusal for whatever is not a plain file of that export."""
    parts = [body.folder, *body.path.split("/")]
    if not NAME.fullmatch(body.folder) or any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise Refusal(f"{body.folder}/{body.path} is not a file of an export", "Ask for one that Export listed.")
    try:
        handle = opened(folder.path / "exports", parts)
    except OSError as error:
        raise Refusal(f"{body.folder}/{body.path} is not there: {error.strerror}", "Export it again.") from error
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise Refusal(f"{body.folder}/{body.path} is no plain file", "Ask for one that Export listed.")
        offset = max(0, body.offset)
        block = os.pread(handle, max(1, min(body.limit_bytes, SLICE_BYTES)), offset)
    finally:
        os.close(handle)
    return {"base64": base64.b64encode(block).decode(), "next": offset + len(block), "size": status.st_size}


def opened(root: Path, parts: list[str]) -> int:
    """Opens step by step, so that a link at any level is refused instead of followed."""
    handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    for place, part in enumerate(parts, 1):
        kind = os.O_NONBLOCK if place == len(parts) else os.O_DIRECTORY
        try:
            inner = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | kind, dir_fd=handle)
        finally:
            os.close(handle)
        handle = inner
    return handle
