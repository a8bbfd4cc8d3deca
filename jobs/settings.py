"""The parts of a run spec: every setting with its default and its range."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.section import Section

ALL_LINEAR = "all-linear"
_UNLIMITED = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Data:
    """`max_length`: tokens an example is cut to."""

    path: str = ""
    format: str = "auto"
    max_length: int = 512
    shuffle: bool = True

    @classmethod
    def read(cls, part: Section) -> Data:
        default = cls()
        return cls(
            path=part.required("path", "Add `data: {path: ~/data/examples.jsonl}`."),
            format=part.choice("format", default.format, ("auto", "alpaca", "text")),
            max_length=part.whole("max_length", default.max_length, 8, 1_048_576),
            shuffle=part.flag("shuffle", default.shuffle),
        )


@dataclass(frozen=True, slots=True)
class Lora:
    """Low-rank adapters, Hu et al. 2021 (arXiv:2106.09685). `targets`: ``all-linear`` or module names."""

    rank: int = 8
    alpha: float = 16
    dropout: float = 0.05
    targets: str | tuple[str, ...] = ALL_LINEAR

    @classmethod
    def read(cls, part: Section) -> Lora:
        default = cls()
        return cls(
            rank=part.whole("rank", default.rank, 1, 4096),
            alpha=part.real("alpha", default.alpha, 0.001, 65536),
            dropout=part.real("dropout", default.dropout, 0, 0.9),
            targets=part.words("targets") or default.targets,
        )


@dataclass(frozen=True, slots=True)
class Train:
    """How long and how fast.

    `batch_size` counts examples per rank and micro-step, `warmup` is a fraction of all steps, `steps` (None: as many
    as `epochs` asks for) and `epochs` exclude each other.
    """

    epochs: float = 1.0
    steps: int | None = None
    batch_size: int = 1
    accumulation: int = 1
    learning_rate: float = 2e-4
    schedule: str = "cosine"
    warmup: float = 0.03
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    seed: int = 42
    precision: str = "auto"
    gradient_checkpointing: bool = False
    workers: int = 0
    attention: str = "auto"

    @classmethod
    def read(cls, part: Section, method: str) -> Train:
        if part.has("steps") and part.has("epochs"):
            raise part.wrong("steps", "and train.epochs exclude each other", "Keep one of the two.")
        default = cls()
        # full training moves every weight, so its usual rate is a tenth of what adapters take
        rate = default.learning_rate if method == "lora" else default.learning_rate / 10
        return cls(
            steps=part.whole("steps", 0, 1, _UNLIMITED) or None,
            epochs=part.real("epochs", default.epochs, 0.001, 100_000),
            batch_size=part.whole("batch_size", default.batch_size, 1, 65536),
            accumulation=part.whole("accumulation", default.accumulation, 1, 65536),
            learning_rate=part.real("learning_rate", rate, 0, 10),
            schedule=part.choice("schedule", default.schedule, ("cosine", "linear", "constant")),
            warmup=part.real("warmup", default.warmup, 0, 1),
            weight_decay=part.real("weight_decay", default.weight_decay, 0, 10),
            max_grad_norm=part.real("max_grad_norm", default.max_grad_norm, 0, 1e6),
            seed=part.whole("seed", default.seed, 0, 2**32 - 1),
            precision=part.choice("precision", default.precision, ("auto", "bf16", "fp32")),
            gradient_checkpointing=part.flag("gradient_checkpointing", default.gradient_checkpointing),
            workers=part.whole("workers", default.workers, 0, 64),
            attention=part.choice("attention", default.attention, ("auto", "sdpa", "eager")),
        )


@dataclass(frozen=True, slots=True)
class Hardware:
    """`processes`: ranks on the node; with cuda one GPU each."""

    processes: int = 1
    device: str = "auto"

    @classmethod
    def read(cls, part: Section) -> Hardware:
        return cls(
            processes=part.whole("processes", 1, 1, 1024),
            device=part.choice("device", "auto", ("auto", "cpu", "cuda")),
        )


@dataclass(frozen=True, slots=True)
class Snapshots:
    """`every` in steps, 0 = only when asked. Kept: those younger than `keep_days`, the last and best few, every pin."""

    every: int = 100
    keep_days: float = 7.0
    keep_last: int = 3
    keep_best: int = 1
    memory_budget_gib: float = 2.0

    @classmethod
    def read(cls, part: Section) -> Snapshots:
        default = cls()
        return cls(
            every=part.whole("every", default.every, 0, _UNLIMITED),
            keep_days=part.real("keep_days", default.keep_days, 0, 36500),
            keep_last=part.whole("keep_last", default.keep_last, 1, 10_000),
            keep_best=part.whole("keep_best", default.keep_best, 0, 10_000),
            memory_budget_gib=part.real("memory_budget_gib", default.memory_budget_gib, 0, 65536),
        )


@dataclass(frozen=True, slots=True)
class Rules:
    """What the job does by itself. A spike is a loss above `spike_factor` times the median of the last 20 steps.

    A rollback by rule leaves out the data that led to it (`skip_data`), at most `max_rollbacks` times; then it stops.
    """

    on_nan: str = "stop"
    on_spike: str = "ignore"
    spike_factor: float = 4.0
    max_rollbacks: int = 3
    skip_data: bool = True

    @classmethod
    def read(cls, part: Section) -> Rules:
        default, actions = cls(), ("rollback", "stop", "ignore")
        return cls(
            on_nan=part.choice("on_nan", default.on_nan, actions),
            on_spike=part.choice("on_spike", default.on_spike, actions),
            spike_factor=part.real("spike_factor", default.spike_factor, 1.1, 1e6),
            max_rollbacks=part.whole("max_rollbacks", default.max_rollbacks, 1, 1000),
            skip_data=part.flag("skip_data", default.skip_data),
        )
