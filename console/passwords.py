"""Logging in by what the user types: passwords, one-time codes, whatever a server's prompts ask for."""

from __future__ import annotations

from dataclasses import dataclass

import paramiko

from agent.wire import clean
from console.answers import Answers
from console.refusal import Question, Refusal
from console.route import Route
from console.strings import _

PROMPT_LIMIT = 300
"""Characters of a server's prompt that are shown"""


def by_password(transport: paramiko.Transport, route: Route, answers: Answers, allowed: list[str]) -> bool:
    """By what the user has typed; where the server wants more than a password it is asked what."""
    password = answers.get("password", route.label)
    if "password" in allowed or not allowed:
        if password is None:
            return False
        try:
            allowed = transport.auth_password(route.user, password, fallback=False)
            if not allowed:
                return True
        except paramiko.SSHException as error:
            still_there(transport, route, error)
            if "keyboard-interactive" not in allowed:
                answers.forget("password", route.label)
    return "keyboard-interactive" in allowed and _by_prompts(transport, route, answers)


def _by_prompts(transport: paramiko.Transport, route: Route, answers: Answers) -> bool:
    prompts = Prompts(transport, route, answers)
    try:
        left = transport.auth_interactive(route.user, prompts)
    except (paramiko.SSHException, EOFError, OSError) as error:
        if prompts.missing:
            message = _("{where} asks: {text}").format(where=route.label, text=prompts.missing.text)
            raise Refusal("auth", message, _("Answer it here."), prompts.missing) from error
        answers.forget("password", route.label)
        still_there(transport, route, error)
        return False
    return not left


@dataclass(slots=True)
class Prompts:
    """What a server asks in a keyboard-interactive log-in (RFC 4256); called on the connection's own thread.

    A prompt without an answer ends the connection: an empty answer would count as a wrong one.
    """

    transport: paramiko.Transport
    route: Route
    answers: Answers
    missing: Question | None = None

    def __call__(self, title: str, text: str, fields: list[tuple[str, bool]]) -> list[str]:
        said: list[str] = []
        for field_, echo in fields:
            shown = clean(" ".join(filter(None, (title, text, field_)))).strip()[:PROMPT_LIMIT]
            answer = self._answer(shown, secret=not echo)
            if answer is None:
                self.transport.close()
                return []
            said.append(answer)
        return said

    def _answer(self, shown: str, secret: bool) -> str | None:
        label = self.route.label
        if secret and "password" in shown.lower() and "one-time" not in shown.lower():
            if (password := self.answers.get("password", label)) is None:
                self.missing = password_wanted(label, self.answers)
            return password
        if (code := self.answers.take("code", label)) is None:
            self.missing = Question("code", label, f"{label}: {shown}", secret)
        return code


def password_wanted(label: str, answers: Answers) -> Question:
    text = _("Password for {who}").format(who=label)
    return Question("password", label, not_accepted(text, answers.was_wrong("password", label)))


def not_accepted(text: str, wrong: bool) -> str:
    return _("That was not accepted. {text}").format(text=text) if wrong else text


def still_there(transport: paramiko.Transport, route: Route, error: Exception) -> None:
    """Raises Refusal when the server has hung up."""
    if not transport.is_active():
        raise hung_up(route, transport, error) from error


def hung_up(route: Route, transport: paramiko.Transport, error: Exception) -> Refusal:
    banner = transport.get_banner()
    said = banner.decode("utf-8", "replace").strip()[-200:] if banner else str(error)
    kind = "denied" if "slurm" in said.lower() else "auth"
    return Refusal(kind, _("{where} hung up while we logged in: {said}").format(where=route.label, said=said))
