"""Going on from a snapshot: an ended run in its own folder, or a new run that forks from it."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent import (
    cordon,
    forecast,
    interpreters,
    judging,
    keepers,
    kept,
    killing,
    launch,
    preflight,
    records,
    snapshots,
    wire,
)
from agent.interpreters import Interpreter
from agent.judging import Memory
from agent.launch import Start, Surroundings
from agent.lessons import corrections
from agent.preflight import WEIGHTS_ONLY, Badge, Versions
from agent.refusal import Refusal, of_os_error
from agent.snapshots import Choice
from agent.state import user_home
from jobs import durable, launcher, lineage, orders, progress, snapshot
from jobs.changes import changes
from jobs.run_folder import RunFolder
from jobs.snapshot import Snapshot
from jobs.spec import Spec

HEAD_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Plan:
    """Checked wholly: carrying it out can fail only by what changes meanwhile."""

    start: Start
    choice: Choice
    badge: Badge
    from_step: int | None
    forecast_s: float | None
    """To read and verify it again."""
    ready_s: float | None
    """From the order until the next step can begin; None when this run has never begun one."""

    def result(self, run: str) -> dict[str, Any]:
        found = self.choice.found
        return {
            "run": run,
            "snapshot": found.name,
            "step": 0 if self.badge.label == WEIGHTS_ONLY else found.step,
            "snapshot_step": found.step,
            "from_step": self.from_step,
            "label": self.badge.label,
            "differences": list(self.badge.reasons),
            "open": list(self.badge.open),
            "refused": list(self.choice.refused),
            "bytes": found.size_bytes,
            "forecast_s": self.forecast_s,
            "ready_s": self.ready_s,
            "memory": self.start.expected.text if self.start.expected else "",
        }


def resume(
    folder: RunFolder, body: wire.Resume, order_id: str, operator: str, around: Surroundings, memory: Memory
) -> dict[str, Any]:
    """Starts what goes on, or with `check` only says how it would. Raises Refusal, SpecError or OSError.

    The same order again finds what it did: it is noted in run.json before the keeper is started.
    """
    if body.fork:
        already = launch.started_by(around.state, order_id)
        if already is not None:
            record = durable.read_json(RunFolder.inside(around.state.runs, already).record) or {}
            return dict(record["forked_from"]["result"])
    before = kept.read(folder)
    record = durable.read_json(folder.record) or {}
    again = record.get("resume") or {}
    if not body.fork and again.get("order") == order_id:
        if before is not None and (before.started_unix or 0.0) < float(again["unix"]):  # its daemon died at that point
            keepers.restart(folder, before)
        return dict(again["result"])
    if not body.fork:
        refuse_live(folder, before)
    planned = plan(folder, record, body, order_id, operator, around, memory)
    if body.check:
        return planned.result(folder.name)
    return fork(folder, planned, around) if body.fork else go_on(folder, record, before, planned)


def refuse_live(folder: RunFolder, now: kept.Kept | None) -> None:
    if now is not None and now.phase == "ended":
        return
    raise Refusal(
        f"{folder.name} is live ({now.phase if now else 'starting'}): only a run that has ended can be resumed",
        "Roll it back instead, or pause it first; `--fork` starts a second run beside it.",
    )


def plan(
    folder: RunFolder,
    record: Mapping[str, Any],
    body: wire.Resume,
    order_id: str,
    operator: str,
    around: Surroundings,
    memory: Memory,
) -> Plan:
    """Everything that can be refused is refused here."""
    cordon.refuse(around.state, body.force)
    own_text = folder.spec.read_text(encoding="utf-8")
    text = own_text if body.spec_text is None else body.spec_text
    spec = Spec.parse(text)
    home = user_home(os.environ)
    spec.check_files(home)
    place = lineage.came_to(folder)
    choice = snapshots.choose(folder, body.snapshot, place, memory.speed)
    unchanged = not body.fork and hashlib.sha256(text.encode()).hexdigest() == record.get("spec_sha256")
    changed = [] if unchanged else changes(choice.found.meta.get("deciding") or {}, spec.deciding())
    refuse_change(choice.found, changed, body.fork)
    refuse_finished(folder, choice.found, changed)
    python = choose_python(spec, str(record.get("python") or ""), memory.versions)
    gpus = launch.pick_gpus(spec, python, around.without(body.without_gpus), body.force)
    expected = forecast.of(spec, home, gpus, around.gpus, corrections(around.state))
    if not body.force:
        expected.refuse_unfit()
    # a snapshot is written before an older one may go
    launch.check_disk(around.state.runs, body.force, launch.FREE_BYTES + choice.found.size_bytes)
    settings = launcher.environment(spec, gpus)
    basis = judging.Basis(
        python.path, spec.hardware.processes, gpus, settings, judging.data_file(spec, folder, body.fork)
    )
    badge = preflight.judge(choice.found, changed, basis.surroundings(around, memory))
    start = Start(spec, text, python, gpus, order_id, operator, expected)
    read_s, begun_s = memory.speed.forecast_s(choice.found.size_bytes), start_s(folder, record)
    ready_s = None if begun_s is None else round(begun_s + (read_s or 0.0), 3)
    return Plan(start, choice, badge, place.step, read_s, ready_s)


def start_s(folder: RunFolder, record: Mapping[str, Any]) -> float | None:
    """How long this run took the first time from its order until it was ready for a step: imports, model, data."""
    head = progress.records(folder.progress, 0, HEAD_BYTES)[0]
    began = next((records.real(one.get("time_unix")) for one in head if one.get("kind") == "start"), None)
    created = records.real(record.get("created_unix"))
    return None if began is None or created is None else max(0.0, began - created)


def refuse_change(found: Snapshot, changed: list[str], fork: bool) -> None:
    if changed and not fork:
        raise Refusal(
            f"the spec is another than {found.name} was trained with: {'; '.join(changed)}",
            "A changed spec makes another training: fork it into a new run (`--fork SPEC`).",
        )


def refuse_finished(folder: RunFolder, found: Snapshot, changed: list[str]) -> None:
    """A run that died between its last step and its result is not finished: it still has that to write."""
    total, now = found.meta.get("total_steps"), kept.read(folder)
    completed = now is not None and now.reason == "completed"
    if completed and not changed and isinstance(total, int) and found.step >= total:
        raise Refusal(
            f"{found.name} is the last of {total} steps: nothing is left to train",
            "Take an older snapshot, or fork with more steps.",
        )


def choose_python(spec: Spec, before: str, versions: Versions) -> Interpreter:
    """The one the run was started with, if it still can: another one may compute other bits. Raises Refusal."""
    found = versions.of(before)[0] if before and spec.python is None else None
    return found or interpreters.choose(spec.python, user_home(os.environ))


def go_on(folder: RunFolder, record: dict[str, Any], before: kept.Kept | None, planned: Plan) -> dict[str, Any]:
    """In the run's own folder. Until its record is replaced the run is ended as it was."""
    result, found = planned.result(folder.name), planned.choice.found
    clear(folder, found.step)
    durable.write_json(folder.resume, {"snapshot": found.name})
    number = int((record.get("resume") or {}).get("number") or 0) + 1
    again = {
        "number": number,
        "order": planned.start.order_id,
        "operator": planned.start.operator,
        "unix": time.time(),
        "snapshot": found.name,
        "step": found.step,
        "result": result,
    }
    durable.write_json(folder.record, {**record, **planned.start.settings(folder), "resume": again})
    keepers.restart(folder, before)
    return result


