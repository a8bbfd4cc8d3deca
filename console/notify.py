"""Where alerts are sent: notify.yaml, and the ways of sending. Addresses are secrets: none is ever said."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from console.document import config_error, mapping, read
from console.strings import _
from jobs.section import Section, SpecError

SEND_S = 20.0
FILE = "notify.yaml"


class Undelivered(Exception):
    """Why it was not taken, without its address."""


@dataclass(frozen=True, slots=True)
class Ways:
    webhooks: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    """Addresses of the package apprise"""
    severity: str = "warn"

    def names(self) -> list[str]:
        hooks = [f"webhook {number}" for number in range(len(self.webhooks))]
        return [*hooks, *(["command"] if self.command else []), *(["services"] if self.services else [])]

    def send(self, name: str, notice: dict[str, Any]) -> None:
        """Raises Undelivered."""
        if name == "command":
            run_command(self.command, notice)
        elif name == "services":
            tell_services(self.services, notice)
        else:
            post(self.webhooks[int(name.split()[1])], notice)


def load(folder: Path) -> Ways:
    """Raises ConfigError."""
    file = folder / FILE
    text = read(file)
    if not text.strip():
        return Ways()
    try:
        top = Section(mapping(text, str(file)), str(file))
        found = Ways(
            top.listed("webhook"), top.listed("command"), top.listed("services"),
            top.choice("severity", "warn", ("warn", "critical")),
        )  # fmt: skip
        for url in found.webhooks:
            if urlsplit(url).scheme not in ("http", "https"):
                raise top.wrong("webhook", _("is no web address"), _("Begin it with https://."))
        top.close()
    except SpecError as wrong:
        raise config_error(wrong) from wrong
    return found


def post(url: str, notice: dict[str, Any]) -> None:
    """`text` is what Slack and Mattermost show, `content` what Discord does."""
    body = json.dumps({**notice, "content": notice["text"]}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json", "User-Agent": "tunedeck"})
    try:
        with urllib.request.urlopen(request, timeout=SEND_S):
            return
    except urllib.error.HTTPError as error:
        error.close()
        raise Undelivered(f"HTTP {error.code}") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None)
        raise Undelivered(type(reason if isinstance(reason, Exception) else error).__name__) from error


def run_command(argv: tuple[str, ...], notice: dict[str, Any]) -> None:
    """The notice as JSON on its standard input; no shell."""
    try:
        done = subprocess.run(argv, input=json.dumps(notice).encode(), timeout=SEND_S, capture_output=True, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Undelivered(type(error).__name__) from error
    if done.returncode:
        raise Undelivered(f"exit status {done.returncode}")


def tell_services(addresses: tuple[str, ...], notice: dict[str, Any]) -> None:
    try:
        import apprise
    except ImportError as error:
        raise Undelivered(_("the package apprise is not installed: pip install apprise")) from error
    there = apprise.Apprise()
    if not all(there.add(address) for address in addresses):
        raise Undelivered(_("apprise does not know one of the addresses"))
    if not there.notify(title="tunedeck", body=str(notice["text"])):
        raise Undelivered(_("a service did not take it"))
