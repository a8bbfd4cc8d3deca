"""Tables that are not text: Parquet, Arrow and Excel, in batches. Places are row numbers, from 1."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

from jobs.data.extra import library
from jobs.data.json_value import Parser
from jobs.data.row import Fault, Row
from jobs.failure import JobError

BATCH_ROWS = 512
KINDS = ("parquet", "arrow", "xlsx")


def rows(path: Path, kind: str) -> Iterator[Row]:
    """Every row. Raises JobError where the library is missing or the file is broken as a whole."""
    read = {"parquet": _parquet, "arrow": _arrow, "xlsx": _xlsx}[kind]
    parser = Parser()
    for number, value in enumerate(read(path), 1):
        if isinstance(value, Fault):
            yield Row(number, fault=value)
        elif any(cell is not None for cell in value.values()):
            parser.repairs.clear()
            fixed = parser.mended(value)
            yield Row(number, fixed, tuple(parser.repairs))


def _parquet(path: Path) -> Iterator[Any]:
    arrow = library("pyarrow", "a Parquet file")
    parquet = library("pyarrow.parquet", "a Parquet file")
    try:
        with parquet.ParquetFile(path) as table:
            yield from _batches(table.iter_batches(batch_size=BATCH_ROWS))
    except (arrow.ArrowException, OSError) as wrong:
        raise _broken(path, "Parquet", wrong) from wrong


def _arrow(path: Path) -> Iterator[Any]:
    arrow = library("pyarrow", "an Arrow file")
    ipc = library("pyarrow.ipc", "an Arrow file")
    try:
        with arrow.memory_map(str(path)) as source:
            if source.read(6) == b"ARROW1":
                source.seek(0)
                table = ipc.open_file(source)
                yield from _batches(table.get_batch(i) for i in range(table.num_record_batches))
            else:
                source.seek(0)
                yield from _batches(ipc.open_stream(source))
    except (arrow.ArrowException, OSError) as wrong:
        raise _broken(path, "Arrow", wrong) from wrong


def _batches(batches: Iterable[Any]) -> Iterator[Any]:
    for batch in batches:
        for start in range(0, batch.num_rows, BATCH_ROWS):
            try:
                yield from batch.slice(start, BATCH_ROWS).to_pylist()
            except UnicodeDecodeError:
                yield from _one_by_one(batch, start)


def _one_by_one(batch: Any, start: int) -> Iterator[Any]:
    for at in range(start, min(start + BATCH_ROWS, batch.num_rows)):
        try:
            yield batch.slice(at, 1).to_pylist()[0]
        except UnicodeDecodeError as wrong:
            yield Fault("bad-bytes", f"has bytes that are not UTF-8: {wrong.reason}")


def _xlsx(path: Path) -> Iterator[Any]:
    """The first sheet; its first row that is not empty names the columns."""
    excel = library("openpyxl", "an Excel file")
    try:
        book = excel.load_workbook(path, read_only=True, data_only=True)
    except (OSError, ValueError, KeyError, BadZipFile, excel.utils.exceptions.InvalidFileException) as wrong:
        raise _broken(path, "Excel", wrong) from wrong
    header: list[str] = []
    for record in book.worksheets[0].iter_rows(values_only=True):
        if not header:
            header = [str(cell).strip() for cell in record] if any(cell is not None for cell in record) else []
            yield {}
            continue
        yield {name: cell for name, cell in zip(header, record, strict=False) if name != "None"}
    book.close()


def _broken(path: Path, kind: str, wrong: Exception) -> JobError:
    return JobError(f"{path} is not a whole {kind} file: {str(wrong).splitlines()[0]}", "Copy or write it again.")
