"""`tunedeck plan -i`: a plan in conversation. A line changes one knob; every change is answered."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator
from dataclasses import fields, replace

from console.plan import page
from console.strings import _
from jobs.plan import fit, hardware, memory
from jobs.plan.architecture import Architecture
from jobs.plan.form import PlanForm
from jobs.plan.hardware import Card
from jobs.plan.refusal import PlanError
from jobs.plan.workload import Workload

HELP = _("KNOB VALUE sets a knob (micro_batch 4, method qlora, card A100 80GB) · fit makes it fit · q ends")


def talk(shape: Architecture, work: Workload, card: Card | None) -> int:
    """Reads lines until `q` or the end of input. Returns 0 when the last state fits, else 1."""
    form = PlanForm(shape, card or hardware.cards()[-1], work)
    print(HELP)
    print(summary(form))
    for line in lines():
        words = line.split(maxsplit=1)
        if not words:
            continue
        if words[0] in ("q", "quit", "exit"):
            break
        form = answered(form, words)
    result = form.result()
    return 0 if result.verdict and result.verdict.fits else 1


def lines() -> Iterator[str]:
    """What is typed, with a prompt where somebody types it."""
    prompt = "> " if sys.stdin.isatty() else ""
    while True:
        print(prompt, end="", flush=True)
        line = sys.stdin.readline()
        if not line:
            return
        yield line


def answered(form: PlanForm, words: list[str]) -> PlanForm:
    """Prints the answer to one line and returns the form after it."""
    try:
        form = changed(form, words[0].replace("-", "_"), words[1].strip() if len(words) > 1 else "")
    except PlanError as error:
        print(error)
        return form
    print(summary(form))
    return form


def changed(form: PlanForm, word: str, value: str) -> PlanForm:
    """The form after one command. Raises PlanError for what is not understood."""
    if word == "card":
        return replace(form, card=hardware.named(value))
    if word == "fit":
        found = form.fitted()
        if found is None:
            raise PlanError(f"nothing makes it fit {form.card.name}", "choose a larger card or more of them")
        print("\n".join(page.needed(found[1])))
        return found[0]
    knobs = {field.name: field for field in fields(Workload)}
    if word not in knobs:
        near = difflib.get_close_matches(word, [*knobs, "card", "fit"], 2)
        known = f"did you mean {' or '.join(near)}?" if near else f"knobs: {', '.join(knobs)}; also card, fit, q"
        raise PlanError(f"{word!r} is not understood", known)
    if not value:
        raise PlanError(f"{word} to what?", f"it is {getattr(form.work, word)}; give a value after it")
    now = getattr(form.work, word)
    if isinstance(now, bool):
        return form.set(word, value in ("yes", "true", "on"))
    if isinstance(now, int) or word == "accumulation":
        if not value.isdigit():
            raise PlanError(f"{word} {value!r}", "give a whole number")
        return form.set(word, int(value))
    return form.set(word, tuple(value.split(",")) if word == "targets" and value != "all-linear" else value)


def summary(form: PlanForm) -> str:
    if form.problem:
        return form.problem
    verdict = fit.judge(form.shape, form.work, form.card.memory_bytes)
    lines = [
        page.title(form.shape, form.work, form.card),
        *page.components(memory.forecast(form.shape, form.work), form.card),
    ]
    return "\n".join([*lines, page.fits(verdict, form.card)])
