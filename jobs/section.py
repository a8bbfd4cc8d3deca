"""A YAML mapping that is taken apart by name and knows the line of everything that is wrong with it."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, TypeVar

import yaml

Number = TypeVar("Number", int, float)

TEXT_LIMIT_CHARS = 256 * 1024
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = frozenset({"true", "True", "TRUE", "yes", "on"})
_FALSE = frozenset({"false", "False", "FALSE", "no", "off"})


class SpecError(Exception):
    """What is wrong with a run spec, where (file and line, 1-based; 0 = no line), and what to do about it."""

    def __init__(self, message: str, file: str, line: int, hint: str) -> None:
        super().__init__(message)
        self.message, self.file, self.line, self.hint = message, file, line, hint

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return f"{where}: {self.message}. {self.hint}"


class Section:
    """One mapping. Take what is expected with the typed methods, then `close`: what is left is unknown."""

    def __init__(self, node: yaml.MappingNode, file: str, name: str = "", line: int = 1) -> None:
        """`line` stands for the section where it was left out."""
        self._file, self._name, self._line = file, name, _line(node) or line
        self._left: dict[str, yaml.Node] = {}
        self._known: list[str] = []
        self.lines: dict[str, int] = {}
        for key, value in node.value:
            word = key.value if isinstance(key, yaml.ScalarNode) else "?"
            if word in self._left:
                raise SpecError(f"{self._full(word)} is given twice", file, _line(key), "Remove one of the two.")
            self._left[word] = value
            self.lines[self._full(word)] = _line(key)

    @classmethod
    def parse(cls, text: str, file: str) -> Section:
        """The top mapping of a YAML text. Raises SpecError for anything that is not one."""
        if len(text) > TEXT_LIMIT_CHARS:
            raise SpecError(f"the file is longer than {TEXT_LIMIT_CHARS} characters", file, 0, "This is no run spec.")
        try:
            node = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as wrong:
            mark = wrong.problem_mark
            raise SpecError(f"not YAML: {wrong.problem}", file, mark.line + 1 if mark else 0, _YAML_HINT) from wrong
        except (yaml.YAMLError, RecursionError) as wrong:
            raise SpecError(f"not YAML: {wrong}", file, 0, _YAML_HINT) from wrong
        if not isinstance(node, yaml.MappingNode):
            raise SpecError(
                "the spec is empty or no mapping", file, 1, "Write `key: value` lines: model, data, method."
            )
        return cls(node, file)

    def _full(self, key: str) -> str:
        return f"{self._name}.{key}" if self._name else key

    def wrong(self, key: str, message: str, hint: str) -> SpecError:
        """The error for `key` of this section, at its line (or the section's where the key is missing)."""
        return SpecError(f"{self._full(key)} {message}", self._file, self.lines.get(self._full(key), self._line), hint)

    def _take(self, key: str) -> yaml.Node | None:
        self._known.append(key)
        node = self._left.pop(key, None)
        empty = isinstance(node, yaml.ScalarNode) and node.style is None and node.value in _NULL
        return None if empty else node

    def _word(self, key: str, expected: str) -> str | None:
        node = self._take(key)
        if node is None:
            return None
        if not isinstance(node, yaml.ScalarNode):
            kind = "a list" if isinstance(node, yaml.SequenceNode) else "a mapping"
            raise self.wrong(key, f"is {kind}, expected {expected}", f"Write `{key}: {_example(expected)}`.")
        return str(node.value)

    def has(self, key: str) -> bool:
        return key in self._left

    def text(self, key: str, default: str | None = None) -> str | None:
        word = self._word(key, "text")
        return default if word is None else word

    def required(self, key: str, hint: str) -> str:
        word = self.text(key)
        if word is None:
            raise self.wrong(key, "is missing", hint)
        return word

    def choice(self, key: str, default: str, among: Sequence[str]) -> str:
        word = self._word(key, "one word")
        if word is None:
            return default
        if word not in among:
            raise self.wrong(key, f"is {word!r}", f"{_did_you_mean(word, among)}Choose one of: {', '.join(among)}.")
        return word

    def flag(self, key: str, default: bool) -> bool:
        word = self._word(key, "true or false")
        if word is None:
            return default
        if word not in _TRUE | _FALSE:
            raise self.wrong(key, f"is {word!r}, expected true or false", f"Write `{key}: true` or `{key}: false`.")
        return word in _TRUE

    def whole(self, key: str, default: int, low: int, high: int) -> int:
        word = self._word(key, "a whole number")
        return default if word is None else self._number(key, word, int, "a whole number", low, high)

    def real(self, key: str, default: float, low: float, high: float) -> float:
        word = self._word(key, "a number")
        return default if word is None else self._number(key, word, float, "a number", low, high)

    def _number(self, key: str, word: str, kind: type[Number], named: str, low: Number, high: Number) -> Number:
        try:
            # read by hand: YAML 1.1 takes 2e-4 for text, and people write learning rates that way
            value = kind(word)
        except ValueError:
            raise self.wrong(key, f"is {word!r}, expected {named}", f"Use {named} from {low} to {high}.") from None
        if not low <= value <= high:
            raise self.wrong(key, f"is {word}, out of range", f"Use {named} from {low} to {high}.")
        return value

    def words(self, key: str) -> str | tuple[str, ...] | None:
        """A single word, or a list of them."""
        if not isinstance(self._left.get(key), yaml.SequenceNode):
            return self.text(key)
        node = self._take(key)
        assert isinstance(node, yaml.SequenceNode)
        if not node.value or not all(isinstance(item, yaml.ScalarNode) for item in node.value):
            raise self.wrong(key, "is not a list of names", f"Write `{key}: [q_proj, v_proj]`.")
        return tuple(str(item.value) for item in node.value)

    def listed(self, key: str) -> tuple[str, ...]:
        """As `words`, a single one as a list of one; empty where it is absent."""
        found = self.words(key)
        return () if found is None else (found,) if isinstance(found, str) else found

    def part(self, key: str) -> Section:
        """The mapping under `key`; an empty one where it is absent."""
        node = self._take(key)
        if node is None:
            return Section(yaml.MappingNode("tag:yaml.org,2002:map", []), self._file, self._full(key), self._line)
        if not isinstance(node, yaml.MappingNode):
            raise self.wrong(key, "is not a mapping", f"Write the settings of {key} as indented `key: value` lines.")
        return Section(node, self._file, self._full(key))

    def close(self) -> dict[str, int]:
        """Raises SpecError for the first key nobody took; else gives the line of every key that was given."""
        for word in self._left:
            hint = _did_you_mean(word, self._known) or f"Known here: {', '.join(self._known)}. "
            raise self.wrong(word, "is not a setting", f"{hint}Remove it or correct the spelling.")
        return self.lines


_YAML_HINT = "Check indentation, quotes and brackets near that line."


def _line(node: Any) -> int:
    return node.start_mark.line + 1 if node.start_mark else 0


def _example(expected: str) -> str:
    return {"a whole number": "8", "a number": "0.1", "true or false": "true"}.get(expected, "value")


def _did_you_mean(word: str, among: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, among, n=1, cutoff=0.5)
    return f"Did you mean `{close[0]}`? " if close else ""
