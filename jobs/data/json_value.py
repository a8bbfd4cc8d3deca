"""JSON as people's programs write it: what had to be overlooked is said, never done in silence."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from jobs.data.row import Fault

_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTROL = "Invalid control character"
_WORDS = ("true", "false", "null", "NaN", "Infinity", "-Infinity")


Scan = Callable[[str, int], tuple[Any, int]]


class Parser:
    """Parses values and collects `repairs` of the last one."""

    def __init__(self) -> None:
        self.repairs: list[str] = []
        hooks: dict[str, Any] = {"object_pairs_hook": self._object, "parse_constant": self._constant}
        self._strict: Scan = json.JSONDecoder(**hooks).scan_once  # type: ignore[attr-defined]
        self._lax: Scan = json.JSONDecoder(strict=False, **hooks).scan_once  # type: ignore[attr-defined]

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            names = [name for name, _value in pairs]
            twice = ", ".join(f"`{name}`" for name in made if names.count(name) > 1)
            self.repairs.append(f"key {twice} is given more than once; the last one was kept")
        return made

    def _constant(self, word: str) -> None:
        self.repairs.append(f"{word} was read as null")

    def value(self, text: str, start: int = 0) -> tuple[Any, int]:
        """The value at `start` (no space before it) and where it ends. Raises ValueError, as json does."""
        self.repairs.clear()
        try:
            value, end = self._decoded(self._strict, text, start)
        except json.JSONDecodeError as wrong:
            if not wrong.msg.startswith(_CONTROL):
                raise
            self.repairs.clear()
            value, end = self._decoded(self._lax, text, start)
            self.repairs.append("a string holds raw control characters")
        return value, end

    def _decoded(self, scan: Scan, text: str, start: int) -> tuple[Any, int]:
        try:
            return scan(text, start)
        except StopIteration as nothing:
            raise json.JSONDecodeError("Expecting value", text, nothing.value) from None
        except RecursionError:
            raise ValueError("nested too deeply") from None

    def row(self, text: str) -> Any:
        """The one value that `text` (without space around it) holds. Raises ValueError."""
        value, end = self.value(text)
        if end != len(text):
            if text[end:].strip() != ",":
                raise json.JSONDecodeError("Extra data", text, end)
            self.repairs.append("the comma after the row was left out")
        return self.mended(value) if may_be_half(text) else value

    def mended(self, value: Any) -> Any:
        """Without halves of surrogate pairs, which no tokenizer accepts: joined where both halves are there."""
        fixed = whole_characters(value)
        if fixed is not value:
            self.repairs.append("half of a surrogate pair was joined with the other or replaced by U+FFFD")
        return fixed


def may_be_half(text: str, start: int = 0, end: int | None = None) -> bool:
    """Whether an escape is there that may stand for half of a surrogate pair; a plain search, as each row has it."""
    return text.find("\\ud", start, end) >= 0 or text.find("\\uD", start, end) >= 0


def whole_characters(value: Any) -> Any:
    """The very same object where there is nothing to do."""
    if isinstance(value, str):
        if not _SURROGATE.search(value):
            return value
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list):
        fixed = [whole_characters(item) for item in value]
        return value if all(a is b for a, b in zip(value, fixed, strict=True)) else fixed
    if isinstance(value, dict):
        made = {whole_characters(key): whole_characters(item) for key, item in value.items()}
        same = all(a is b and k is j for (k, a), (j, b) in zip(value.items(), made.items(), strict=False))
        return value if same and len(made) == len(value) else made
    return value


def incomplete(wrong: ValueError, text: str) -> bool:
    """Whether more text could have made it JSON."""
    if not isinstance(wrong, json.JSONDecodeError):
        return False
    rest = text[wrong.pos :].rstrip()
    if wrong.msg.startswith("Unterminated string") or (len(rest) <= 1 and rest in "{[,:"):
        return True
    return any(word.startswith(rest) for word in _WORDS) or ("escape" in wrong.msg and len(rest) < 6)


def fault(wrong: ValueError, text: str, cut_off: bool = False) -> Fault:
    """What is wrong, in words, with the column where it was noticed."""
    if cut_off and incomplete(wrong, text):
        return Fault("truncated", "the file ends in the middle of this row")
    if not isinstance(wrong, json.JSONDecodeError):
        return Fault("not-json", f"is not JSON: {wrong}")
    column = wrong.pos - text.rfind("\n", 0, wrong.pos)
    quoted = " (single quotes: Python's, not JSON's)" if re.match(r"[\[{]\s*'", text) else ""
    return Fault("not-json", f"is not JSON: {wrong.msg.lower()}, column {column}{quoted}")
