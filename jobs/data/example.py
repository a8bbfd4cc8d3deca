"""What a row means, whichever layout it came in: turns of a conversation, text, or answers that are compared."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

DIGEST_BYTES = 16


# a tuple for the same reason as Row
class Turn(NamedTuple):
    """`role`: system, user, assistant or tool. `more`: what a turn holds besides text, under OpenAI's names
    (tool_calls, tool_call_id, name, reasoning_content; `parts` for pictures and sound)."""

    role: str
    content: str
    more: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Example:
    """`kind`: chat, text, preference (prompt, chosen, rejected), reward (two whole conversations) or kto (labelled).

    `turns` is the conversation, or what both answers of a pair have before them. `given`: the end of an Alpaca question
    that stood under `input`; the same words in one column are the same example.
    """

    kind: str
    turns: tuple[Turn, ...] = ()
    chosen: tuple[Turn, ...] = ()
    rejected: tuple[Turn, ...] = ()
    label: bool | None = None
    text: str | None = None
    tools: Any = None
    margin: float | None = None
    given: str = field(default="", compare=False, repr=False)

    def digests(self) -> tuple[bytes, bytes]:
        """Of the question alone, and of the whole: the same for the same content, in whichever layout it came.

        Space around the parts does not count. Text, and pairs of whole conversations, have no question of their own.
        """
        if self.text is not None:
            whole = _digest((self.text.strip(),))
            return whole, whole
        if self.kind in ("chat", "kto"):
            asked = blake2b(_joined(self.turns[:-1]), digest_size=DIGEST_BYTES)
            question = asked.digest()
            asked.update(_joined(self.turns[-1:]) + (b"\x01" if self.label else b""))
            return question, asked.digest()
        pair = (*_spoken(self.chosen), "\x01", *_spoken(self.rejected))
        question = _digest(_spoken(self.turns) if self.turns else pair)
        return question, _digest(pair, question)

    def flow(self) -> str:
        """All its text, in order."""
        spoken = (turn.content for turn in (*self.turns, *self.chosen, *self.rejected))
        return self.text if self.text is not None else "\n".join(spoken)


def _spoken(turns: tuple[Turn, ...]) -> list[str]:
    words: list[str] = []
    for turn in turns:
        words += (turn.role, turn.content.strip())
        if turn.more:
            words.append(json.dumps(turn.more, sort_keys=True, default=str))
    return words


def _joined(turns: tuple[Turn, ...]) -> bytes:
    return "\x00".join(_spoken(turns)).encode("utf-8", "surrogatepass")


def _digest(words: Sequence[str], start: bytes = b"") -> bytes:
    return blake2b(start + "\x00".join(words).encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).digest()
