"""What training sees of an example: the text in pieces, and which of them are learned.

The same rules as jobs.train.encode, which turns them into labels: the loss is on what the assistant says, with the mark
that ends it; text is learned as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.data import write
from jobs.data.example import Example, Turn
from jobs.data.row import Fault
from jobs.data.tokens import Tokens

# the prompt of Stanford Alpaca, for base models that have no chat template
ALPACA = "Below is an instruction that describes a task. Write a response that appropriately completes the request."


@dataclass(frozen=True, slots=True)
class Piece:
    text: str
    learned: bool


def pieces(example: Example, tokens: Tokens, answer: tuple[Turn, ...] = ()) -> tuple[Piece, ...]:
    """All of it, in order. `answer`: of a pair, the one that is looked at. Raises Fault where the template refuses."""
    if example.text is not None:
        return (Piece(example.text + (tokens.end or "\n"), True),)
    turns = (*example.turns, *(answer or example.chosen))
    if tokens.template is None:
        return _plain(turns, example.given, tokens)
    made: list[Piece] = []
    done = ""
    for number, turn in enumerate(turns):
        if turn.role != "assistant":
            continue
        before = _rendered(turns[:number], example, tokens, prompt=True)
        whole = _rendered(turns[: number + 1], example, tokens)
        if not before.startswith(done) or not whole.startswith(before):
            return _last_only(turns, example, tokens)
        made += [Piece(before[len(done) :], False), Piece(whole[len(before) :], True)]
        done = whole
    return tuple(made)


def _rendered(turns: Sequence[Turn], example: Example, tokens: Tokens, prompt: bool = False) -> str:
    assert tokens.template is not None
    return tokens.template.render(write.messages(turns), example.tools, prompt)


def _last_only(turns: Sequence[Turn], example: Example, tokens: Tokens) -> tuple[Piece, ...]:
    """Where the template shows earlier turns otherwise than they were said, only the last answer can be told apart."""
    before = _rendered(turns[:-1], example, tokens, prompt=True)
    whole = _rendered(turns, example, tokens)
    if whole.startswith(before):
        return Piece(before, False), Piece(whole[len(before) :], True)
    return Piece(before, False), Piece(turns[-1].content + tokens.end, True)


def _plain(turns: Sequence[Turn], given: str, tokens: Tokens) -> tuple[Piece, ...]:
    if [turn.role for turn in turns] != ["user", "assistant"]:
        raise Fault("template", "this tokenizer has no chat template: only single questions can be put to it")
    asked = turns[0].content
    more = ""
    if given:
        asked, more = asked.removesuffix(given).removesuffix("\n\n"), f"\n\n### Input:\n{given}"
    before = f"{tokens.start}{ALPACA}\n\n### Instruction:\n{asked}{more}\n\n### Response:\n"
    return Piece(before, False), Piece(turns[1].content + tokens.end, True)


def lengths(example: Example, tokens: Tokens) -> tuple[int, int]:
    """Tokens of the whole, and of what is learned; of a pair, those of the longer side. Raises Fault."""
    sides = (example.chosen, example.rejected) if example.chosen else ((),)
    return max(_length(pieces(example, tokens, side), tokens) for side in sides)


def _length(shown: Sequence[Piece], tokens: Tokens) -> tuple[int, int]:
    counted = [(tokens.count(piece.text), piece.learned) for piece in shown]
    return sum(n for n, _learned in counted), sum(n for n, learned in counted if learned)
