"""Training examples as they lie on disk: Alpaca rows (JSON or JSON lines) and plain text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.failure import JobError


@dataclass(frozen=True, slots=True)
class Instruction:
    """One row in the layout of Stanford Alpaca: what is asked, on what, and what the model should answer."""

    instruction: str
    input: str
    output: str

    @property
    def question(self) -> str:
        return f"{self.instruction}\n\n{self.input}" if self.input else self.instruction


@dataclass(frozen=True, slots=True)
class Passage:
    """Text to be learned as a whole."""

    text: str


Example = Instruction | Passage


@dataclass(frozen=True, slots=True)
class Examples:
    """`skipped` counts rows with nothing to learn (empty output or text), as real data sets have some.

    `sha256` is that of the whole file: a place in the data means the same examples only in the same file.
    """

    rows: tuple[Example, ...]
    skipped: int
    sha256: str


def read(path: Path, layout: str = "auto") -> Examples:
    """Reads a whole data set. `layout`: auto, alpaca or text. Raises JobError naming the row that is wrong."""
    try:
        raw = path.read_bytes()
        content = raw.decode("utf-8-sig")
    except OSError as wrong:
        raise JobError(f"{path} cannot be read: {wrong.strerror}", "Correct data.path in the spec.") from wrong
    except UnicodeDecodeError as wrong:
        raise JobError(f"{path} is not UTF-8 at byte {wrong.start}", "Convert it, for example with iconv.") from wrong
    rows = list(_passages(content) if path.suffix == ".txt" else _rows(content, path, layout))
    full = tuple(row for row in rows if _has_content(row))
    if not full:
        raise JobError(f"{path} holds no examples", "Give rows with an `instruction` and an `output`, or text.")
    return Examples(full, len(rows) - len(full), hashlib.sha256(raw).hexdigest())


def _has_content(row: Example) -> bool:
    return bool((row.output if isinstance(row, Instruction) else row.text).strip())


def _passages(content: str) -> Iterator[Example]:
    """Paragraphs: blocks of lines between empty lines."""
    for block in content.replace("\r\n", "\n").split("\n\n"):
        if block.strip():
            yield Passage(block.strip("\n"))


def _rows(content: str, path: Path, layout: str) -> Iterator[Example]:
    for where, value in _objects(content, path):
        if not isinstance(value, dict):
            raise _wrong(path, where, f"is {type(value).__name__}, expected an object", "Write one {...} per row.")
        if layout == "text" or (layout == "auto" and "text" in value and "output" not in value):
            yield Passage(_text(value, "text", path, where))
        else:
            yield Instruction(
                instruction=_text(value, "instruction", path, where),
                input=_text({"input": "", **value}, "input", path, where),
                output=_text(value, "output", path, where),
            )


def _objects(content: str, path: Path) -> Iterator[tuple[str, Any]]:
    """Every row with the words that say where it is."""
    if content.lstrip().startswith("["):
        try:
            rows = json.loads(content)
        except ValueError as wrong:
            raise JobError(f"{path} is not JSON: {wrong}", "Correct the file near that line.") from wrong
        yield from ((f"row {number}", row) for number, row in enumerate(rows, 1))
        return
    # split on the newline only: splitlines() would also break at characters that JSON allows inside strings
    for number, line in enumerate(content.split("\n"), 1):
        if not line.strip():
            continue
        try:
            yield f"line {number}", json.loads(line)
        except ValueError as wrong:
            raise _wrong(path, f"line {number}", f"is not JSON: {wrong}", "Write one JSON object per line.") from wrong


def _text(value: dict[str, Any], key: str, path: Path, where: str) -> str:
    found = value.get(key)
    if found is None:
        keys = ", ".join(map(str, list(value)[:6])) or "none"
        raise _wrong(path, where, f"has no `{key}` (keys found: {keys})", "Rows need `instruction` and `output`.")
    if not isinstance(found, str):
        raise _wrong(path, where, f"`{key}` is {type(found).__name__}, expected text", "Write it in quotes.")
    return found


def _wrong(path: Path, where: str, message: str, hint: str) -> JobError:
    return JobError(f"{path}, {where}: {message}", hint)
