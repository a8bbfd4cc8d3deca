"""What the user has set: flags before TUNEDECK_* before config.yaml before the defaults; the nodes from fleet.yaml.

Files lie in ``$XDG_CONFIG_HOME/tunedeck`` (default ~/.config/tunedeck); what the console remembers itself, in
``$XDG_STATE_HOME/tunedeck`` (default ~/.local/state/tunedeck).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from console.document import ConfigError, config_error, cut, line, mapping, read
from console.fleet_file import read_fleet
from console.nodeset import expand
from console.strings import _
from console.target import Target
from jobs.section import Section, SpecError

SSH = ("auto", "system")
_TRUE = ("1", "true", "yes", "on")
_FALSE = ("", "0", "false", "no", "off")


@dataclass(frozen=True, slots=True)
class Config:
    nodes: tuple[Target, ...]
    config_dir: Path
    state_dir: Path
    read_only: bool = False
    """Levels, events and logs only; the node itself refuses orders that change anything."""
    ssh: str = "auto"
    """auto: built in where it can, the system's ssh where it must | system: always the system's ssh"""
    accept_host_keys: tuple[str, ...] = ()
    """Fingerprints (SHA256:…) the user vouches for."""
    theme: str = ""
    keys: Mapping[str, str] = field(default_factory=dict)

    @property
    def fleet_file(self) -> Path:
        return self.config_dir / "fleet.yaml"

    @property
    def known_hosts(self) -> Path:
        """Where host keys accepted in the console are kept; ssh's own files are read, never written."""
        return self.state_dir / "known_hosts"


def folders(environ: Mapping[str, str]) -> tuple[Path, Path]:
    """(configuration, state). Relative XDG values are invalid by the XDG specification and ignored."""
    home = Path(environ.get("HOME") or Path.home())
    config, state = Path(environ.get("XDG_CONFIG_HOME", "")), Path(environ.get("XDG_STATE_HOME", ""))
    return (
        (config if config.is_absolute() else home / ".config") / "tunedeck",
        (state if state.is_absolute() else home / ".local" / "state") / "tunedeck",
    )


def load(
    nodes: Iterable[str] = (),
    read_only: bool | None = None,
    ssh: str | None = None,
    theme: str | None = None,
    accept_host_keys: Iterable[str] = (),
    environ: Mapping[str, str] | None = None,
) -> Config:
    """The configuration in force; arguments are what the flags said. Raises ConfigError."""
    environ = os.environ if environ is None else environ
    config_dir, state_dir = folders(environ)
    settings = _settings(config_dir / "config.yaml")
    chosen = [(text, "-w") for text in nodes]
    if not chosen and environ.get("TUNEDECK_NODES"):
        chosen = [(environ["TUNEDECK_NODES"], "TUNEDECK_NODES")]
    fleet = read_fleet(config_dir / "fleet.yaml")
    fingerprints = [*accept_host_keys, *environ.get("TUNEDECK_ACCEPT_HOST_KEY", "").split()]
    return Config(
        nodes=_choose(chosen, fleet) if chosen else fleet,
        config_dir=config_dir,
        state_dir=state_dir,
        read_only=_flag(read_only, "TUNEDECK_READ_ONLY", environ, settings.read_only),
        ssh=_one_of(SSH, ssh, "TUNEDECK_SSH", environ, settings.ssh),
        accept_host_keys=tuple(_fingerprint(word) for word in fingerprints),
        theme=theme or environ.get("TUNEDECK_THEME") or settings.theme,
        keys=settings.keys,
    )


@dataclass(frozen=True, slots=True)
class _Settings:
    read_only: bool = False
    ssh: str = "auto"
    theme: str = ""
    keys: Mapping[str, str] = field(default_factory=dict)


def _settings(file: Path) -> _Settings:
    text = read(file)
    if not text.strip():
        return _Settings()
    try:
        node = mapping(text, str(file))
        keys = cut(node, "keys")
        top = Section(node, str(file))
        found = _Settings(
            top.flag("read_only", False),
            top.choice("ssh", "auto", SSH),
            top.text("theme", "") or "",
            _bound(keys, file),
        )
        top.close()
        return found
    except SpecError as wrong:
        raise config_error(wrong) from wrong


def _bound(keys: yaml.Node | None, file: Path) -> Mapping[str, str]:
    """`action: key` pairs; which actions there are is for the screens to say."""
    if keys is None:
        return {}
    if not isinstance(keys, yaml.MappingNode) or not all(
        isinstance(value, yaml.ScalarNode) for _k, value in keys.value
    ):
        raise SpecError(_("keys is not a mapping"), str(file), line(keys), _("Write one `action: key` line for each."))
    return {str(key.value): str(value.value) for key, value in keys.value}


def _choose(chosen: Iterable[tuple[str, str]], fleet: tuple[Target, ...]) -> tuple[Target, ...]:
    """Nodes named by flag or variable: those of the fleet as written there, others as ssh knows them."""
    known = {target.name: target for target in fleet}
    found: dict[str, Target] = {}
    for text, where in chosen:
        try:
            for name in expand(text):
                target = known.get(name) or Target.parse(name)
                found[target.name] = target
        except ValueError as error:
            hint = _("Name nodes like gpu[01-16],head or user@host:port.")
            raise ConfigError(str(error), where, hint) from error
    return tuple(found.values())


def _flag(said: bool | None, variable: str, environ: Mapping[str, str], default: bool) -> bool:
    if said is not None:
        return said
    if variable not in environ:
        return default
    word = environ[variable].strip().lower()
    if word not in _TRUE + _FALSE:
        raise ConfigError(_("{word!r} is neither yes nor no").format(word=word), variable, _("Set it to 1 or 0."))
    return word in _TRUE


def _one_of(among: tuple[str, ...], said: str | None, variable: str, environ: Mapping[str, str], default: str) -> str:
    word = said or environ.get(variable) or default
    if word not in among:
        hint = _("Choose one of: {words}.").format(words=", ".join(among))
        raise ConfigError(_("{word!r} is unknown").format(word=word), variable, hint)
    return word


def _fingerprint(word: str) -> str:
    if not word.startswith("SHA256:"):
        hint = _("Copy it as shown, beginning with SHA256:.")
        raise ConfigError(_("{word!r} is no fingerprint").format(word=word), "--accept-host-key", hint)
    return word.rstrip("=")


__all__ = ["Config", "ConfigError", "Target", "folders", "load", "read_fleet"]
