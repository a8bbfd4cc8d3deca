"""Public models by name, so that a plan needs no download."""

from __future__ import annotations

import difflib
import re

import configs
from jobs.plan import architecture, families
from jobs.plan.architecture import Architecture
from jobs.plan.refusal import PlanError

ENDINGS = re.compile(r"(instruct|chat|base|hf|it|sft|v0\.[0-9]|awq|int4|int8|gptq|bnb|4bit|text|meta)$")
SIZE = re.compile(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)\s*([bm])(?![a-z])")


def key(name: str) -> str:
    """A name without owner, case, punctuation and the endings that do not change the shape."""
    text = re.sub(r"[\s_]+", "-", name.rpartition("/")[2].lower()).removeprefix("meta-")
    while (shorter := ENDINGS.sub("", text).rstrip("-.")) != text and shorter:
        text = shorter
    return re.sub(r"[^a-z0-9.]", "", text)


def find(name: str) -> Architecture | None:
    """The catalogued model of that name, or None."""
    models = configs.load("models.yaml")
    wanted = key(name)
    for known, config in models.items():
        if key(known) == wanted:
            return families.of(config, known)
    return None


def size(name: str) -> float | None:
    """Parameters that a name states: "Foo-7B-chat" → 7e9."""
    found = SIZE.findall(name.lower().replace("_", "-"))
    return float(found[-1][0]) * (1e9 if found[-1][1] == "b" else 1e6) if found else None


def named(name: str, parameters: float | None = None) -> Architecture:
    """The model of that name; else a generic shape of its stated size, with the assumption said. Raises PlanError."""
    found = find(name)
    if found:
        return found
    stated = parameters or size(name)
    if stated:
        return architecture.from_size(name, stated)
    near = difflib.get_close_matches(name.lower(), [m.lower() for m in configs.load("models.yaml")], 3, 0.5)
    hint = f"did you mean {', '.join(near)}? " if near else ""
    raise PlanError(
        f"model {name!r} is not known", f"{hint}Name a model folder with a config.json, or state its size (--size 7B)"
    )
