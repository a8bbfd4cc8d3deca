"""`tunedeck data preview`: what training sees of an example: chat template, special tokens, and what is learned."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from agent.wire import clean
from console.data import asked
from console.data.tokenizer import add_tokenizer, asked_for
from console.failure import Failure
from console.format import count
from console.strings import _
from jobs.data import mask
from jobs.data.example import Example, Turn
from jobs.data.finding import REJECTED
from jobs.data.mask import Piece
from jobs.data.reading import DataSet, Read
from jobs.data.row import Fault
from jobs.data.tokens import Tokens

LEARNED, GIVEN, END = "bold green", "dim", "dim cyan"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    asked.add_files(parser)
    add_tokenizer(parser)
    group = parser.add_argument_group(_("which rows"))
    group.add_argument("--line", type=int, metavar="N", help=_("the one at this line, or row of a table"))
    group.add_argument("-n", "--count", type=int, default=3, metavar="N", help=_("the first N usable rows (3)"))


def run(args: argparse.Namespace) -> int:
    """0: shown; 1: there is no such row, or it cannot be used. Raises Failure, JobError."""
    tokens, longest = asked_for(args)
    data, _progress = asked.data_set(args)
    shown: list[dict[str, Any]] = []
    console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
    for item in _chosen(data, args):
        sides = _sides(item.example, tokens)
        where = data.finding("", "", "", item.file, item.place)
        if args.json:
            shown.append({"file": where.file, "place": item.place, "pieces": {n: _plain(p) for n, p in sides}})
            continue
        print(f"── {where.file}, {where.unit} {item.place}: {item.example.kind}")
        for name, pieces in sides:
            _show(console, name, pieces, tokens, longest)
        print()
    if args.json:
        print(json.dumps(shown, ensure_ascii=False, indent=2))
    elif tokens is None:
        print(_("without a tokenizer these are the turns; --tokenizer FOLDER shows the chat template and its tokens"))
    return 0


def _chosen(data: DataSet, args: argparse.Namespace) -> Iterator[Read]:
    """Raises Failure where the wanted row is not there or cannot be used."""
    number = 0
    for item in data.read():
        if args.line is not None and item.place != args.line:
            continue
        if isinstance(item, Read):
            number += 1
            yield item
            if args.line is not None or number >= args.count:
                return
        elif args.line is not None and item.level == REJECTED:
            raise Failure(str(item), _("tunedeck data check lists all such rows"))
    if not number:
        raise Failure(_("there is no usable row there"), _("tunedeck data check says why"))


def _sides(example: Example, tokens: Tokens | None) -> list[tuple[str, tuple[Piece, ...]]]:
    """What is shown one after another: of a pair, both answers with their prompt. Raises Failure."""
    answers = (("chosen", example.chosen), ("rejected", example.rejected)) if example.chosen else (("", ()),)
    try:
        return [
            (name, mask.pieces(example, tokens, side) if tokens else _turns(example, side)) for name, side in answers
        ]
    except Fault as fault:
        raise Failure(fault.reason, _("another tokenizer, or convert the data first")) from fault


def _turns(example: Example, answer: tuple[Turn, ...]) -> tuple[Piece, ...]:
    if example.text is not None:
        return (Piece(example.text, True),)
    return tuple(
        Piece(f"{turn.role}: {turn.content}{_more(turn)}", turn.role == "assistant")
        for turn in (*example.turns, *answer)
    )


def _more(turn: Turn) -> str:
    return f" {json.dumps(turn.more, ensure_ascii=False)}" if turn.more else ""


def _plain(pieces: tuple[Piece, ...]) -> list[dict[str, Any]]:
    return [asdict(piece) for piece in pieces]


def _show(console: Console, name: str, pieces: tuple[Piece, ...], tokens: Tokens | None, longest: int | None) -> None:
    """Each piece under its heading, a bar at its left: what is learned is told by more than its colour."""
    total = 0
    for piece in pieces:
        n = tokens.count(piece.text) if tokens else None
        total += n or 0
        word = _("learned") if piece.learned else _("given")
        heading = " · ".join(
            [*([name] if name else []), word, *([_("{n} tokens").format(n=count(n))] if n is not None else [])]
        )
        style = LEARNED if piece.learned else GIVEN
        console.print(Text(f"{'▌' if piece.learned else '│'} {heading}", style=style))
        width = console.width - 2 if console.is_terminal else None
        for line in _lines(piece.text, style):
            for part in line.wrap(console, width, overflow="fold") if width else [line]:
                console.print(Text("▌ " if piece.learned else "│ ", style=style) + part)
    if longest and total > longest:
        over = _("  {n} tokens, {over} more than max_length {most}: training cuts it")
        print(over.format(n=count(total), over=count(total - longest), most=count(longest)))


def _lines(text: str, style: str) -> Iterator[Text]:
    """Line ends are shown as ↵: one too many or too few in a template is what nobody sees otherwise."""
    *ended, last = clean(text).split("\n")
    for line in ended:
        yield Text.assemble((line, style), ("↵", END))
    if last:
        yield Text(last, style=style)
