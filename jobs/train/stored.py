"""A training state in the files of a snapshot, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from safetensors.torch import load_file

from jobs.progress import plain
from jobs.snapshot import Snapshot, SnapshotError
from jobs.snapshot_writer import Buffer
from jobs.train import randomness
from jobs.train.image import Tensors
from jobs.train.randomness import Drawn
from jobs.train.state import Course

WEIGHTS, MOMENTS, STATE = "weights.safetensors", "optimizer.safetensors", "state.json"


@dataclass(frozen=True, slots=True)
class Whole:
    """Everything `TrainingState.restore` takes. `drawn` is None for a rank that the snapshot does not know."""

    weights: Tensors
    moments: Tensors
    course: Course
    drawn: Drawn | None


def parts(
    weights: Iterable[Buffer], moments: Iterable[Buffer], course: Course, drawn: Sequence[Drawn]
) -> Mapping[str, Iterable[Buffer]]:
    """Files of a snapshot; `drawn` by rank. Nothing is encoded before it is written."""
    return {WEIGHTS: weights, MOMENTS: moments, STATE: _text(course, drawn)}


def _text(course: Course, drawn: Sequence[Drawn]) -> Iterable[bytes]:
    value = {"course": plain(asdict(course)), "drawn": [randomness.encode(state) for state in drawn]}
    yield json.dumps(value, allow_nan=False).encode()


def load(found: Snapshot, rank: int) -> Whole:
    """Reads a verified snapshot for one rank. Raises SnapshotError when it holds something else."""
    try:
        value: dict[str, Any] = json.loads((found.path / STATE).read_bytes())
        drawn = value["drawn"]
        return Whole(
            weights=load_file(found.path / WEIGHTS),
            moments=load_file(found.path / MOMENTS),
            course=Course(**value["course"]),
            drawn=randomness.decode(drawn[rank]) if rank < len(drawn) else None,
        )
    except (KeyError, TypeError, ValueError, OSError) as wrong:
        raise SnapshotError(f"snapshot {found.name} cannot be read: {wrong}", "Take an older one.") from wrong
