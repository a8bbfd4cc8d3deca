"""ssh_config(5) read without the OpenSSH client, as far as it can be read exactly; anything else is refused by line.

Understood: Host with wildcards and negation, Match all/host/originalhost/user/localuser, Include, and the options that
say how to reach a host. Options that only change how ssh behaves once there are passed over.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from console.refusal import Refusal
from console.strings import _

DEPTH_LIMIT = 16
"""READCONF_MAX_DEPTH of OpenSSH"""
SINGLE = frozenset(
    {"hostname", "port", "user", "hostkeyalias", "identitiesonly", "identityagent", "stricthostkeychecking"}
    | {"proxyjump", "proxycommand", "pkcs11provider"}
)
"""The first value counts, and it is one word (or, for a command, the rest of the line)."""
LISTED = frozenset({"identityfile"})
"""All values count."""
FILES = frozenset({"userknownhostsfile", "globalknownhostsfile"})
"""The first line counts, all its words."""
HARMLESS = frozenset(
    {"addkeystoagent", "batchmode", "checkhostip", "clearallforwardings", "compression", "connectionattempts"}
    | {"connecttimeout", "controlmaster", "controlpath", "controlpersist", "dynamicforward", "enableescapecommandline"}
    | {"escapechar", "exitonforwardfailure", "fingerprinthash", "forwardagent", "forwardx11", "forwardx11timeout"}
    | {"forwardx11trusted", "gatewayports", "gssapiauthentication", "gssapidelegatecredentials", "hashknownhosts"}
    | {"ipqos", "kbdinteractiveauthentication", "localcommand", "localforward", "loglevel", "logverbose"}
    | {"nohostauthenticationforlocalhost", "numberofpasswordprompts", "passwordauthentication", "permitlocalcommand"}
    | {
        "preferredauthentications",
        "pubkeyauthentication",
        "remoteforward",
        "requesttty",
        "sendenv",
        "serveralivecountmax",
    }
    | {"serveraliveinterval", "setenv", "tcpkeepalive", "updatehostkeys", "visualhostkey", "xauthlocation"}
)
CRITERIA = ("host", "originalhost", "user", "localuser")


@dataclass(slots=True)
class Reader:
    """One pass over the files for one host."""

    host: str
    """As the user wrote it"""
    me: str
    said: dict[str, list[str]] = field(default_factory=dict)

    def read(self, file: Path, user_file: bool, active: bool = True, depth: int = 0) -> None:
        """Raises Refusal (kind "config") with the line. A file that is not there says nothing."""
        if depth > DEPTH_LIMIT:
            raise Refusal("config", _("{file}: files include each other").format(file=file))
        allowed = active
        for where, line in _lines(file):
            key, words = _split(line, where)
            if key == "host":
                active = allowed and _listed(self.host, words)
            elif key == "match":
                active = self._matches(words, where) and allowed
            elif key == "include":
                for path in _included(words, user_file):
                    self.read(path, user_file, active, depth + 1)
            elif key in SINGLE | LISTED | FILES:
                if active:
                    self._set(key, words, line, where)
            elif key not in HARMLESS:
                raise _beyond(where, key)

    def _set(self, key: str, words: list[str], line: str, where: str) -> None:
        if key == "proxycommand":
            words = [line.split(None, 1)[1]]
        elif key not in FILES and len(words) != 1:
            raise Refusal("config", _("{where}: {key} takes one value").format(where=where, key=key))
        if key in LISTED:
            values = self.said.setdefault(key, [])
            values += [word for word in words if word not in values]
        elif key in FILES:
            self.said.setdefault(key, [" ".join(words)])
        elif key in ("proxyjump", "proxycommand"):  # whichever of the two comes first holds
            if not {"proxyjump", "proxycommand"} & self.said.keys():
                self.said[key] = words
        else:
            self.said.setdefault(key, words)

    def _matches(self, words: list[str], where: str) -> bool:
        if [word.lower() for word in words] == ["all"]:
            return True
        if not words or len(words) % 2:
            raise _beyond(where, "Match " + " ".join(words))
        found = True
        for criterion, patterns in zip(words[::2], words[1::2]):  # noqa: B905 - their number is even
            name = criterion.lower().removeprefix("!")
            if name not in CRITERIA:
                raise _beyond(where, f"Match {criterion}")
            said = {
                "host": self._host_name,
                "originalhost": self.host,
                "user": self.said.get("user", [self.me])[0],
                "localuser": self.me,
            }[name]
            patterns = patterns.lower() if "host" in name else patterns
            found &= _listed(said, patterns.split(",")) != criterion.startswith("!")
        return found

    @property
    def _host_name(self) -> str:
        return expanded_host(self.said.get("hostname", [self.host])[0], self.host)


def expanded_host(word: str, host: str) -> str:
    """HostName with its tokens, %h and %%."""
    return word.replace("%%", "\0").replace("%h", host).replace("\0", "%")


def _lines(file: Path) -> Iterator[tuple[str, str]]:
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as error:
        raise Refusal("config", f"{file}: {error}") from error
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.strip().startswith("#"):
            yield f"{file}:{number}", line.strip()


def _split(line: str, where: str) -> tuple[str, list[str]]:
    """Keyword in lower case and its arguments: `Key value`, `Key=value`, `Key "a value"  # remark`."""
    name = line.replace("=", " ", 1).split(None, 1)[0] if "=" in line else line.split(None, 1)[0]
    rest = line[len(name) :].lstrip().removeprefix("=").lstrip()
    if name.lower() == "proxycommand":
        return name.lower(), rest.split()
    try:
        words = shlex.split(rest, comments=True)
    except ValueError as error:
        raise Refusal("config", f"{where}: {error}") from error
    return name.lower(), words


def _listed(name: str, patterns: list[str]) -> bool:
    """Pattern list of ssh_config(5): only * and ? are wildcards, a negated match goes before all others.

    Upper and lower case differ, as they do to ssh; `Match host` has its patterns in lower case.
    """
    found = False
    for pattern in patterns:
        plain = pattern.removeprefix("!").replace("[", "[[]")
        if fnmatch.fnmatchcase(name, plain):
            if pattern.startswith("!"):
                return False
            found = True
    return found


def _included(words: list[str], user_file: bool) -> Iterator[Path]:
    base = Path.home() / ".ssh" if user_file else Path("/etc/ssh")
    for word in words:
        pattern = os.path.expanduser(word) if word.startswith("~") else str(base / word)  # noqa: PTH111 - as ssh does
        yield from map(Path, sorted(glob.glob(pattern)))  # noqa: PTH207 - absolute patterns


def _beyond(where: str, what: str) -> Refusal:
    text = _("{where}: `{what}` needs the OpenSSH client to be read")
    return Refusal("config", text.format(where=where, what=what))
