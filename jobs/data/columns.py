"""Which layout rows have, and which column holds what: found from the first rows, shown, and overridable."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.data import cell
from jobs.data.row import Fault, Row
from jobs.failure import JobError

LAYOUTS = ("alpaca", "sharegpt", "chat", "text", "preference", "reward", "kto")
SAMPLE_ROWS = 200
NOTHING = "none"

# what people call the columns, the usual name first; Chinese names as in data sold and shared there
NAMES: dict[str, tuple[str, ...]] = {
    "instruction": ("instruction", "question", "prompt", "query", "user", "human", "problem", "指令", "问题", "提问"),
    "input": ("input", "context", "inputs", "输入"),
    "output": ("output", "answer", "response", "completion", "target", "assistant", "solution", "reply", "answers",
               "输出", "回答", "答案"),
    "system": ("system", "system_prompt"),
    "history": ("history",),
    "messages": ("messages", "conversations", "conversation", "dialogue", "dialog", "chat", "turns", "对话"),
    "tools": ("tools", "functions"),
    "text": ("text", "content", "body", "document", "passage", "文本", "内容"),
    "prompt": ("prompt", "instruction", "question", "query", "messages", "conversations", "context"),
    "chosen": ("chosen", "preferred", "accepted", "better", "winner", "response_chosen", "chosen_response", "win"),
    "rejected": ("rejected", "dispreferred", "worse", "loser", "response_rejected", "rejected_response", "lose"),
    "completion": ("completion", "response", "output", "answer"),
    "label": ("label", "kto_tag", "thumbs_up", "desirable"),
    "margin": ("margin", "score_diff"),
}  # fmt: skip

NEEDED: dict[str, tuple[str, ...]] = {
    "alpaca": ("instruction", "output"),
    "sharegpt": ("messages",),
    "chat": ("messages",),
    "text": ("text",),
    "preference": ("prompt", "chosen", "rejected"),
    "reward": ("chosen", "rejected"),
    "kto": ("prompt", "completion", "label"),
}
TAKEN: dict[str, tuple[str, ...]] = {
    "alpaca": ("instruction", "input", "output", "system", "history"),
    "sharegpt": ("messages", "system", "tools"),
    "chat": ("messages", "system", "tools"),
    "text": ("text",),
    "preference": ("prompt", "input", "chosen", "rejected", "system", "history", "tools", "margin"),
    "reward": ("chosen", "rejected", "margin"),
    "kto": ("prompt", "completion", "label", "system", "tools"),
}


@dataclass(frozen=True, slots=True)
class Columns:
    """`column[field]` is the name a field has in the rows. `seen` of `sampled` rows had all that is needed."""

    layout: str
    column: Mapping[str, str]
    seen: int = 0
    sampled: int = 0
    left_out: tuple[str, ...] = ()

    def describe(self) -> str:
        return ", ".join(f"{field} ← {name}" for field, name in self.column.items())


def detect(rows: Iterable[Row], layout: str | None = None, given: Mapping[str, str] | None = None) -> Columns:
    """The layout of the first rows. `given`: field → column, as the user says. Raises JobError where nothing fits.

    Where no row could be read at all there is no layout: each row has its own fault.
    """
    values = [record(row.value) for row in rows if row.fault is None]
    objects = [value for value in values if isinstance(value, dict)]
    if not objects:
        return Columns(NOTHING, {}, 0, len(values))
    seen = Counter(key for value in objects for key in value)
    given = dict(given or {})
    _check(given, seen, layout)
    best = Columns(NOTHING, {})
    for name in (layout,) if layout else _candidates(objects, given):
        column = _assign(name, seen, given, objects)
        lacking = [field for field in NEEDED[name] if field not in column]
        if lacking and layout:
            raise _unknown(seen, f"no column for {', '.join(lacking)} of {name}")
        whole = 0 if lacking else sum(all(column[f] in value for f in NEEDED[name]) for value in objects)
        if whole > best.seen or (layout and not lacking):
            left = tuple(key for key in seen if key not in column.values())
            best = Columns(name, column, whole, len(values), left)
    if best.layout == NOTHING:
        raise _unknown(seen, "the layout is not known")
    return best


def record(value: Any) -> Any:
    """Rows that are bare: a list is a conversation, a string is text."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return {"messages": value}
    return {"text": value} if isinstance(value, str) else value


