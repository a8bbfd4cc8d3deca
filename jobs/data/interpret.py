"""A row and its columns → an example, or the reason why it is none."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from jobs.data import cell, turns
from jobs.data.columns import Columns, missing, record
from jobs.data.example import Example, Turn
from jobs.data.row import Fault, Row


class Reading:
    """Rows of one layout → examples. `roles`: the user's own words for roles → user, assistant, system or tool."""

    def __init__(self, columns: Columns, roles: Mapping[str, str] | None = None) -> None:
        self.columns, self._roles = columns, dict(roles or {})
        self._of = dict(columns.column)
        self._read: Callable[[Mapping[str, Any], list[str]], Example] = {
            "alpaca": self._alpaca,
            "sharegpt": self._chat,
            "chat": self._chat,
            "text": self._text,
            "preference": self._preference,
            "reward": self._reward,
            "kto": self._kto,
        }.get(columns.layout, self._nothing)

    def example(self, row: Row) -> tuple[Example, tuple[str, ...]]:
        """The example and what was repaired. Raises Fault."""
        if row.fault is not None:
            raise row.fault
        value = row.value
        if not isinstance(value, dict):
            value = record(value)
        if not isinstance(value, dict):
            raise Fault("wrong-type", f"is {cell.kind(value)}, expected an object")
        repairs: list[str] = []
        made = self._read(value, repairs)
        return made, ((*row.repairs, *repairs) if repairs else row.repairs)

    def _nothing(self, value: Mapping[str, Any], _repairs: list[str]) -> Example:
        raise Fault("layout", f"is of no known layout; it has: {', '.join(map(str, list(value)[:6]))}")

    def _cell(self, value: Mapping[str, Any], field: str) -> Any:
        name = self._of[field]
        if name not in value:
            raise missing(field, name, value)
        return value[name]

    def _said(self, value: Mapping[str, Any], field: str, repairs: list[str]) -> str:
        found = value.get(self._of[field])
        return found if isinstance(found, str) else cell.text(self._cell(value, field), self._of[field], repairs)

    def _maybe(self, value: Mapping[str, Any], field: str, repairs: list[str]) -> str:
        name = self._of.get(field)
        if name is None:
            return ""
        found = value.get(name)
        return found if isinstance(found, str) else cell.optional(found, name, repairs)

    def _alpaca(self, value: Mapping[str, Any], repairs: list[str]) -> Example:
        if isinstance(value.get(self._of["instruction"]), list):
            asked = self._prompt(value, "instruction", repairs)
            return Example("chat", (*asked, *self._answer(value, "output", repairs)))
        asked, given = self._question(value, "instruction", repairs)
        answer = self._said(value, "output", repairs)
        if not answer or answer.isspace():
            raise Fault("empty-answer", f"`{self._of['output']}` is empty")
        return Example("chat", (*asked, Turn("assistant", answer)), given=given)

    def _question(self, value: Mapping[str, Any], field: str, repairs: list[str]) -> tuple[tuple[Turn, ...], str]:
        """System, earlier turns and the question of an Alpaca row; and the part of the question from `input`."""
        asked = self._said(value, field, repairs)
        given = self._maybe(value, "input", repairs)
        if given:
            asked = f"{asked}\n\n{given}" if asked.strip() else given
        if not asked or asked.isspace():
            raise Fault("empty-question", f"`{self._of[field]}` is empty")
        question = Turn("user", asked)
        system = self._maybe(value, "system", repairs)
        before = self._history(value, repairs) if "history" in self._of else ()
        if not system or system.isspace():
            return (*before, question), given
        return (Turn("system", system), *before, question), given

    def _history(self, value: Mapping[str, Any], repairs: list[str]) -> tuple[Turn, ...]:
        pairs, _done = cell.structure(value.get(self._of["history"]))
        if not pairs:
            return ()
        if not isinstance(pairs, list) or not all(isinstance(p, list) and len(p) == 2 for p in pairs):
            raise Fault("wrong-type", "`history` is no list of [question, answer] pairs")
        made: list[Turn] = []
        for question, answer in pairs:
            made.append(Turn("user", cell.text(question, "history", repairs)))
            made.append(Turn("assistant", cell.text(answer, "history", repairs)))
        turns.check(made)
        return tuple(made)

    def _chat(self, value: Mapping[str, Any], repairs: list[str]) -> Example:
        spoken = turns.read(self._cell(value, "messages"), self._of["messages"], repairs, self._roles)
        system = self._maybe(value, "system", repairs)
        if system.strip() and spoken[0].role != "system":
            spoken = (Turn("system", system), *spoken)
        turns.check(spoken)
        return Example("chat", spoken, tools=self._tools(value))

    def _tools(self, value: Mapping[str, Any]) -> Any:
        name = self._of.get("tools")
        return None if name is None else turns.plain_tools(value.get(name))

    def _text(self, value: Mapping[str, Any], repairs: list[str]) -> Example:
        found = self._said(value, "text", repairs)
        if not found.strip():
            raise Fault("empty", f"`{self._of['text']}` is empty")
        return Example("text", text=found)

    def _prompt(self, value: Mapping[str, Any], field: str, repairs: list[str]) -> tuple[Turn, ...]:
        found, _done = cell.structure(self._cell(value, field))
        if not turns.looks_like(found):
            return self._question(value, field, repairs)[0]
        asked = turns.read(found, self._of[field], repairs, self._roles)
        system = self._maybe(value, "system", repairs)
        if system.strip() and asked[0].role != "system":
            asked = (Turn("system", system), *asked)
        turns.check(asked, last="user")
        return asked

    def _answer(self, value: Mapping[str, Any], field: str, repairs: list[str]) -> tuple[Turn, ...]:
        """One answer: text, one turn, or a list of turns."""
        name, held = self._of[field], self._cell(value, field)
        found, _done = cell.structure(held)
        if turns.looks_like(found):
            made = turns.read(found if isinstance(found, list) else [found], name, repairs, self._roles)
        else:
            made = (Turn("assistant", cell.text(held, name, repairs)),)
        if made[-1].role != "assistant":
            raise Fault("no-answer", f"`{name}` ends with a turn of {made[-1].role}")
        if not made[-1].content.strip() and not made[-1].more:
            raise Fault("empty-answer", f"`{name}` is empty")
        return made

    def _pair(self, value: Mapping[str, Any], repairs: list[str]) -> tuple[tuple[Turn, ...], tuple[Turn, ...]]:
        chosen, rejected = self._answer(value, "chosen", repairs), self._answer(value, "rejected", repairs)
        if chosen == rejected:
            raise Fault("same-answers", "chosen and rejected are the same")
        return chosen, rejected

    def _preference(self, value: Mapping[str, Any], repairs: list[str]) -> Example:
        asked, (chosen, rejected) = self._prompt(value, "prompt", repairs), self._pair(value, repairs)
        if chosen[: len(asked)] == asked and rejected[: len(asked)] == asked:
            chosen, rejected = chosen[len(asked) :], rejected[len(asked) :]  # the prompt is repeated in both
        for name, answer in (("chosen", chosen), ("rejected", rejected)):
            if not answer or answer[0].role != "assistant":
                raise Fault("turn-order", f"`{self._of[name]}` does not begin with the assistant")
        return Example("preference", asked, chosen, rejected, tools=self._tools(value), margin=self._margin(value))

    def _reward(self, value: Mapping[str, Any], repairs: list[str]) -> Example:
        chosen, rejected = self._pair(value, repairs)
        return Example("reward", (), chosen, rejected, margin=self._margin(value))

    def _margin(self, value: Mapping[str, Any]) -> float | None:
        found = value.get(self._of.get("margin", ""))
        try:
            margin = float(found) if isinstance(found, int | float | str) else math.nan
        except (ValueError, OverflowError):
            return None
        return margin if math.isfinite(margin) else None

    def _kto(self, value: Mapping[str, Any], repairs: list[str]) -> Example:
        label = cell.truth(self._cell(value, "label"), self._of["label"], repairs)
        if self._of["prompt"] == self._of["completion"]:
            spoken = turns.read(self._cell(value, "prompt"), self._of["prompt"], repairs, self._roles)
            turns.check(spoken)
            return Example("kto", spoken, label=label, tools=self._tools(value))
        asked, answer = self._prompt(value, "prompt", repairs), self._answer(value, "completion", repairs)
        return Example("kto", (*asked, *answer), label=label, tools=self._tools(value))
