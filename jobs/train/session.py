"""One training session of a run on one rank: from the spec to the published result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from transformers import PrinterCallback, Trainer, TrainingArguments, set_seed

from jobs import snapshot_writer
from jobs.examples import Examples
from jobs.failure import JobError
from jobs.progress import Progress
from jobs.spec import Spec
from jobs.train import model as models
from jobs.train import resume
from jobs.train.encode import Encoded, Padding
from jobs.train.environment import describe
from jobs.train.exchange import Exchange
from jobs.train.helm import Helm
from jobs.train.log import Log
from jobs.train.model import Loaded
from jobs.train.passage import Passage
from jobs.train.publish import publish
from jobs.train.rank import Rank
from jobs.train.resume import Plan
from jobs.train.state import TrainingState
from jobs.train.stream import Shape, Stream
from jobs.train.vault import Vault
from jobs.train.work import Forward

_SCHEDULES = {"cosine": "cosine", "linear": "linear", "constant": "constant_with_warmup"}


class Steered(Trainer):
    """Trainer over our own stream of batches, whose position can be saved and set."""

    def __init__(self, stream: Stream, **options: Any) -> None:
        super().__init__(**options)
        self._stream = stream

    def get_train_dataloader(self) -> Iterator[dict[str, torch.Tensor]]:  # type: ignore[override,unused-ignore]
        return self._stream


@dataclass(frozen=True, slots=True)
class Session:
    """The parts of one training session, put together by `prepare`."""

    rank: Rank
    trainer: Trainer
    stream: Stream
    loaded: Loaded
    helm: Helm
    vault: Vault
    log: Log
    progress: Progress | None


def run(session: Session) -> str:
    """Trains and publishes. Returns "completed" or "stopped"; raises JobError and whatever torch raises."""
    _phase(session.progress, "training", "")
    session.trainer.train()
    while session.helm.turns_back:
        session.trainer.train()
    return _finish(session)


def prepare(rank: Rank, spec: Spec, data: Examples) -> Session:
    """Everything up to the first step."""
    progress = Progress(rank.folder.progress) if rank.number == 0 else None
    _phase(progress, "loading", spec.model)
    if progress is not None:
        snapshot_writer.sweep(rank.folder)
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
    exchange = Exchange(rank.number, rank.world, loaded.device)
    environment = describe(loaded.device, rank.world) | {"data": data.sha256[:16]}
    state = TrainingState(trainer, stream, loaded.device)
    facts = {"deciding": spec.deciding(), "environment": environment, "method": spec.method, "total_steps": steps}
    vault = Vault(rank, spec.snapshots, state, exchange, progress, loaded.device, facts)
    log = Log(rank.folder, stream, progress, len(rows), exchange.memory_kind)
    passage = Passage(rank, trainer, state, stream, vault, progress, log)
    plan = exchange.agree(_plan(rank, spec, environment) if progress is not None else None)
    if plan is not None:
        passage.prepare_resume(plan)
    forward = Forward(loaded.model, loaded.device)
    helm = Helm(spec, rank.folder, stream, exchange, progress, vault, passage, log, forward)
    trainer.add_callback(helm)
    if plan is not None and rank.world > 2:
        helm.warm_up()
    if progress is not None:
        first = plan.first_step if plan is not None else 0
        _announce(progress, spec, rank, loaded, data, rows=len(rows), steps=steps, first=first)
    # from here on each rank draws for itself: the same dropout on all of them would waste half of what they see
    torch.manual_seed(spec.train.seed + rank.number)
    return Session(rank, trainer, stream, loaded, helm, vault, log, progress)


def _plan(rank: Rank, spec: Spec, environment: dict[str, Any]) -> Plan | None:
    wish = resume.asked(rank.folder)
    return None if wish is None else resume.plan(rank.folder, spec, environment, wish)


def _finish(session: Session) -> str:
    session.vault.wait()
    session.stream.close()
    ending, step = session.helm.ending, session.trainer.state.global_step
    outcome = "stopped" if ending else "completed"
    if session.progress is None:
        return outcome
    if not (ending and ending.paused):
        _phase(session.progress, "saving", "output")
        publish(session.loaded.model, session.loaded.tokenizer, session.rank.folder.output)
    session.log.refuse_rest(step)
    session.progress.write("end", outcome=outcome, step=step, detail=ending.detail if ending else "")
    session.progress.close()
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
        ddp_backend=None if rank.world == 1 else "gloo" if loaded.device == "cpu" else "nccl",
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
    progress: Progress, spec: Spec, rank: Rank, loaded: Loaded, data: Examples, *, rows: int, steps: int, first: int
) -> None:
    if data.skipped:
        progress.write("warning", message=f"{data.skipped} rows have nothing to learn and are left out")
    progress.write(
        "start",
        world_size=rank.world,
        total_steps=steps,
        first_step=first,
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
