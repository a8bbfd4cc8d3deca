"""known_hosts as OpenSSH reads it: plain, hashed and wildcard names, ports, markers.

Format: sshd(8), SSH_KNOWN_HOSTS FILE FORMAT.
"""

from __future__ import annotations

import base64
import binascii
import fnmatch
import functools
import hashlib
import hmac
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

SSH_PORT = 22


@dataclass(frozen=True, slots=True)
class Entry:
    marker: str
    """"", "@cert-authority" or "@revoked\""""
    names: str
    """As in the file: one hashed name, or patterns with commas"""
    kind: str
    blob: bytes
    where: str
    """file:line, for the message"""

    def covers(self, name: str) -> bool:
        if self.names.startswith("|1|"):
            return _hashed(self.names, name)
        found = False
        for pattern in self.names.lower().split(","):
            negated, pattern = pattern.startswith("!"), pattern.removeprefix("!")
            # only * and ? are wildcards here; brackets enclose a host with a port
            if fnmatch.fnmatchcase(name.lower(), pattern.replace("[", "[[]")):
                if negated:
                    return False
                found = True
        return found


@dataclass(frozen=True, slots=True)
class Verdict:
    word: str
    """known | unknown | changed | revoked | authority (known only by the authority that signs its certificate)"""
    where: str = ""


@dataclass(frozen=True, slots=True)
class Listing:
    """The entries of one file. Going through a thousand lines for each of a thousand nodes would take seconds."""

    plain: Mapping[str, list[tuple[int, Entry]]]
    """By name in lower case, with their line numbers"""
    patterns: list[tuple[int, Entry]]
    """Those that only `covers` can judge: hashed names, wildcards"""

    def covering(self, name: str) -> list[Entry]:
        """In the order of the file."""
        found = self.plain.get(name.lower(), []) + [one for one in self.patterns if one[1].covers(name)]
        return [entry for _number, entry in sorted(found, key=lambda one: one[0])]


class KnownHosts:
    def __init__(self, files: Iterable[Path]) -> None:
        self.listings = [listing(file) for file in files]

    def judge(self, name: str, port: int, blob: bytes) -> Verdict:
        """What the files say of a key offered by a host. Revoked goes before known, known before changed."""
        covering = self._covering(name, port)
        for entry in covering:
            if entry.marker == "@revoked" and entry.blob == blob:
                return Verdict("revoked", entry.where)
        plain = [entry for entry in covering if not entry.marker]
        bare = [] if port == SSH_PORT else [e for e in self._covering(name, SSH_PORT) if not e.marker]
        for entry in plain + bare:  # like ssh, a key listed without port serves for other ports, but refutes none
            if entry.blob == blob:
                return Verdict("known", entry.where)
        if plain:
            return Verdict("changed", plain[0].where)
        authority = next((entry for entry in covering if entry.marker == "@cert-authority"), None)
        return Verdict("authority", authority.where) if authority else Verdict("unknown")

    def kinds(self, name: str, port: int) -> list[str]:
        """Key types the host is known by: asked for first, so that another type does not look like a changed key."""
        return list(dict.fromkeys(e.kind for e in self._covering(name, port) if not e.marker))

    def _covering(self, name: str, port: int) -> list[Entry]:
        full = listed_name(name, port)
        return [entry for listing in self.listings for entry in listing.covering(full)]


def listed_name(name: str, port: int) -> str:
    return name if port == SSH_PORT else f"[{name}]:{port}"


def fingerprint(blob: bytes) -> str:
    """As ssh shows it: SHA256:… without padding."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode("ascii").rstrip("=")


def listing(file: Path) -> Listing:
    """The entries of a file; none if it cannot be read. Lines that make no sense are skipped, as ssh does."""
    try:
        status = file.stat()
        return _listing(file, (status.st_mtime_ns, status.st_size, status.st_ino))
    except OSError:
        return Listing({}, [])


@functools.lru_cache(16)
def _listing(file: Path, _version: tuple[int, ...]) -> Listing:
    plain: dict[str, list[tuple[int, Entry]]] = {}
    patterns = []
    for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        entry = _entry(line.split(), f"{file}:{number}")
        if entry is None:
            continue
        if any(sign in entry.names for sign in "*?!|"):
            patterns.append((number, entry))
        else:
            for name in set(entry.names.lower().split(",")):
                plain.setdefault(name, []).append((number, entry))
    return Listing(plain, patterns)


def append(file: Path, name: str, port: int, kind: str, blob: bytes) -> None:
    """Remember a key the user has accepted. Raises OSError."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    line = f"{listed_name(name, port)} {kind} {base64.b64encode(blob).decode('ascii')}\n"
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, line.encode("ascii"))
    finally:
        os.close(descriptor)


def _entry(words: list[str], where: str) -> Entry | None:
    marker = words.pop(0) if words and words[0].startswith("@") else ""
    if len(words) < 3 or words[0].startswith("#") or marker not in ("", "@cert-authority", "@revoked"):
        return None
    try:
        return Entry(marker, words[0], words[1], base64.b64decode(words[2], validate=True), where)
    except (binascii.Error, ValueError):
        return None


def _hashed(names: str, name: str) -> bool:
    """``|1|salt|HMAC-SHA1(salt, name)``, both in base64."""
    try:
        salt, due = (base64.b64decode(part) for part in names.split("|")[2:4])
    except (binascii.Error, ValueError):
        return False
    return hmac.compare_digest(hmac.new(salt, name.encode(), hashlib.sha1).digest(), due)
