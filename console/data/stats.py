"""`tunedeck data stats`: how much there is, how long the examples are, and what that means for training."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from console.data import asked, report
from console.data.tokenizer import add_tokenizer, asked_for
from console.failure import Failure
from console.format import count
from console.strings import _
from jobs.data import mask, stats
from jobs.data.finding import REJECTED, Finding
from jobs.data.stats import COMMON, SAMPLE_ROWS, SHARES, Counts

BAR_CELLS = 24
BINS = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    asked.add_files(parser)
    add_tokenizer(parser)
    group = parser.add_argument_group(_("what to count"))
    group.add_argument("--micro-batch", type=int, default=4, metavar="N", help=_("examples padded to one length (4)"))
    group.add_argument(
        "--all", action="store_true", help=_("tokens of every row, not of {n} drawn by chance").format(n=SAMPLE_ROWS)
    )
    group.add_argument(
        "--lengths", type=Path, metavar="FILE", help=_("write the token counts, for `tunedeck plan --lengths`")
    )


def run(args: argparse.Namespace) -> int:
    """0: counted; 1: some rows could not be. Raises Failure, JobError."""
    tokens, longest = asked_for(args)
    data, progress = asked.data_set(args)
    measure = (lambda example: mask.lengths(example, tokens)) if tokens else None
    rejected, counts = 0, Counts()
    for item in stats.count(data, measure, None if args.all else SAMPLE_ROWS):
        if isinstance(item, Finding):
            rejected += item.level == REJECTED
        else:
            counts = item
    progress.clear()
    if args.lengths and counts.sampled:
        _write(args.lengths, counts)
    if args.json:
        print(json.dumps(_record(counts, rejected, longest, args.micro_batch), indent=2))
    else:
        for file in range(len(data.columns)):
            print("\n".join(report.header(data, file)))
        print("\n".join(_page(counts, rejected, longest, args)))
    return 1 if rejected else 0


def _write(path: Path, counts: Counts) -> None:
    try:
        path.write_text("".join(f"{n}\n" for n in counts.sorted().tokens), encoding="utf-8")
    except OSError as wrong:
        raise Failure(_("{path} cannot be written: {why}").format(path=path, why=wrong.strerror)) from wrong


def _cuts(counts: Counts, longest: int | None) -> list[int]:
    most = counts.sorted().longest
    usual = [n for n in COMMON if n < 2 * most]
    return sorted({*(usual or COMMON[:1]), counts.enough(), *([longest] if longest else [])})


def _record(counts: Counts, rejected: int, longest: int | None, micro_batch: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "rows": counts.rows,
        "rejected": rejected,
        "characters": counts.characters,
        "kinds": dict(counts.kinds),
        "turns": {str(n): times for n, times in sorted(counts.turns.items())},
        "claims": [{"claim": s.claim, "source": s.source} for s in stats.sayings(counts.rows)],
    }
    if counts.sampled:
        found["tokens"] = {
            "sampled_rows": counts.sampled,
            "total": counts.tokens,
            "learned_share": sum(counts.learned) / sum(counts.length),
            "longest": counts.sorted().longest,
            "refused_rows": counts.refused,
            **{f"p{share * 100:g}": counts.quantile(share) for share in SHARES},
        }
        cuts = (counts.cut(n, micro_batch) for n in _cuts(counts, longest))
        found["cuts"] = [
            {
                "seq_len": c.tokens,
                "rows_cut": c.rows,
                "tokens_lost": c.lost,
                "useful": c.useful,
                "packed_blocks": c.blocks,
            }
            for c in cuts
        ]
    return found


def _page(counts: Counts, rejected: int, longest: int | None, args: argparse.Namespace) -> Iterator[str]:
    yield ""
    yield _("{rows} examples, {characters} characters").format(
        rows=count(counts.rows), characters=count(counts.characters)
    )
    if rejected:
        yield _("  {n} rows are not counted: they cannot be used (tunedeck data check says why)").format(
            n=count(rejected)
        )
    if set(counts.kinds) - {"text"}:
        yield _("  turns: {turns}").format(turns=_turns(counts))
    if counts.sampled:
        yield from _tokens(counts, longest, args)
    elif args.tokenizer is None and args.spec is None:
        yield _("  tokens: unknown without a tokenizer; add --tokenizer FOLDER or --spec FILE")
    if counts.refused:
        yield _("  {n} rows are refused by the chat template").format(n=count(counts.refused))
    yield ""
    yield _("Claims about this much data")
    for saying in stats.sayings(counts.rows):
        yield f"  {saying.claim}: {saying.source}"


def _turns(counts: Counts) -> str:
    parts = [f"{n} × {count(times)}" for n, times in sorted(counts.turns.items())[:8]]
    if counts.with_system:
        parts.append(_("with system {n}").format(n=count(counts.with_system)))
    if counts.with_tools:
        parts.append(_("with tools {n}").format(n=count(counts.with_tools)))
    return ", ".join(parts)


def _tokens(counts: Counts, longest: int | None, args: argparse.Namespace) -> Iterator[str]:
    learned = sum(counts.learned) / sum(counts.length)
    about = "" if counts.sampled == counts.rows else "≈ "
    yield _("  {about}{n} tokens, {share:.0%} of them learned").format(
        about=about, n=count(counts.tokens), share=learned
    )
    if about:
        yield _("  from {n} rows drawn by chance; --all counts every one").format(n=count(counts.sampled))
    yield ""
    yield from _histogram(counts)
    marks = ", ".join(f"p{share * 100:g} {count(counts.quantile(share))}" for share in SHARES)
    yield f"  {marks}, " + _("longest {n}").format(n=count(counts.sorted().longest))
    yield ""
    yield from _table(counts, longest, args.micro_batch)
    yield ""
    yield from _meaning(counts, longest, args)


def _table(counts: Counts, longest: int | None, micro_batch: int) -> Iterator[str]:
    yield _("If examples are cut, and padded {n} at a time or packed behind one another").format(n=micro_batch)
    yield "  " + _("  cut at  rows cut  tokens lost  not padding  packed into")
    for tokens in _cuts(counts, longest):
        cut = counts.cut(tokens, micro_batch)
        notes = [_("max_length")] if tokens == longest else []
        notes += [_("least for 99%")] if tokens == counts.enough() else []
        shares = f"{cut.rows:>8.1%}  {cut.lost:>11.1%}  {cut.useful:>11.0%}"
        yield f"  {count(tokens):>8}  {shares}  {count(cut.blocks):>11}{'  ← ' if notes else ''}{', '.join(notes)}"


def _meaning(counts: Counts, longest: int | None, args: argparse.Namespace) -> Iterator[str]:
    """In words: the cut, packing, and where cost is computed."""
    enough = counts.enough()
    cut = counts.cut(longest or enough, args.micro_batch)
    if longest and longest < enough:
        yield _("max_length {n} cuts {share:.1%} of examples; {enough} would cut at most 1 %").format(
            n=count(longest), share=cut.rows, enough=count(enough)
        )
    elif longest and longest >= 2 * enough:
        yield _("max_length {n} is more than needed: {enough} is enough for 99 % of examples").format(
            n=count(longest), enough=count(enough)
        )
    if cut.useful < 0.995:
        yield _("packing would save {share:.0%} of the computing: what is padding now").format(share=1 - cut.useful)
    file = args.lengths or "FILE"
    yield _("time and cost: tunedeck plan … --seq-len {n} --samples {rows} --lengths {file}").format(
        n=longest or enough, rows=counts.rows, file=file
    )


def _histogram(counts: Counts) -> Iterator[str]:
    """Ten bins up to the 99th percentile, the rest in one."""
    top = max(counts.quantile(0.99), BINS)
    width = -(-top // BINS)
    bins = [0] * (BINS + 1)
    for n in counts.length:
        bins[min(n // width, BINS)] += 1
    most = max(bins)
    for number, times in enumerate(bins):
        if number == BINS and not times:
            continue
        name = f"{number * width}–{(number + 1) * width - 1}" if number < BINS else f"≥ {BINS * width}"
        bar = "█" * round(times / most * BAR_CELLS) or ("▏" if times else "")
        yield f"  {name:>13}  {bar:{BAR_CELLS}}  {times / counts.sampled:>5.1%}".rstrip()
