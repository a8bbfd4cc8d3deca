"""Lists of turns, in ShareGPT's and OpenAI's ways: roles, parts of content, tool calls, and the order of speaking."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from jobs.data import cell
from jobs.data.example import Turn
from jobs.data.row import Fault

ROLES = {
    "system": "system", "developer": "system",
    "user": "user", "human": "user", "prompter": "user",
    "assistant": "assistant", "gpt": "assistant", "chatgpt": "assistant", "bot": "assistant", "model": "assistant",
    "bard": "assistant", "bing": "assistant", "ai": "assistant",
    "tool": "tool", "function": "tool", "observation": "tool", "ipython": "tool",
    "function_call": "call", "tool_call": "call",
}  # fmt: skip
KEPT = ("tool_calls", "tool_call_id", "name", "reasoning_content")


def read(value: Any, name: str, repairs: list[str], roles: Mapping[str, str]) -> tuple[Turn, ...]:
    """All turns. `roles`: the user's own words for roles. Raises Fault."""
    value, done = cell.structure(value)
    if done:
        repairs.append(done)
    if value is None:
        raise Fault("null", f"`{name}` is null")
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise Fault("wrong-type", f"`{name}` is {cell.kind(value)}, expected a list of turns")
    if not value:
        raise Fault("empty", f"`{name}` is an empty list")
    return tuple(_turn(turn, number, repairs, roles) for number, turn in enumerate(value, 1))


def looks_like(value: Any) -> bool:
    """Whether this is one turn or a list of turns; text that happens to be JSON is not."""
    first = value[0] if isinstance(value, list) and value else value
    return isinstance(first, Mapping) and ("role" in first or "from" in first)


def _turn(value: Any, number: int, repairs: list[str], roles: Mapping[str, str]) -> Turn:
    if not isinstance(value, Mapping):
        raise Fault("wrong-type", f"turn {number} is {cell.kind(value)}, expected an object")
    speaker = value.get("role", value.get("from"))
    role = _role(speaker, number, repairs, roles)
    content = value["content"] if "content" in value else value.get("value")
    more = {key: value[key] for key in KEPT if value.get(key)}
    if role == "call":
        return Turn("assistant", "", {"tool_calls": _calls(content, number)})
    if isinstance(content, str):
        return Turn(role, content, _arguments(more) if more else None)
    if isinstance(content, list):
        content, others = _parts(content, number)
        if others:
            more["parts"] = others
    if content is None and role == "assistant" and "tool_calls" in more:
        content = ""
    found = cell.text(content, f"content of turn {number}", repairs)
    return Turn(role, found, _arguments(more) if more else None)


def _role(speaker: Any, number: int, repairs: list[str], roles: Mapping[str, str]) -> str:
    role = ROLES.get(speaker) if isinstance(speaker, str) else None
    if role is not None and speaker not in roles:
        return role
    if not isinstance(speaker, str):
        raise Fault(
            "unknown-role", f"turn {number} has no role" if speaker is None else f"turn {number}: role is {speaker!r}"
        )
    if speaker in roles:
        return roles[speaker]
    word = speaker.strip().lower()
    if word in ROLES:
        repairs.append(f"role {speaker!r} of turn {number} was read as {word!r}")
        return ROLES[word]
    raise Fault("unknown-role", f"turn {number} has the unknown role {speaker!r}")


def _parts(parts: Sequence[Any], number: int) -> tuple[str, list[Any]]:
    """The text of a content in parts, and the parts that are no text."""
    said, others = [], []
    for part in parts:
        if isinstance(part, str):
            said.append(part)
        elif isinstance(part, Mapping) and isinstance(part.get("text"), str) and part.get("type", "text") == "text":
            said.append(part["text"])
        elif isinstance(part, Mapping) and part.get("type"):
            others.append({key: item for key, item in part.items() if item is not None})
        else:
            raise Fault("wrong-type", f"turn {number} has a part of content that is neither text nor typed")
    return "".join(said), others


def _calls(content: Any, number: int) -> list[dict[str, Any]]:
    """ShareGPT's function_call: one call or a list, as JSON text → OpenAI's tool_calls."""
    value, _done = cell.structure(content)
    calls = value if isinstance(value, list) else [value]
    if not all(isinstance(call, Mapping) and isinstance(call.get("name"), str) for call in calls):
        raise Fault("tool-call", f"turn {number}: a function call without a name, or not JSON")
    return [_call(call) for call in calls]


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments, _done = cell.structure(call.get("arguments", {}))
    return {"type": "function", "function": {"name": call["name"], "arguments": arguments}}


def _arguments(more: dict[str, Any]) -> dict[str, Any]:
    """Arguments of calls as objects: OpenAI writes them as JSON text, chat templates want objects."""
    calls, _done = cell.structure(more.get("tool_calls"))
    if calls is None:
        return more
    if not isinstance(calls, Sequence) or isinstance(calls, str):
        raise Fault("tool-call", f"tool_calls is {cell.kind(calls)}, expected a list")
    made = []
    for call in calls:
        function = call.get("function", call) if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise Fault("tool-call", "a tool call has no function name")
        ids = {"id": call["id"]} if call.get("id") else {}
        made.append({**ids, **_call(function)})
    return {**more, "tool_calls": made}


def check(turns: Sequence[Turn], last: str = "assistant") -> None:
    """The order in which chat templates allow turns, and something said in each. Raises Fault.

    system first or not at all; then user and assistant in turns; tool results only after a call; `last` at the end.
    """
    before = "start"
    for number, turn in enumerate(turns, 1):
        if turn.role not in _AFTER[before]:
            raise Fault("turn-order", _disorder(number, before, turn.role))
        calls = bool(turn.more and turn.more.get("tool_calls"))
        if not turn.content.strip() and not turn.more:
            kind = {"assistant": "empty-answer", "user": "empty-question"}.get(turn.role)
            if kind:
                raise Fault(kind, f"turn {number} ({turn.role}) is empty")
        before = "call" if calls else turn.role
    ends = "assistant" if before == "call" else before
    if last == "assistant" and ends != "assistant":
        raise Fault("no-answer", f"the last turn is of {ends}: there is no answer to learn")
    if last == "user" and ends not in ("user", "tool"):
        raise Fault("turn-order", f"the prompt ends with a turn of {ends}")


_AFTER = {
    "start": ("system", "user"),
    "system": ("user",),
    "user": ("assistant",),
    "assistant": ("user",),
    "call": ("tool",),
    "tool": ("assistant", "tool"),
}


def _disorder(number: int, before: str, role: str) -> str:
    if role == "system":
        return f"turn {number} is of system, which may only be the first"
    if before == role:
        return f"turns {number - 1} and {number} are both of {role}"
    if before in ("start", "system"):
        return f"the first turn is of {role}, not of user"
    if role == "tool":
        return f"turn {number} is a tool's result, but nothing was called"
    after = "a tool call" if before == "call" else before
    return f"turn {number} of {role} cannot follow {after}"


def plain_tools(value: Any) -> Any:
    """Tool definitions as a list; None for none. Raises Fault."""
    found, _done = cell.structure(value)
    if found in (None, "", [], "[]"):
        return None
    if not isinstance(found, list) or not all(isinstance(tool, Mapping) for tool in found):
        raise Fault("wrong-type", "`tools` is no list of objects")
    return json.loads(json.dumps(found, default=str))
