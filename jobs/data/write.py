"""An example → a row of a layout. What the layout has no place for is a reason to refuse, never left out in silence."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from jobs.data.example import Example, Turn
from jobs.data.row import Fault

KINDS = {
    "alpaca": "chat",
    "sharegpt": "chat",
    "chat": "chat",
    "text": "text",
    "preference": "preference",
    "reward": "reward",
    "kto": "kto",
}
"""The kind of example that each layout holds."""
_SHAREGPT = {"system": "system", "user": "human", "assistant": "gpt", "tool": "observation"}


def fitted(example: Example, layout: str) -> tuple[Example, str]:
    """The example as the layout can hold it, and what that leaves out in words. Raises Fault where it cannot."""
    wanted = KINDS[layout]
    if wanted != example.kind:
        example = _turned(example, wanted, layout)
    if layout == "sharegpt":
        return _without_ids(example)
    return example, ""


def _turned(example: Example, wanted: str, layout: str) -> Example:
    """A pair with its prompt apart, or the prompt in both of its answers: the same thing in two ways."""
    if (example.kind, wanted) == ("preference", "reward") and example.tools is None:
        chosen, rejected = (*example.turns, *example.chosen), (*example.turns, *example.rejected)
        return replace(example, kind="reward", turns=(), chosen=chosen, rejected=rejected)
    if (example.kind, wanted) == ("reward", "preference"):
        common = 0
        for one, other in zip(example.chosen[:-1], example.rejected[:-1], strict=False):
            if one != other:
                break
            common += 1
        if common and example.chosen[common].role == example.rejected[common].role == "assistant":
            asked, chosen, rejected = example.chosen[:common], example.chosen[common:], example.rejected[common:]
            return replace(example, kind="preference", turns=asked, chosen=chosen, rejected=rejected)
        raise Fault("no-place", "chosen and rejected do not begin with the same prompt")
    raise Fault("no-place", f"{layout} has no place for {_KIND_WORDS[example.kind]}")


_KIND_WORDS = {
    "chat": "a conversation",
    "text": "plain text",
    "preference": "a pair of answers",
    "reward": "a pair of conversations",
    "kto": "a labelled answer",
}


def _without_ids(example: Example) -> tuple[Example, str]:
    """ShareGPT's calls have no ids: a result belongs to the call before it."""
    made, dropped = [], False
    for turn in example.turns:
        more = dict(turn.more or {})
        dropped |= more.pop("tool_call_id", None) is not None
        if "tool_calls" in more:
            calls = more["tool_calls"]
            dropped |= any("id" in call for call in calls)
            more["tool_calls"] = [{k: v for k, v in call.items() if k != "id"} for call in calls]
        made.append(Turn(turn.role, turn.content, more or None))
    return replace(example, turns=tuple(made)), "ids of tool calls are left out" if dropped else ""


def row(example: Example, layout: str) -> dict[str, Any]:
    """The row for a fitted example. Raises Fault."""
    return _WRITERS[layout](example)


def _alpaca(example: Example) -> dict[str, Any]:
    if example.tools is not None or any(turn.more or turn.role == "tool" for turn in example.turns):
        raise Fault("no-place", "alpaca has no place for tools, names, reasoning or pictures")
    spoken = list(example.turns)
    system = spoken.pop(0).content if spoken[0].role == "system" else ""
    made: dict[str, Any] = {"instruction": spoken[-2].content, "input": "", "output": spoken[-1].content}
    if system:
        made["system"] = system
    if len(spoken) > 2:
        before = spoken[:-2]
        made["history"] = [[a.content, b.content] for a, b in zip(before[::2], before[1::2], strict=True)]
    return made


def _sharegpt(example: Example) -> dict[str, Any]:
    made: dict[str, Any] = {"conversations": [_from_value(turn) for turn in example.turns]}
    if example.tools is not None:
        made["tools"] = json.dumps(example.tools, ensure_ascii=False)
    return made


def _from_value(turn: Turn) -> dict[str, str]:
    more = turn.more or {}
    if not more:
        return {"from": _SHAREGPT[turn.role], "value": turn.content}
    if set(more) != {"tool_calls"} or turn.content:
        names = ", ".join(sorted(more)) + (" beside text" if turn.content else "")
        raise Fault("no-place", f"sharegpt has no place for {names}")
    calls = [call["function"] for call in more["tool_calls"]]
    return {"from": "function_call", "value": json.dumps(calls[0] if len(calls) == 1 else calls, ensure_ascii=False)}


def messages(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    """OpenAI's way, with arguments of calls as objects: what chat templates take."""
    made = []
    for turn in turns:
        more = dict(turn.more or {})
        parts = more.pop("parts", None)
        content: Any = turn.content
        if parts is not None:
            content = [*parts, *([{"type": "text", "text": content}] if content else [])]
        made.append({"role": turn.role, "content": content, **more})
    return made


def _with_tools(example: Example, made: dict[str, Any]) -> dict[str, Any]:
    return made if example.tools is None else {**made, "tools": example.tools}


def _chat(example: Example) -> dict[str, Any]:
    return _with_tools(example, {"messages": messages(example.turns)})


def _text(example: Example) -> dict[str, Any]:
    return {"text": example.text}


def _pair(example: Example) -> dict[str, Any]:
    made: dict[str, Any] = {"chosen": messages(example.chosen), "rejected": messages(example.rejected)}
    if example.kind == "preference":
        made = {"prompt": messages(example.turns), **made}
    if example.margin is not None:
        made["margin"] = example.margin
    return _with_tools(example, made)


def _kto(example: Example) -> dict[str, Any]:
    made = {"prompt": messages(example.turns[:-1]), "completion": messages(example.turns[-1:]), "label": example.label}
    return _with_tools(example, made)


_WRITERS = {
    "alpaca": _alpaca,
    "sharegpt": _sharegpt,
    "chat": _chat,
    "text": _text,
    "preference": _pair,
    "reward": _pair,
    "kto": _kto,
}