def turns_like(value: Any) -> str:
    """`sharegpt` for from/value turns, `chat` for role/content, empty for anything else."""
    if not isinstance(value, list) or not value or not isinstance(value[0], dict):
        return ""
    if "from" in value[0]:
        return "sharegpt"
    return "chat" if "role" in value[0] else ""


def _candidates(objects: Sequence[dict[str, Any]], given: Mapping[str, str]) -> Sequence[str]:
    """Layouts in the order in which they explain the rows best: the most telling columns first."""
    spoken = Counter(_spoken(value) for value in objects)
    talk = "sharegpt" if spoken["sharegpt"] > spoken["chat"] else "chat"
    order = ["preference", "reward", "kto", talk, "alpaca", "text"]
    return [name for name in order if all(field in TAKEN[name] for field in given)] or order


def _spoken(value: Mapping[str, Any]) -> str:
    found = (turns_like(parsed(value.get(name))) for name in NAMES["messages"] if name in value)
    return next((name for name in found if name), "")


def parsed(value: Any) -> Any:
    """A list or object that a table holds as JSON text."""
    return cell.structure(value)[0]


def _assign(
    layout: str, seen: Counter[str], given: Mapping[str, str], objects: Sequence[dict[str, Any]]
) -> dict[str, str]:
    lower = {key.strip().lower(): key for key in reversed(list(seen))}
    column: dict[str, str] = {}
    for field in TAKEN[layout]:
        if field in given:
            column[field] = given[field]
            continue
        if layout == "kto" and field == "completion" and column.get("prompt") in NAMES["messages"]:
            column[field] = column["prompt"]  # the answer is the last turn
            continue
        free = (lower[name] for name in NAMES[field] if name in lower and lower[name] not in column.values())
        name = next(free, None)
        if name is not None:
            column[field] = name
    if layout == "alpaca" and "instruction" not in column and "input" in column:
        column = {"instruction": column.pop("input"), **column}
    if layout in ("sharegpt", "chat") and not any(
        turns_like(parsed(o.get(column.get("messages", "")))) for o in objects
    ):
        column = {field: name for field, name in column.items() if field in given or field != "messages"}
    if layout == "kto" and "label" not in given and not all(_truth(o.get(column.get("label", ""))) for o in objects):
        column.pop("label", None)
    return column


def _truth(value: Any) -> bool:
    return value is None or str(value).strip().lower() in ("true", "false", "0", "1", "0.0", "1.0")


def _check(given: Mapping[str, str], seen: Counter[str], layout: str | None) -> None:
    for field, name in given.items():
        if field not in NAMES or (layout and field not in TAKEN[layout]):
            fields = sorted(TAKEN[layout] if layout else NAMES)
            close = difflib.get_close_matches(field, fields, 1)
            raise JobError(
                f"{field} is no field" + (f" of {layout}" if layout else ""),
                (f"Did you mean {close[0]}? " if close else "") + f"Fields: {', '.join(fields)}.",
            )
        if name not in seen:
            raise JobError(f"no row has a column {name}", f"Columns are: {_names(seen)}.")


def _unknown(seen: Counter[str], why: str) -> JobError:
    return JobError(
        f"{why}; the columns are {_names(seen)}",
        "Say which is which: --map instruction=NAME --map output=NAME, or --format with --map.",
    )


def _names(seen: Counter[str]) -> str:
    names = [name for name, _times in seen.most_common(12)]
    return ", ".join(names) + (", …" if len(seen) > 12 else "")


def missing(field: str, name: str, value: Mapping[str, Any]) -> Fault:
    keys = ", ".join(map(str, list(value)[:6])) or "none"
    return Fault("missing", f"has no `{name}`" + (f" ({field})" if name != field else "") + f"; it has: {keys}")
