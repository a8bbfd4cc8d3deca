"""Going on from a snapshot in a new process: what would be the same, what not, and whether it may."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jobs import durable, snapshot
from jobs.changes import changes
from jobs.failure import JobError
from jobs.lineage import Lineage, came_to
from jobs.run_folder import RunFolder
from jobs.snapshot import Snapshot, SnapshotError
from jobs.spec import Spec

EXACT, INEXACT, WEIGHTS_ONLY = "exact", "inexact", "weights-only"


@dataclass(frozen=True, slots=True)
class Plan:
    """`label` is exact, inexact (for `reasons`) or weights-only; `from_step` is where the run had come to."""

    found: Snapshot
    label: str
    reasons: tuple[str, ...]
    lineage: Lineage
    from_step: int

    @property
    def first_step(self) -> int:
        """Weights alone say nothing about where in the schedule they stand, so that begins anew."""
        return 0 if self.label == WEIGHTS_ONLY else self.found.step


def asked(folder: RunFolder) -> dict[str, Any] | None:
    """The content of resume.json; None for a first start. Raises JobError when it is unreadable."""
    try:
        return durable.read_json(folder.resume)
    except ValueError as wrong:
        raise JobError("resume.json is unreadable", "Remove it, or resume again.") from wrong


def plan(folder: RunFolder, spec: Spec, environment: dict[str, Any], wish: dict[str, Any]) -> Plan:
    """The preflight. `wish`: ``snapshot`` (name or "newest"), ``fork`` (accept a changed spec). Raises JobError."""
    where = came_to(folder)
    reached = where.step or 0
    found = _found(folder, str(wish.get("snapshot", "newest")), where.lineage)
    changed = changes(found.meta.get("deciding") or {}, spec.deciding())
    if changed and not wish.get("fork"):
        raise JobError(
            f"the spec changed since {found.name}: {'; '.join(changed)}",
            "Start it as a new run, or resume with fork to take over the weights only.",
        )
    lineage = where.lineage
    if changed or (where.branch, reached) != (found.branch, found.step):
        leading = lineage if lineage.holds(found.branch, found.step) else Lineage.from_json(found.meta["lineage"])
        lineage = leading.fork(found.branch, found.step, max(where.branch, found.branch) + 1)
    if changed:
        return Plan(found, WEIGHTS_ONLY, tuple(changed), lineage, reached)
    reasons = tuple(changes(found.meta.get("environment") or {}, environment))
    return Plan(found, INEXACT if reasons else EXACT, reasons, lineage, reached)


def _found(folder: RunFolder, name: str, lineage: Lineage) -> Snapshot:
    if name != "newest":
        try:
            return snapshot.verify(folder, name)
        except SnapshotError as wrong:
            other, _ = snapshot.newest(folder, lambda one: one.name != name)
            offer = f"Newest that verifies: {other.name}." if other else "No other snapshot verifies."
            raise JobError(wrong.message, offer) from wrong
    # not those of abandoned steps, though they may have been written later
    found, refused = snapshot.newest(folder, lambda one: lineage.holds(one.branch, one.step))
    if found is None:
        reasons = "; ".join(one.message for one in refused) or "none was taken"
        raise JobError(f"there is no snapshot to resume from: {reasons}", "Start the run anew.")
    return found
