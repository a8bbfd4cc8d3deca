"""Paths → a settled case: open, sieve where large, read, learn the layout."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from agent.formats import ras, run
from agent.formats import read as reading
from agent.formats.event import Event
from agent.formats.line import Document, Line, decode
from agent.triage import sieve, source
from agent.triage.case import Case
from agent.triage.catalogue import Catalogue
from agent.triage.source import Budget

LARGE = 2 << 20  # a file above this is sieved: read only where a literal stands, and at its ends
LARGE_FOLDER = 48 << 20  # above this in all, files of more than SMALL are sieved too
SMALL = 64 << 10
HEAD = 65_536
CHANNEL = b" NCCL INFO Channel "  # thousands of such lines on a large job, all alike
MOST_CHANNELS = 64  # read of one sieved file
PREFIX = re.compile(r"(?:\S+ std(?:out|err) F )?\[(?:(?:rank|default)\d+\]|\d+,\d+\]<)")
EXPORT = re.compile(rb"^(?:__CURSOR|_BOOT_ID|__REALTIME_TIMESTAMP)=")


def gather(paths: list[Path], catalogue: Catalogue, stdin: IO[bytes] | None = None) -> Case:
    """Read everything below `paths` (and `stdin` where given). Raises SourceError for a path that is not there."""
    case, budget = Case(), Budget()
    found = list(source.files(paths, budget))
    total = sum(path.stat().st_size for _, path in found)
    limit = SMALL if total > LARGE_FOLDER else LARGE
    large: list[tuple[str, Path]] = []
    for name, path in found:
        if path.stat().st_size > limit and not source.packed(name):
            large.append((name, path))
        else:
            _read_file(case, catalogue, name, path, budget)
    _read_large(case, catalogue, large, budget)
    if stdin is not None:
        _read_stream(case, catalogue, "stdin", stdin, budget)
    case.notes.extend(budget.notes)
    case.settle()
    return case


def _literals(catalogue: Catalogue) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*reading.LITERALS, *catalogue.literals())))


def _read_file(case: Case, catalogue: Catalogue, name: str, path: Path, budget: Budget) -> None:
    try:
        with path.open("rb") as stream:
            for inner, content in source.unpack(name, stream, budget):
                _read_stream(case, catalogue, inner, content, budget)
    except OSError as error:
        case.notes.append(f"{name}: cannot be read ({error.strerror or error})")


def _read_stream(case: Case, catalogue: Catalogue, name: str, stream: IO[bytes], budget: Budget) -> None:
    """A stream that is short is read whole; a long one goes through an unnamed file and the sieve."""
    start = source.fill(stream, LARGE + 1)
    budget.take(len(start), name)
    if source.binary(name, start[:HEAD]) or _read_dump(case, name, start, stream, budget):
        return
    if len(start) <= LARGE:
        _take(case, catalogue, name, _numbered(start.split(b"\n")))
        return
    with source.spooled(name, start, stream, budget) as path:
        if EXPORT.match(start):
            wanted = [literal.encode() for literal in _literals(catalogue)]
            with path.open("rb") as file:
                _take(case, catalogue, name, sieve.sift(_exported(source.numbered(file)), wanted))
        else:
            lines = {number: line[: source.LONGEST] for _, number, line in sieve.matching([path], _literals(catalogue))}
            _take_sieved(case, catalogue, {path: name}, path, lines)


def _read_dump(case: Case, name: str, start: bytes, stream: IO[bytes], budget: Budget) -> bool:
    """Whether these bytes were a dump of the flight recorder or of RAS; if so, its events are in the case."""
    own = run.NAMED.search(name) is not None and start[:1] == b"{"
    if not own and not source.dumplike(start[:HEAD]):
        return False
    rest = source.fill(stream, source.DUMP_BYTES) if len(start) > LARGE else b""
    content = ras.load_dump(start + rest) if budget.take(len(rest), name) else None
    if content is None:
        return start[:1] == b"\x80"
    if own:
        told = run.document(name, content)
        for event in told or ():
            case.documents.setdefault(name, None)
            case.add(event)
        return told is not None
    case.documents.setdefault(name, None)
    for event in ras.dump_events(name, content):
        case.add(event)
    return True


def _numbered(lines: list[bytes]) -> Iterator[tuple[int, bytes]]:
    """Lines with their numbers; those of a journal export as `journalctl` shows them."""
    counted = ((number, line[: source.LONGEST]) for number, line in enumerate(lines, 1))
    return _exported(counted) if EXPORT.match(lines[0]) else _without_gaps(counted)


def _without_gaps(lines: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """What a node left out of a long log are empty lines, by the hundred thousand; of each gap two are enough."""
    empty = 0
    for number, line in lines:
        empty = 0 if line else empty + 1
        if empty <= 2:
            yield number, line


def _exported(lines: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """journalctl -o export → lines as `journalctl` shows them, numbered as in the export."""
    fields: dict[bytes, bytes] = {}
    last = 0
    for last, line in lines:
        name, equals, value = line.partition(b"=")
        if equals:
            fields[name] = value
        elif not line and fields:
            yield last, _shown(fields)
            fields = {}
    if fields:
        yield last, _shown(fields)


def _shown(fields: dict[bytes, bytes]) -> bytes:
    who = fields.get(b"SYSLOG_IDENTIFIER", fields.get(b"_COMM", b"journal"))
    host = fields.get(b"_HOSTNAME", b"localhost")
    micros = fields.get(b"__REALTIME_TIMESTAMP", b"")
    when = _iso(int(micros)) if micros.isdigit() else b"1970-01-01T00:00:00+00:00"
    suffix = b"" if who == b"kernel" else b"[" + fields.get(b"_PID", b"0") + b"]"
    return when + b" " + host + b" " + who + suffix + b": " + fields.get(b"MESSAGE", b"")


def _iso(micros: int) -> bytes:
    from datetime import datetime, timezone

    seconds = min(micros // 1_000_000, 253_402_300_799)
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S+00:00").encode()


def _read_large(case: Case, catalogue: Catalogue, large: list[tuple[str, Path]], budget: Budget) -> None:
    """Sieved files: matching lines by one search over all, merged with each file's ends."""
    names = {path: name for name, path in large}
    texts: list[Path] = []
    for name, path in large:
        with path.open("rb") as stream:
            head = stream.read(HEAD)
        if source.dumplike(head) and path.stat().st_size <= source.DUMP_BYTES:
            _read_file(case, catalogue, name, path, budget)
        elif not source.binary(name, head):
            texts.append(path)
    current: Path | None = None
    lines: dict[int, bytes] = {}
    channels: Counter[Path] = Counter()
    for path, number, line in sieve.matching(texts, _literals(catalogue)):
        if path != current:
            _take_sieved(case, catalogue, names, current, lines)
            current, lines = path, {}
        if CHANNEL not in line:
            lines[number] = line[: source.LONGEST]
        elif channels[path] < MOST_CHANNELS:
            channels[path] += 1
            lines[number] = line
    _take_sieved(case, catalogue, names, current, lines)
    for path in texts:
        if names[path] not in case.documents:
            _take_sieved(case, catalogue, names, path, {})


