"""A model's chat template, rendered as transformers renders it, without transformers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from jobs.data.extra import library
from jobs.data.row import Fault
from jobs.failure import JobError


class Template:
    """The source comes from a stranger's model folder: it runs in Jinja's immutable sandbox, as in transformers."""

    def __init__(self, source: str, words: Mapping[str, str]) -> None:
        """`words`: bos_token and others that templates use. Raises JobError for what is no template."""
        jinja = library("jinja2", "a chat template")
        sandbox = library("jinja2.sandbox", "a chat template")
        loops, generation = library("jinja2.ext", "a chat template").loopcontrols, _generation(jinja)
        made = sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[generation, loops]
        )
        made.filters["tojson"] = _tojson
        self._error = jinja.exceptions.TemplateError

        def raise_exception(message: str) -> None:
            raise jinja.exceptions.TemplateError(message)

        made.globals.update(raise_exception=raise_exception, strftime_now=lambda form: datetime.now().strftime(form))
        try:
            self._template = made.from_string(source)
        except jinja.exceptions.TemplateError as wrong:
            raise JobError(f"the chat template cannot be read: {wrong}", "Look at chat_template.jinja.") from wrong
        self._words = dict(words)

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Any = None, prompt: bool = False) -> str:
        """The conversation as text; `prompt`: up to where the assistant begins. Raises Fault where it refuses."""
        try:
            return str(
                self._template.render(
                    messages=list(messages), tools=tools, documents=None, add_generation_prompt=prompt, **self._words
                )
            )
        except (self._error, TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as wrong:
            raise Fault("template", f"the chat template refuses it: {wrong}") from wrong


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **more: Any) -> str:
    """As transformers has it: Jinja's own would escape for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **more)


def _generation(jinja: Any) -> Any:
    """The tag that some templates put around what the assistant says; it changes nothing in the text."""
    base: Any = library("jinja2.ext", "a chat template").Extension

    class Generation(base):  # type: ignore[misc]
        tags = frozenset({"generation"})

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return jinja.nodes.Scope(body).set_lineno(line)

    return Generation
