"""What happened on a node, numbered. An event is on disk before anybody is told, and nobody is told twice."""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent import wire
from agent.wire import Event, Gap, Malformed
from jobs import durable

KEPT = 4000
SLACK = 1000
"""Pruned only when this many too many, so that rewriting the file stays rare."""
QUEUE_LIMIT = 10_000
DATA_LIMIT_CHARS = 4000


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far one run's story has been told: its last told progress record by number, its start, its end.

    `resumed` counts its resumes; each of them opens the story again.
    """

    record: int = 0
    started: bool = False
    ended: bool = False
    resumed: int = 0

    def after(self, event: Event) -> Cursor:
        record, again = event.data.get("record_number"), event.data.get("number")
        resumed = event.kind == "run.resumed"
        return replace(
            self,
            record=max(self.record, record) if isinstance(record, int) else self.record,
            started=self.started or event.kind == "run.started",
            ended=event.kind == "run.ended" or (self.ended and not resumed),
            resumed=again if resumed and isinstance(again, int) else self.resumed,
        )


class Events:
    """The journal. Cursors are derived from the events themselves, so a crash between telling and noting cannot be.

    The file's first line names the stream, the first number kept and the cursors of what was pruned.
    Queue from any thread; `flush` and `after` may run on different ones.
    """

    def __init__(self, path: Path) -> None:
        """Raises OSError when the file cannot be read or made."""
        self.path = path
        self.stream = ""
        self.first_seq = 1
        self.kept: list[Event] = []
        self.cursors: dict[str, Cursor] = {}
        self.pruned: dict[str, Cursor] = {}
        self.queue: deque[Event] = deque()
        self.size = 0
        self.lock = threading.Lock()
        if not self.load():
            self.begin()

    @property
    def last_seq(self) -> int:
        return self.first_seq + len(self.kept) - 1

    def cursor(self, run: str) -> Cursor:
        return self.cursors.get(run, Cursor())

    def add(
        self,
        kind: str,
        text: str,
        severity: str = "info",
        run: str | None = None,
        data: dict[str, Any] | None = None,
        record_number: int | None = None,
    ) -> None:
        """Queues an event; it gets its number when it is on disk."""
        told = dict(data or {})
        if len(json.dumps(told, default=str)) > DATA_LIMIT_CHARS:
            told = {}
        if record_number is not None:
            told["record_number"] = record_number
        event = Event(self.stream, 0, round(time.time(), 3), kind, text[:DATA_LIMIT_CHARS], severity, run, told)
        with self.lock:
            if len(self.queue) >= QUEUE_LIMIT:
                return  # the disk is full for this long; run folders tell theirs again after the next start
            self.queue.append(event)
            if run is not None:
                self.cursors[run] = self.cursor(run).after(event)

    def flush(self) -> None:
        """Writes what is queued. Raises OSError with the queue kept whole: it is tried again."""
        with self.lock:
            if not self.queue:
                return
            first = self.last_seq + 1
            batch = [replace(event, seq=first + i) for i, event in enumerate(self.queue)]
            self.write(b"".join(wire.encode(event) for event in batch))
            self.kept = self.kept + batch
            self.queue.clear()
            if len(self.kept) > KEPT + SLACK:
                self.prune()

    def write(self, block: bytes) -> None:
        """All of the block or nothing of it."""
        handle = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            written = 0
            while written < len(block):
                written += os.pwrite(handle, block[written:], self.size + written)
            os.fsync(handle)
            self.size += len(block)
        except OSError:
            os.ftruncate(handle, self.size)
            raise
        finally:
            os.close(handle)

    def after(self, seq: int, limit: int) -> tuple[Gap | None, list[Event]]:
        """Events following `seq`, at most `limit`; a Gap when the first of them are pruned."""
        with self.lock:
            kept, first = self.kept, self.first_seq
        gap = Gap(self.stream, seq + 1, first - 1) if seq + 1 < first else None
        start = max(0, seq + 1 - first)
        return gap, kept[start : start + limit]

    def begin(self) -> None:
        self.stream, self.first_seq, self.kept, self.cursors = secrets.token_hex(8), 1, [], {}
        self.rewrite({})

    def prune(self) -> None:
        dropped = self.kept[:-KEPT]
        told = dict(self.pruned)
        for event in dropped:
            if event.run is not None:
                told[event.run] = told.get(event.run, Cursor()).after(event)
        before = self.first_seq, self.kept
        self.first_seq, self.kept = self.first_seq + len(dropped), self.kept[-KEPT:]
        try:
            self.rewrite(told)
        except OSError:
            self.first_seq, self.kept = before
            raise

    def rewrite(self, pruned: dict[str, Cursor]) -> None:
        header = {
            "stream": self.stream,
            "first": self.first_seq,
            "cursors": {run: [one.record, one.started, one.ended, one.resumed] for run, one in pruned.items()},
        }
        block = json.dumps(header).encode() + b"\n" + b"".join(wire.encode(event) for event in self.kept)
        durable.write_bytes(self.path, block)
        self.pruned, self.size = pruned, len(block)

    def load(self) -> bool:
        """False when there is no journal, or one that cannot be continued: then a new stream begins."""
        try:
            lines = self.path.read_bytes().splitlines(keepends=True)
        except FileNotFoundError:
            return False
        try:
            header = json.loads(lines[0])
            self.stream, self.first_seq = str(header["stream"]), int(header["first"])
            self.pruned = {run: Cursor(*told) for run, told in header["cursors"].items()}
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            return False
        self.cursors, self.size = dict(self.pruned), len(lines[0])
        for line in lines[1:]:
            event = read(line) if line.endswith(b"\n") else None
            if event is None or event.seq != self.last_seq + 1:
                break  # the half line of a power cut: it was never told
            self.kept.append(event)
            self.size += len(line)
            if event.run is not None:
                self.cursors[event.run] = self.cursor(event.run).after(event)
        os.truncate(self.path, self.size)
        return True


def read(line: bytes) -> Event | None:
    try:
        message = wire.read_from_agent(line)
    except Malformed:
        return None
    return message if isinstance(message, Event) else None
