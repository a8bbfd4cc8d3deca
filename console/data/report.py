"""Findings on the way to the reader: as lines, a few of each kind; as one JSON document; into a file, all of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from agent.wire import clean
from console.data.progress import Progress
from console.failure import Failure
from console.format import count, size
from console.strings import _
from jobs.data.columns import NOTHING
from jobs.data.finding import Finding
from jobs.data.reading import DataSet

SHOWN = 20
"""Lines of one kind; the rest is counted, and `--all` and `--report` have them."""


class Report:
    """Takes findings one by one, so that any number of them passes."""

    def __init__(self, data: DataSet, progress: Progress, as_json: bool, every: bool, keep: Path | None) -> None:
        self._data, self._progress, self._json, self._every = data, progress, as_json, every
        self._kept = _opened(keep) if keep else None
        self._times: Counter[tuple[str, str]] = Counter()

    def take(self, findings: Iterable[Finding]) -> None:
        """Shows all of them as they come."""
        self._data.prepare()
        if self._json:
            print('{"findings": [', end="")
        else:
            self._head()
        first = True
        for finding in findings:
            self._times[finding.level, finding.kind] += 1
            if self._kept:
                self._kept.write(json.dumps(asdict(finding), ensure_ascii=False) + "\n")
            if self._json:
                print("" if first else ",", json.dumps(asdict(finding), ensure_ascii=False), sep="\n", end="")
            elif self._every or self._times[finding.level, finding.kind] <= SHOWN:
                self._progress.clear()
                print(clean(f"  {finding.level:9} {finding}"))
            first = False
        self._progress.clear()
        if self._kept:
            self._kept.close()

    def close(self, more: dict[str, Any], last: Iterable[str]) -> None:
        """The end of the document, or the last lines."""
        if self._json:
            rest = json.dumps({"files": [_file(self._data, i) for i in range(len(self._data.columns))], **more})
            print(f"\n], {rest[1:]}")
            return
        for (level, kind), times in sorted(self._times.items()):
            if times > SHOWN and not self._every:
                hidden = _("  {level:9} … and {n} more of kind {kind}: --all shows them, --report FILE keeps them")
                print(hidden.format(level=level, n=count(times - SHOWN), kind=kind))
        for line in last:
            print(line)

    def _head(self) -> None:
        for file in range(len(self._data.columns)):
            for line in header(self._data, file):
                print(clean(line))


def header(data: DataSet, file: int) -> list[str]:
    """One file: what it is, its layout and columns, and what is odd about it."""
    source, columns = data.sources[file], data.columns[file]
    lines = [f"{source.path}: {source.kind}, {size(source.size_bytes)}"]
    if columns.layout != NOTHING:
        seen = _("{seen} of the first {n} rows have them").format(seen=count(columns.seen), n=count(columns.sampled))
        lines.append(f"  {columns.layout}: {columns.describe()} ({seen})")
    if columns.left_out:
        lines.append(_("  columns without use here: {names}").format(names=", ".join(columns.left_out[:12])))
    return [*lines, *(f"  {note}" for note in source.notes)]


def _file(data: DataSet, number: int) -> dict[str, Any]:
    source, columns = data.sources[number], data.columns[number]
    return {
        "file": str(source.path),
        "kind": source.kind,
        "encoding": source.text.charset.name if source.text else None,
        "notes": source.notes,
        "format": None if columns.layout == NOTHING else columns.layout,
        "columns": dict(columns.column),
        "left_out": list(columns.left_out),
    }


def _opened(path: Path) -> IO[str]:
    try:
        return path.open("w", encoding="utf-8")
    except OSError as wrong:
        raise Failure(_("{path} cannot be written: {why}").format(path=path, why=wrong.strerror)) from wrong