def clear(folder: RunFolder, step: int) -> None:
    """What was meant for the session that has ended must not reach the next one: kills, orders, words of its ranks."""
    for path in (killing.request_path(folder), killing.result_path(folder), *folder.ranks.glob("*.json")):
        path.unlink(missing_ok=True)
    for name in orders.names(folder):
        orders.reply(folder, name, "refused", "the run had ended before it looked", step)


def fork(folder: RunFolder, planned: Plan, around: Surroundings) -> dict[str, Any]:
    """A new run that owns the snapshot as its first one."""
    found = planned.choice.found
    result: dict[str, Any] = {}

    def furnish(staging: RunFolder, run: str) -> dict[str, Any]:
        hand_over(found, staging, run)
        durable.write_json(staging.resume, {"snapshot": found.name, "fork": True})
        result.update(planned.result(run))
        return {"forked_from": {"run": folder.name, "snapshot": found.name, "step": found.step, "result": result}}

    try:
        made = launch.make_folder(planned.start, around.state, furnish)
    except OSError as error:
        raise of_os_error(error, "cannot make the run folder", around.state.runs) from error
    keepers.start(made)
    return result


def hand_over(found: Snapshot, staging: RunFolder, run: str) -> None:
    """The same bytes under a manifest that names `run`. Parts are never written in place, so links may share them."""
    target = staging.snapshots / found.name
    target.mkdir(mode=durable.FOLDER_MODE)
    for part in found.files:
        share(found.path / part, target / part)
    manifest = {**found.meta, "run": run, "taken_by": found.meta["run"]}
    durable.write_json(target / snapshot.MANIFEST, {**manifest, "digest": snapshot.digest_of(manifest)})


def share(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except OSError:  # no hard links here; a copy that the disk spoils is found by the job, which verifies it again
        shutil.copyfile(source, target)
        target.chmod(durable.FILE_MODE)
