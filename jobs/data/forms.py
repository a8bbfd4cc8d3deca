"""Kinds of file to write: lines and lists of JSON, tables of text, Parquet."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

from jobs.data.extra import library
from jobs.data.row import Fault
from jobs.failure import JobError

BATCH_ROWS = 1024
Row = Mapping[str, Any]


class Form(Protocol):
    """A file being written. `add` raises Fault for a row that it has no place for; both raise OSError."""

    def add(self, row: Row) -> None: ...

    def close(self) -> None: ...


def form(path: Path, suffix: str, columns: Sequence[str]) -> Form:
    """For one of sink.SUFFIXES."""
    if suffix == ".parquet":
        return Parquet(path, columns)
    if suffix in (".csv", ".tsv"):
        return Table(path, columns, "\t" if suffix == ".tsv" else ",")
    return Json(path, as_list=suffix == ".json")


def _stream(path: Path) -> IO[str]:
    if path.suffix.lower() == ".gz":
        return io.TextIOWrapper(gzip.open(path, "wb"), encoding="utf-8", newline="")
    return path.open("w", encoding="utf-8", newline="")


def _finish(stream: IO[str], path: Path) -> None:
    """Onto the disk, not only into its cache: the file is about to take another's place."""
    stream.close()
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Json:
    """One object a line, with or without the marks that make it a list."""

    def __init__(self, path: Path, as_list: bool) -> None:
        self._path, self._list, self._stream, self._any = path, as_list, _stream(path), False

    def add(self, row: Row) -> None:
        if self._list:
            self._stream.write(",\n" if self._any else "[\n")
        self._stream.write(json.dumps(row, ensure_ascii=False, default=str) + ("" if self._list else "\n"))
        self._any = True

    def close(self) -> None:
        if self._list:
            self._stream.write("\n]\n" if self._any else "[]\n")
        _finish(self._stream, self._path)


class Table:
    """CSV or TSV; lists and objects as JSON in their cell."""

    def __init__(self, path: Path, columns: Sequence[str], delimiter: str) -> None:
        self._path, self._columns, self._stream = path, columns, _stream(path)
        # all fields in quotes: without, csv lets a carriage return stand bare, at which other readers cut
        how: dict[str, Any] = {"restval": "", "delimiter": delimiter, "lineterminator": "\n", "quoting": csv.QUOTE_ALL}
        self._writer = csv.DictWriter(self._stream, columns, **how)
        self._writer.writeheader()

    def add(self, row: Row) -> None:
        _placed(row, self._columns, "a table")
        self._writer.writerow({name: cell(value) for name, value in row.items()})

    def close(self) -> None:
        _finish(self._stream, self._path)


class Parquet:
    """Text, figures, truth values, and turns of a role and text.

    Turns with more than that are refused: what only some have would come back as null in all, and chat templates ask
    whether it is there.
    """

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self._path, self._columns = path, columns
        self._arrow = library("pyarrow", "a Parquet file")
        self._parquet = library("pyarrow.parquet", "a Parquet file")
        self._waiting: list[dict[str, Any]] = []
        self._writer: Any = None

    def add(self, row: Row) -> None:
        _placed(row, self._columns, "this Parquet file")
        for value in row.values():
            self._type(value)
        self._waiting.append({name: cell(v) if isinstance(v, dict) else v for name, v in row.items() if v is not None})
        if len(self._waiting) >= BATCH_ROWS:
            self._flush()

    def _type(self, value: Any) -> Any:
        if isinstance(value, list):
            fields = {key for turn in value for key in turn} if all(isinstance(t, dict) for t in value) else set()
            if fields not in ({"role", "content"}, {"from", "value"}):
                raise Fault(
                    "no-place", "Parquet has no place for lists other than turns of a role and text: use .jsonl"
                )
            if any(not isinstance(text, str) for turn in value for text in turn.values()):
                raise Fault("no-place", "Parquet has no place for content in parts: use .jsonl")
            pairs = [(name, self._arrow.string()) for name in sorted(fields, reverse=True)]
            return self._arrow.list_(self._arrow.struct(pairs))
        if isinstance(value, bool):
            return self._arrow.bool_()
        if isinstance(value, int | float):
            return self._arrow.float64() if isinstance(value, float) else self._arrow.int64()
        return self._arrow.string()

    def _flush(self) -> None:
        if self._writer is None:
            types = {name: self._type(value) for row in self._waiting for name, value in row.items()}
            schema = self._arrow.schema([(name, types[name]) for name in self._columns if name in types])
            self._writer = self._parquet.ParquetWriter(self._path, schema)
        try:
            self._writer.write_table(self._arrow.Table.from_pylist(self._waiting, schema=self._writer.schema))
        except self._arrow.ArrowException as wrong:
            why = str(wrong).splitlines()[0]
            raise JobError(f"a column of the Parquet file changes its type: {why}", "Write .jsonl instead.") from wrong
        self._waiting.clear()

    def close(self) -> None:
        if self._waiting:
            self._flush()
        if self._writer is not None:
            self._writer.close()


def _placed(row: Row, columns: Sequence[str], where: str) -> None:
    if other := [name for name in row if name not in columns]:
        raise Fault("no-place", f"{where} has no column for {', '.join(other)}")


def cell(value: Any) -> str:
    """Text for a cell: empty for nothing, JSON for what is no text."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
