"""Going back to an earlier state: which one, and by which way.

Two ways, both exact. The plain one ends Trainer's loop and calls `train()` again on the same Trainer, whose beginning
restores the state. The fast one restores between two steps of the loop that goes on; it reaches into
Trainer's loop, so it is taken only where the bit-equality test has passed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import torch
from transformers import Trainer

from jobs import snapshot
from jobs.lineage import Lineage
from jobs.run_folder import RunFolder
from jobs.snapshot import SnapshotError
from jobs.train.vault import Held

IN_PLACE, SECOND_TRAIN = "in-place", "train"

# (transformers, torch) up to the minor version, for which tests/test_jobs_rollback.py has passed
_TESTED = frozenset({("5.24", "2.13")})


@dataclass(frozen=True, slots=True)
class Target:
    """What is gone back to; the same on all ranks. `notes` tells which newer snapshots were refused and why."""

    name: str
    branch: int
    step: int
    in_memory: bool
    way: str
    notes: tuple[str, ...] = ()


def way(wanted: str | None) -> str:
    """The fast way where it is proven, else the plain one; `wanted` (an order's "way") overrules."""
    if wanted in (IN_PLACE, SECOND_TRAIN):
        return wanted
    here = tuple(".".join(version(name).split(".")[:2]) for name in ("transformers", "torch"))
    return IN_PLACE if here in _TESTED else SECOND_TRAIN


def choose(folder: RunFolder, lineage: Lineage, held: Held | None, now: int, args: dict[str, Any]) -> Target:
    """The state an order or a rule asks for. Raises SnapshotError in words for whoever asked.

    args: ``snapshot`` (name), or ``step`` (the newest at or before it), or neither: the newest good one before now.
    """
    wanted, step = args.get("snapshot"), args.get("step")
    if step is not None and step > now:
        raise SnapshotError(f"step {step} is ahead, training is at {now}", "Give an earlier step.")
    notes: list[str] = []
    for name in [wanted] if wanted else _candidates(folder, lineage, held, now - 1 if step is None else step, step):
        if held is not None and held.name == name:
            return Target(name, held.branch, held.step, True, way(args.get("way")), tuple(notes))
        try:
            found = snapshot.verify(folder, name)
        except SnapshotError as wrong:
            if wanted:
                raise
            notes.append(wrong.message)
            continue
        return Target(name, found.branch, found.step, False, way(args.get("way")), tuple(notes))
    refused = "".join(f"; {note}" for note in notes)
    raise SnapshotError(f"there is no snapshot to go back to{refused}", "Take snapshots more often.")


def _candidates(folder: RunFolder, lineage: Lineage, held: Held | None, latest: int, step: int | None) -> Iterator[str]:
    """Names on the way to the present state, latest first. Unasked, only those with a loss that is a number."""
    known = {(one.step, one.branch): (one.name, one.good) for one in snapshot.listing(folder)}
    if held is not None:
        known[held.step, held.branch] = (held.name, held.loss is None or math.isfinite(held.loss))
    for (at, branch), (name, good) in sorted(known.items(), reverse=True):
        if at <= latest and (good or step is not None) and lineage.holds(branch, at):
            yield name


def settle_in_place(trainer: Trainer) -> None:
    """What Trainer's loop remembers of the steps that are no more. Proven only for the versions in `_TESTED`."""
    trainer._tr_loss = torch.zeros_like(trainer._tr_loss)
    trainer.control.should_training_stop = False
    trainer.control.should_epoch_stop = False
