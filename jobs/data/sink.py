"""Rows into a file that is whole or absent: written beside its place, then moved there."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jobs.data.columns import TAKEN
from jobs.data.forms import form
from jobs.failure import JobError

SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet")


def kind_of(path: Path, force: bool) -> str:
    """The suffix that says how to write. Raises JobError where `path` may not be written or says no kind."""
    suffixes = [s.lower() for s in path.suffixes if s.lower() != ".gz"]
    if not suffixes or suffixes[-1] not in SUFFIXES:
        raise JobError(f"{path.name} says no kind of file", f"End its name in {', '.join(SUFFIXES)}.")
    if path.exists() and not force:
        raise JobError(f"{path} is there already", "Name another file, or add --force.")
    return suffixes[-1]


class Sink:
    """Add rows, look at what was written (`staging`), then `publish`. Left without that, nothing remains."""

    def __init__(self, path: Path, columns: Sequence[str], force: bool = False) -> None:
        """`columns`: of tables; rows with others are refused. Raises JobError where `path` cannot be written."""
        self.path, self.rows, self._open = path, 0, True
        suffix = kind_of(path, force)
        self.staging = path.parent / f".{secrets.token_hex(4)}-{path.name}"
        with self._writing():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._form = form(self.staging, suffix, columns)

    def __enter__(self) -> Sink:
        return self

    def __exit__(self, *_left: object) -> None:
        try:
            self.close()
        finally:
            self.staging.unlink(missing_ok=True)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as wrong:
            why = wrong.strerror or str(wrong)
            raise JobError(f"{self.path} cannot be written: {why}", "Make room, or name another place.") from wrong

    def add(self, row: Mapping[str, Any]) -> None:
        """Raises Fault where the file has no place for the row, JobError where it cannot be written."""
        with self._writing():
            self._form.add(row)
        self.rows += 1

    def close(self) -> None:
        """What has been added is in `staging` now. Raises JobError."""
        if self._open:
            self._open = False
            with self._writing():
                self._form.close()

    def publish(self) -> None:
        """Moves the file to its place. Raises JobError."""
        self.close()
        with self._writing():
            self.staging.replace(self.path)


def columns_for(layout: str) -> tuple[str, ...]:
    """Of a table with rows of this layout, as they are written."""
    own = {
        "sharegpt": ("conversations", "tools"),
        "chat": ("messages", "tools"),
        "preference": ("prompt", "chosen", "rejected", "tools", "margin"),
        "reward": ("chosen", "rejected", "tools", "margin"),
        "kto": ("prompt", "completion", "label", "tools"),
    }
    return own.get(layout) or TAKEN[layout]
