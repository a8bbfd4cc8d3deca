"""Files that rows come from: named one by one, as folders or as patterns; of which kind is seen from their content."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from jobs.data import json_lines, json_stream, prose, separated, table
from jobs.data.json_value import Parser
from jobs.data.row import Fault, Row
from jobs.data.text import Text, opened
from jobs.failure import JobError

SUFFIXES = (".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".txt", ".md", ".parquet", ".arrow", ".xlsx")
NO_DATA = frozenset({"dataset_info.json", "dataset_infos.json", "state.json", "dataset_dict.json", "README.md"})
"""What the datasets library and model hubs lay beside the data."""
_HELD_BACK = re.compile(r"(^|[-_./])(test|eval|valid|validation|val|dev|heldout)([-_.]|$)", re.IGNORECASE)


def found(names: Sequence[str]) -> list[Path]:
    """The files behind names, folders and patterns, each once. Raises JobError for a name that gives none."""
    files: dict[Path, None] = {}
    for name in names:
        path = Path(name).expanduser()
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if _is_data(p, path))
            if not inside:
                raise JobError(f"{path} holds no data files", f"Looked for {', '.join(SUFFIXES)}.")
            files.update(dict.fromkeys(inside))
        elif path.exists():
            if not path.is_file():
                raise JobError(f"{path} is no file", "A pipe or device cannot be read twice: save it to a file first.")
            files[path] = None
        else:
            top = Path(path.anchor or ".")
            matched = [p for p in sorted(top.glob(str(path.relative_to(path.anchor)))) if _may_match(p, path)]
            if not matched:
                raise JobError(f"{name} is not there", "Name a file, a folder or a pattern such as 'data/*.jsonl'.")
            files.update(dict.fromkeys(matched))
    return list(files)


def _may_match(match: Path, pattern: Path) -> bool:
    """As in a shell, hidden files only where the pattern says so."""
    hidden = any(part.startswith(".") and part not in pattern.parts for part in match.parts)
    return match.is_file() and match.name not in NO_DATA and (not hidden or pattern.name.startswith("."))


def _is_data(path: Path, top: Path) -> bool:
    hidden = any(part.startswith(".") for part in path.relative_to(top).parts)
    suffixes = [s for s in path.suffixes if s != ".gz"]
    return path.is_file() and not hidden and path.name not in NO_DATA and bool(suffixes) and suffixes[-1] in SUFFIXES


def held_back(path: Path) -> bool:
    """Whether the name says that the file is for evaluation: test.jsonl, my-eval-2.csv, validation-00000.parquet."""
    return bool(_HELD_BACK.search(path.name))


class Source:
    """One file. `kind` is what it is; `notes` what is odd about the file as a whole."""

    def __init__(self, path: Path, encoding: str | None = None) -> None:
        self.path = path
        self.notes: list[str] = []
        try:
            self.size_bytes = path.stat().st_size
        except OSError as wrong:
            raise JobError(f"{path} cannot be read: {wrong.strerror}", "Correct the path.") from wrong
        self.kind = _table(path)
        self.text = None if self.kind else Text(path, encoding)
        if self.text is not None:
            self.kind = self._text_kind(self.text)
            self._remark(self.text)

    @property
    def unit(self) -> str:
        return "row" if self.text is None else "line"

    @property
    def position_bytes(self) -> int:
        return 0 if self.text is None else self.text.position_bytes

    def rows(self) -> Iterator[Row]:
        """Every row, also those that cannot be used. Raises JobError where the file as a whole cannot be read."""
        if self.size_bytes == 0:
            yield Row(1, fault=Fault("empty-file", "the file is empty"))
            return
        if self.text is None:
            yield from table.rows(self.path, self.kind)
            return
        reader = {
            "json lines": json_lines.rows,
            "json list": json_stream.rows,
            "json objects": json_stream.rows,
            "csv": separated.rows,
            "tsv": separated.rows,
            "text": prose.rows,
        }[self.kind]
        yield from reader(self.text)

    def _text_kind(self, text: Text) -> str:
        head = text.head().lstrip("\ufeff \t\r\n")
        suffix = _suffix(self.path)
        if suffix in (".txt", ".md"):
            return "text"
        json_like = re.match(r'\{\s*"|\[\s*[\[{\]"]|\{\s*\}', head) is not None
        if suffix in (".csv", ".tsv") and not json_like:
            return suffix[1:]
        if head[:1] not in ("{", "[") and suffix not in (".json", ".jsonl", ".ndjson") and head:
            raise JobError(f"{self.path} is of no known kind", f"Known: {', '.join(SUFFIXES)}, each also as .gz.")
        return _json_kind(head)

    def _remark(self, text: Text) -> None:
        suffix, written = _suffix(self.path), text.charset
        if written.name != "utf-8" or written.mark_bytes:
            self.notes.append(f"written in {written.name}{' with a byte order mark' if written.mark_bytes else ''}")
        if written.newline != "\n":
            self.notes.append(f"lines end in {'CR LF' if len(written.newline) == 2 else 'CR alone'}")
        if (suffix in (".jsonl", ".ndjson") and self.kind != "json lines") or (
            suffix in (".csv", ".tsv") and self.kind.startswith("json")
        ):
            self.notes.append(f"named {suffix}, but it holds {_WORDS[self.kind]}")
        if suffix == ".json" and self.kind == "json lines":
            self.notes.append("named .json, but it holds JSON lines")
        if self.kind in ("csv", "tsv"):
            mark = separated.delimiter(text.head(), suffix)
            if mark != {"csv": ",", "tsv": "\t"}[self.kind]:
                self.notes.append(f"fields are separated by {mark!r}")


_WORDS = {
    "json lines": "JSON lines",
    "json list": "one JSON list",
    "json objects": "JSON objects over several lines",
}


def _suffix(path: Path) -> str:
    suffixes = [s.lower() for s in path.suffixes if s.lower() != ".gz"]
    return suffixes[-1] if suffixes else ""


def _table(path: Path) -> str:
    """The kind of a file that is not text; empty for text. Raises JobError for a kind that cannot be read."""
    with opened(path) as (stream, _raw):
        start = stream.read(8)
    if start.startswith(b"PAR1"):
        return "parquet"
    if start.startswith(b"ARROW1") or (path.suffix == ".arrow" and start[:4] == b"\xff\xff\xff\xff"):
        return "arrow"
    if start.startswith(b"PK\x03\x04") and path.suffix == ".xlsx":
        return "xlsx"
    if path.suffix in (".parquet", ".arrow", ".xlsx") and start:
        raise JobError(f"{path} is not what its name says", "It may be a pointer of Git LFS or cut off: get it again.")
    if start.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ")):
        raise JobError(f"{path} is an archive or an old Excel file", "Unpack it, or save it as .xlsx or .csv.")
    return ""


def _json_kind(head: str) -> str:
    if json_stream.WRAPPER.match(head):
        return "json list"
    first, newline, rest = head.partition("\n")
    if head.startswith("["):
        # lists one a line: each is a conversation
        return "json lines" if _whole(first.strip()) and rest.lstrip().startswith("[") else "json list"
    if head.startswith("{") and not newline and len(head) >= 65536:
        return "json objects"
    pretty = newline and not _whole(first.strip()) and first.rstrip().endswith(("{", "[", ",", ":"))
    return "json objects" if pretty else "json lines"


def _whole(text: str) -> bool:
    try:
        Parser().row(text)
    except ValueError:
        return False
    return True
