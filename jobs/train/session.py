"""One training session of a run on one rank: from the spec to the published result."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from transformers import PrinterCallback, Trainer, TrainingArguments, set_seed

from jobs.examples import Examples
from jobs.failure import JobError
from jobs.progress import Progress
from jobs.spec import Spec
from jobs.train import model as models
from jobs.train.encode import Encoded, Padding
from jobs.train.exchange import Exchange
from jobs.train.helm import Helm
from jobs.train.model import Loaded
from jobs.train.publish import publish
from jobs.train.rank import Rank
from jobs.train.stream import Shape, Stream

_SCHEDULES = {"cosine": "cosine", "linear": "linear", "constant": "constant_with_warmup"}


class Steered(Trainer):
    """Trainer over our own stream of batches, whose position can be saved and set."""

    def __init__(self, stream: Stream, **options: Any) -> None:
        super().__init__(**options)
        self._stream = stream

    def get_train_dataloader(self) -> Iterator[dict[str, torch.Tensor]]:  # type: ignore[override,unused-ignore]
        return self._stream


def train(rank: Rank, spec: Spec, data: Examples) -> str:
    """Trains and publishes. Returns "completed" or "stopped"; raises JobError and whatever torch raises."""
    progress = Progress(rank.folder.progress) if rank.number == 0 else None
    _phase(progress, "loading", spec.model)
    set_seed(spec.train.seed)
    loaded = models.load(spec, Path.home())
    rows = Encoded(data.rows, loaded.tokenizer, spec.data.max_length)
    shape = Shape(spec.train.batch_size, spec.train.accumulation, rank.world)
    steps = spec.train.steps or shape.steps(spec.train.epochs, len(rows))
    stream = _stream(spec, loaded, rows, shape, rank)
    trainer = Steered(
        stream,
        model=loaded.model,
        args=_arguments(spec, rank, loaded, steps),
        processing_class=loaded.tokenizer,
        data_collator=Padding(loaded.tokenizer.pad_token_id),
        train_dataset=rows,
    )
    _assert_engine(trainer, rank)
    trainer.remove_callback(PrinterCallback)
    helm = Helm(spec, rank.folder, stream, Exchange(rank.number, rank.world, loaded.device), progress, len(rows))
    trainer.add_callback(helm)
    if progress is not None:
        _announce(progress, spec, rank, loaded, data, len(rows), steps)
    # from here on each rank draws for itself: the same dropout on all of them would waste half of what they see
    torch.manual_seed(spec.train.seed + rank.number)
    _phase(progress, "training", "")
    trainer.train()
    outcome = helm.course.ending or "completed"
    if progress is not None:
        _phase(progress, "saving", "output")
        publish(loaded.model, loaded.tokenizer, rank.folder.output)
        progress.write("end", outcome=outcome, step=trainer.state.global_step, detail=helm.course.detail)
        progress.close()
    return outcome


def leave() -> None:
    """Leaves the process group in order, so that no rank sees a connection break."""
    if dist.is_initialized():
        dist.destroy_process_group()


def _phase(progress: Progress | None, phase: str, detail: str) -> None:
    if progress is not None:
        progress.write("phase", phase=phase, detail=detail)


def _stream(spec: Spec, loaded: Loaded, rows: Encoded, shape: Shape, rank: Rank) -> Stream:
    return Stream(
        rows,
        len(rows),
        Padding(loaded.tokenizer.pad_token_id),
        shape,
        rank.number,
        spec.train.seed if spec.data.shuffle else None,
        spec.train.workers,
        pinned=loaded.device == "cuda",
    )


def _arguments(spec: Spec, rank: Rank, loaded: Loaded, steps: int) -> TrainingArguments:
    given = spec.train
    return TrainingArguments(
        output_dir=str(rank.folder.path),
        max_steps=steps,
        per_device_train_batch_size=given.batch_size,
        gradient_accumulation_steps=given.accumulation,
        learning_rate=given.learning_rate,
        lr_scheduler_type=_SCHEDULES[given.schedule],
        warmup_steps=round(given.warmup * steps),
        weight_decay=given.weight_decay,
        max_grad_norm=given.max_grad_norm,
        seed=given.seed,
        bf16=loaded.precision == "bf16",
        use_cpu=loaded.device == "cpu",
        ddp_backend="gloo" if loaded.device == "cpu" else "nccl",
        ddp_find_unused_parameters=False,
        logging_steps=1,
        logging_nan_inf_filter=False,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
    )


def _assert_engine(trainer: Trainer, rank: Rank) -> None:
    """Trainer falls back without a word where it finds the launcher's settings wanting."""
    if trainer.args.world_size != rank.world:
        raise JobError(
            f"{rank.world} ranks were started, but the trainer counts {trainer.args.world_size}",
            "Check that this torch has the backend for the device (gloo for cpu, nccl for cuda).",
        )


def _announce(
    progress: Progress, spec: Spec, rank: Rank, loaded: Loaded, data: Examples, rows: int, steps: int
) -> None:
    if data.skipped:
        progress.write("warning", message=f"{data.skipped} rows have nothing to learn and are left out")
    progress.write(
        "start",
        world_size=rank.world,
        total_steps=steps,
        first_step=0,
        parameters=loaded.parameters,
        trainable_parameters=loaded.trainable_parameters,
        engine="ddp" if rank.world > 1 else "single",
        device=loaded.device,
        precision=loaded.precision,
        model=spec.model,
        method=spec.method,
        examples=rows,
        tokens_per_epoch=None,
    )
