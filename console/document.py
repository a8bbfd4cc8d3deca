"""A settings file: read, taken apart with its line numbers, and one kind of error for all that can be wrong with it."""

from __future__ import annotations

from pathlib import Path

import yaml

from console.strings import _
from jobs.section import SpecError


class ConfigError(Exception):
    """What is wrong, where (file and line, flag or variable) and what to do about it."""

    def __init__(self, message: str, where: str, hint: str) -> None:
        super().__init__(message)
        self.message, self.where, self.hint = message, where, hint

    def __str__(self) -> str:
        return f"{self.where}: {self.message}. {self.hint}"


def read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else _("it is not UTF-8 text")
        message = _("cannot be read: {reason}").format(reason=reason)
        raise ConfigError(message, str(file), _("Correct or remove the file.")) from error


def mapping(text: str, file: str) -> yaml.MappingNode:
    hint = _("Check indentation, quotes and brackets near that line.")
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as wrong:
        at = wrong.problem_mark.line + 1 if wrong.problem_mark else 0
        raise SpecError(_("not YAML: {why}").format(why=wrong.problem), file, at, hint) from wrong
    except (yaml.YAMLError, RecursionError) as wrong:
        raise SpecError(_("not YAML: {why}").format(why=wrong), file, 0, hint) from wrong
    if node is None:
        return yaml.MappingNode("tag:yaml.org,2002:map", [])
    if not isinstance(node, yaml.MappingNode):
        raise SpecError(_("the file is no mapping"), file, 1, _("Write `key: value` lines."))
    return node


def cut(node: yaml.MappingNode, key: str) -> yaml.Node | None:
    """Take the first pair with this key out of the mapping; a second one is left for Section to complain about."""
    for index, (name, value) in enumerate(node.value):
        if name.value == key:
            del node.value[index]
            found: yaml.Node = value
            return found
    return None


def line(node: yaml.Node) -> int:
    return node.start_mark.line + 1 if node.start_mark else 0


def config_error(wrong: SpecError) -> ConfigError:
    return ConfigError(wrong.message, f"{wrong.file}:{wrong.line}" if wrong.line else wrong.file, wrong.hint)