def _take_sieved(
    case: Case, catalogue: Catalogue, names: dict[Path, str], path: Path | None, lines: dict[int, bytes]
) -> None:
    if path is None:
        return
    for number, line in sieve.ends(path):
        lines.setdefault(number, line[: source.LONGEST])
    _take(case, catalogue, names[path], iter(sorted(lines.items())))


def _take(case: Case, catalogue: Catalogue, name: str, lines: Iterator[tuple[int, bytes]]) -> None:
    """Read one file's lines into the case."""
    counted = ((number, decode(raw)) for number, raw in lines)
    case.documents.setdefault(name, reading.node_of_name(name))
    for part, document in enumerate(reading.split(name, counted)):
        case.lines += len(document.lines)
        case.heard.update(r for line in document.lines if (r := _prefixed(line)) is not None)
        if document.node:
            case.documents[name if part == 0 else f"{name}#{part}"] = document.node
        for event in _events(document, catalogue):
            case.add(event)


def _prefixed(line: Line) -> int | None:
    """The rank that torchrun or mpirun wrote before a line; other numbers before colons may be anything."""
    if line.rank is None or line.text[:1] not in "[2\x1b":
        return None
    return line.rank if PREFIX.match(line.text) else None


def _events(document: Document, catalogue: Catalogue) -> Iterator[Event]:
    yield from reading.events(document)
    for line in document.lines:
        for event in catalogue.read(line):
            yield event if event.node else event.at(document.node)
