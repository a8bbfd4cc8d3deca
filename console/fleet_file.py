"""fleet.yaml: which nodes there are and how each differs from what ssh_config says. See configs/fleet.example.yaml."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

from console.document import config_error, cut, line, mapping, read
from console.nodeset import expand
from console.strings import _
from console.target import Target
from jobs.section import Section, SpecError


def read_fleet(file: Path) -> tuple[Target, ...]:
    """The nodes of a fleet.yaml; none where there is no such file. Raises ConfigError."""
    text = read(file)
    if not text.strip():
        return ()
    try:
        return _fleet(text, str(file))
    except SpecError as wrong:
        raise config_error(wrong) from wrong


def _fleet(text: str, file: str) -> tuple[Target, ...]:
    top = mapping(text, file)
    listed = cut(top, "nodes")
    section = Section(top, file)
    defaults = _wishes(section.part("defaults"))
    section.close()
    if not isinstance(listed, yaml.SequenceNode):
        hint = _("List them: `nodes:` and below it one `- name` a line, for example `- gpu[01-16]`.")
        raise SpecError(_("nodes is missing or no list"), file, line(listed or top), hint)
    found: dict[str, Target] = {}
    for item in listed.value:
        for target in _targets(item, file, defaults):
            if target.name in found:
                hint = _("Remove one of the two.")
                raise SpecError(_("{name} is listed twice").format(name=target.name), file, line(item), hint)
            found[target.name] = target
    return tuple(found.values())


@dataclass(frozen=True, slots=True)
class _Wishes:
    """What an entry, or `defaults`, says beside the name."""

    port: int | None
    user: str | None
    identity: tuple[Path, ...]
    known_hosts: tuple[Path, ...]
    jump: str | None
    home: str | None
    python: str | None


def _wishes(section: Section, base: _Wishes | None = None) -> _Wishes:
    port = section.whole("port", base.port or 0 if base else 0, 0, 65535)
    return _Wishes(
        port or None,
        section.text("user", base.user if base else None),
        _paths(section, "identity") or (base.identity if base else ()),
        _paths(section, "known_hosts") or (base.known_hosts if base else ()),
        section.text("jump", base.jump if base else None),
        section.text("home", base.home if base else None),
        section.text("python", base.python if base else None),
    )


def _paths(section: Section, key: str) -> tuple[Path, ...]:
    words = section.words(key)
    return tuple(Path(word).expanduser() for word in ((words,) if isinstance(words, str) else words or ()))


def _targets(item: yaml.Node, file: str, defaults: _Wishes) -> list[Target]:
    """One entry of `nodes`: a node set as text, or a mapping with `name` and what differs from the defaults."""
    if isinstance(item, yaml.ScalarNode):
        names, host, wishes = str(item.value), "", defaults
    elif isinstance(item, yaml.MappingNode):
        section = Section(item, file)
        names = section.required("name", _("Give every node a `name`."))
        host, wishes = section.text("host", "") or "", _wishes(section, defaults)
        section.close()
    else:
        raise SpecError(_("a node is neither a name nor a mapping"), file, line(item), _("Write `- name`."))
    try:
        expanded = expand(names)
        if host and len(expanded) > 1:
            raise ValueError(_("one host cannot be {count} nodes").format(count=len(expanded)))
        return [_target(name, host, wishes) for name in expanded]
    except ValueError as error:
        raise SpecError(
            str(error), file, line(item), _("Correct the entry; see configs/fleet.example.yaml.")
        ) from error


def _target(name: str, host: str, wishes: _Wishes) -> Target:
    said = Target.parse(name) if not host else Target(name, host)
    return Target(
        name=said.name,
        host=said.host,
        port=said.port or wishes.port,
        user=said.user or wishes.user,
        identity_files=wishes.identity,
        known_hosts=wishes.known_hosts,
        jump=wishes.jump,
        home=wishes.home,
        python=wishes.python,
    )
