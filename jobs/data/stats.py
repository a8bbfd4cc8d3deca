"""How long the examples are, and what that means for the cut length, for padding and for packing."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import configs
from jobs.data.example import Example
from jobs.data.finding import Finding
from jobs.data.reading import DataSet
from jobs.data.row import Fault
from jobs.plan.lengths import Lengths

SAMPLE_ROWS = 20_000
COMMON = (512, 1024, 2048, 4096, 8192, 16384, 32768)
SHARES = (0.5, 0.9, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class Cut:
    """What becomes of the data when examples end at `tokens`.

    `rows`: share of examples that lose something; `lost`: share of all tokens that is lost; `useful`: share of computed
    tokens that is no padding at the given micro-batch; `blocks`: full sequences when examples are packed behind one
    another.
    """

    tokens: int
    rows: float
    lost: float
    useful: float
    blocks: int


@dataclass(slots=True)
class Counts:
    """`length` and `learned` are in tokens, of `sampled` rows; empty without a tokenizer. `characters` of all rows."""

    rows: int = 0
    characters: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    turns: Counter[int] = field(default_factory=Counter)
    with_system: int = 0
    with_tools: int = 0
    length: list[int] = field(default_factory=list)
    learned: list[int] = field(default_factory=list)
    refused: int = 0

    @property
    def sampled(self) -> int:
        return len(self.length)

    @property
    def tokens(self) -> int:
        """Of all rows: counted, or taken from the sample's mean."""
        return round(sum(self.length) / self.sampled * self.rows) if self.sampled else 0

    def sorted(self) -> Lengths:
        return Lengths(tuple(sorted(self.length)))

    def quantile(self, share: float) -> int:
        ordered = self.sorted().tokens
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    def cut(self, tokens: int, micro_batch: int) -> Cut:
        """The cut that a `seq_len` makes."""
        ordered = self.sorted()
        shortened = ordered.cut(tokens)
        over = sum(1 for n in ordered.tokens if n > tokens) / self.sampled
        lost = 1 - sum(shortened.tokens) / sum(ordered.tokens)
        blocks = -(-round(sum(shortened.tokens) / self.sampled * self.rows) // tokens)
        return Cut(tokens, over, lost, shortened.useful_share(micro_batch), blocks)

    def enough(self, share: float = 0.99) -> int:
        """The least multiple of 64 tokens at which that share of examples stays whole."""
        return max(64, -(-self.quantile(share) // 64) * 64)


def count(
    data: DataSet,
    lengths: Callable[[Example], tuple[int, int]] | None,
    most: int | None = SAMPLE_ROWS,
    seed: int = 0,
) -> Iterator[Finding | Counts]:
    """Findings on the way, the counts last. Token lengths of a fair sample of `most` rows, of all where it is None."""
    counts, chance = Counts(), random.Random(seed)
    for item in data.read():
        if isinstance(item, Finding):
            yield item
            continue
        example = item.example
        counts.rows += 1
        counts.characters += len(example.flow())
        counts.kinds[example.kind] += 1
        counts.turns[len(example.turns) + len(example.chosen)] += 1
        counts.with_system += bool(example.turns) and example.turns[0].role == "system"
        counts.with_tools += example.tools is not None
        if lengths is not None:
            _sample(counts, example, lengths, most, chance)
    yield counts


def _sample(
    counts: Counts,
    example: Example,
    lengths: Callable[[Example], tuple[int, int]],
    most: int | None,
    chance: random.Random,
) -> None:
    """Vitter's reservoir: every row has the same chance, however many there are; rows are counted when drawn."""
    place = counts.sampled if most is None or counts.sampled < most else chance.randrange(counts.rows)
    if most is not None and place >= most:
        return
    try:
        whole, learned = lengths(example)
    except Fault:
        counts.refused += 1
        return
    if place >= counts.sampled:
        counts.length.append(whole)
        counts.learned.append(learned)
    else:
        counts.length[place], counts.learned[place] = whole, learned


@dataclass(frozen=True, slots=True)
class Saying:
    """What somebody claims of data of this size."""

    claim: str
    source: str


def sayings(rows: int) -> list[Saying]:
    """Claims about so many examples, with who makes them."""
    entries = configs.load("data-sizes.yaml")["claims"]
    return [
        Saying(entry["claim"], entry["source"])
        for entry in entries
        if entry.get("from", 0) <= rows <= entry.get("to", rows)
    ]
