"""The catalogue of faults (configs/faults.yaml and a user's own file): texts to read, signatures to search."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

import configs
from agent.formats.event import Event, Pattern, match
from agent.formats.line import Line
from agent.formats.nccl import HEAD

SHIPPED = "faults.yaml"
OWNERS = ("network", "hardware", "platform", "framework", "user code")
NAMES = ("printer", "rank", "none")


class CatalogueError(ValueError):
    """A faults file that cannot be used: says which entry and what to do."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What to tell about one kind of fault."""

    name: str
    title: str
    owner: str
    remedy: str
    following: tuple[str, ...]
    source: str


@dataclass(frozen=True, slots=True)
class Signature:
    """A message that shows a kind by itself. ``variable``: the NCCL variable whose line is quoted along."""

    kind: str
    names: str
    weight: float
    variable: str


@dataclass(slots=True)
class Catalogue:
    """Kinds by name, and the patterns of all signatures. Event kinds are `signature.<event>` and `fault.<number>`."""

    kinds: dict[str, Kind] = field(default_factory=dict)
    patterns: list[Pattern] = field(default_factory=list)
    direct: dict[str, Signature] = field(default_factory=dict)

    def read(self, line: Line) -> Iterator[Event]:
        """Signature events of one line, placed by NCCL's own head where the line has one."""
        head = HEAD.search(line.body) if "INFO" in line.body or "WARN" in line.body else None
        said = {k: v for k, v in head.groupdict().items() if v is not None} if head else {}
        yield from match(self.patterns, line, line.body, said)

    def literals(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(p.literal for p in self.patterns))


def load(own: Path | None = None) -> Catalogue:
    """The shipped catalogue, with a user's file laid over it. Raises CatalogueError."""
    catalogue = Catalogue()
    _take(catalogue, configs.load(SHIPPED), f"configs/{SHIPPED}")
    if own is not None:
        _take(catalogue, _parsed(own), str(own))
    return catalogue


def _parsed(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CatalogueError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise CatalogueError(f"{path}: not valid YAML ({error}); see configs/{SHIPPED} for the shape") from error


def _take(catalogue: Catalogue, content: Any, where: str) -> None:
    kinds = content.get("kinds") if isinstance(content, Mapping) else None
    if not isinstance(kinds, Mapping):
        raise CatalogueError(f"{where}: has no `kinds:` mapping; see configs/{SHIPPED} for the shape")
    for name, entry in kinds.items():
        if not isinstance(entry, Mapping):
            raise CatalogueError(f"{where}: kind {name} is not a mapping; see configs/{SHIPPED} for the shape")
        known = catalogue.kinds.get(str(name))
        if known is None or "title" in entry:
            catalogue.kinds[str(name)] = _kind(str(name), entry, where)
        for signature in entry.get("signatures", ()):
            _sign(catalogue, str(name), signature, where)


def _kind(name: str, entry: Mapping[str, Any], where: str) -> Kind:
    missing = [k for k in ("title", "owner", "remedy", "source") if not isinstance(entry.get(k), str)]
    if missing:
        raise CatalogueError(f"{where}: kind {name} lacks {', '.join(missing)}; each is one line of text")
    if entry["owner"] not in OWNERS:
        raise CatalogueError(f"{where}: kind {name} has owner {entry['owner']!r}; use one of {', '.join(OWNERS)}")
    following = tuple(str(n) for n in entry.get("next", ()))
    return Kind(name, entry["title"], entry["owner"], entry["remedy"], following, entry["source"])


def _sign(catalogue: Catalogue, kind: str, entry: Any, where: str) -> None:
    if not isinstance(entry, Mapping) or not all(isinstance(entry.get(k), str) for k in ("literal", "match", "source")):
        raise CatalogueError(f"{where}: a signature of {kind} needs `literal`, `match` and `source` as text")
    try:
        expression = re.compile(entry["match"])
    except re.error as error:
        raise CatalogueError(f"{where}: `match` of {kind} is not an expression ({error}): {entry['match']}") from error
    if "event" in entry:
        name = f"signature.{entry['event']}"
    else:
        name = f"fault.{len(catalogue.direct)}"
        names = entry.get("names", "printer")
        if names not in NAMES:
            raise CatalogueError(f"{where}: `names` of {kind} is {names!r}; use one of {', '.join(NAMES)}")
        catalogue.direct[name] = Signature(kind, names, float(entry.get("weight", 70)), str(entry.get("with", "")))
    catalogue.patterns.append(Pattern(name, entry["literal"], expression))
