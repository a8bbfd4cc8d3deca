"""From a spec to a running keeper: everything that can be refused is refused before anything is left on disk."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent import cordon, forecast, keepers, wire
from agent.forecast import Forecast
from agent.interpreters import Interpreter, choose
from agent.lessons import corrections
from agent.nvml import NO_DRIVER
from agent.refusal import BUSY_GPUS, FULL_DISK, STALE_GPUS, Refusal, of_os_error
from agent.state import StateFolder, user_home
from jobs import durable, launcher, run_folder
from jobs.run_folder import RunFolder
from jobs.spec import TRAIN, Spec

FREE_BYTES = 1 << 30
"""A small adapter with a few snapshots and logs; less than this is a disk about to be full."""
BUSY_BYTES = 1 << 30
"""A GPU with more than this in use is somebody's, also where their processes cannot be seen (containers)."""
FRESH_S = 15.0
"""Older GPU figures do not show who came meanwhile."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a launch must know of its node at this moment."""

    state: StateFolder
    gpus: Mapping[str, wire.Gpu]
    gpu_age_s: float | None
    gpu_note: str
    taken: frozenset[str]
    """UUIDs given to runs that have not ended."""

    def without(self, cards: Collection[str]) -> Surroundings:
        """The node as if these cards were not there."""
        return replace(self, gpus={uuid: gpu for uuid, gpu in self.gpus.items() if uuid not in cards})


def launch(order: wire.Launch, order_id: str, operator: str, around: Surroundings) -> str:
    """Starts a run and returns its id; the same order id finds the run it started. Raises Refusal or SpecError."""
    already = started_by(around.state, order_id)
    if already is not None:
        return already
    cordon.refuse(around.state, order.force)
    home = user_home(os.environ)
    spec = Spec.parse(order.spec_text, order.spec_name)
    spec.check_files(home)
    python = choose(spec.python, home)
    gpus = pick_gpus(spec, python, around, order.force)
    # a bench takes no more memory than is free
    trains = spec.kind == TRAIN
    expected = forecast.of(spec, home, gpus, around.gpus, corrections(around.state)) if trains else None
    if expected is not None and not order.force:
        expected.refuse_unfit()
    check_disk(around.state.runs, order.force)
    try:
        folder = make_folder(Start(spec, order.spec_text, python, gpus, order_id, operator, expected), around.state)
    except OSError as error:
        raise of_os_error(error, "cannot make the run folder", around.state.runs) from error
    keepers.start(folder)
    return folder.name


def started_by(state: StateFolder, order_id: str) -> str | None:
    """The run that this order started, if it did so before the daemon was restarted."""
    for path in sorted(state.runs.glob("*/run.json"), reverse=True):
        record = durable.read_json(path)
        if record is not None and record.get("order") == order_id:
            return path.parent.name
    return None


def pick_gpus(spec: Spec, python: Interpreter, around: Surroundings, force: bool) -> list[str]:
    """UUIDs for the ranks, empty for a run on the CPU. Raises Refusal or SpecError."""
    wanted = spec.hardware.device
    real = [gpu for gpu in around.gpus.values() if not gpu.simulated and not gpu.lost]
    if wanted == "auto" and python.cuda is not None and not around.gpus and around.gpu_note not in ("", NO_DRIVER):
        raise Refusal(f"no GPU can be used: {around.gpu_note}", "Mend that, or ask for `hardware: {device: cpu}`.")
    if wanted == "cpu" or (wanted == "auto" and (not real or python.cuda is None)):
        return []
    if python.cuda is None:
        wrong = f"is cuda, but torch of {python.path} is a CPU build"
        raise spec.error("hardware.device", wrong, "Install a CUDA build.")
    if len(real) < spec.hardware.processes:
        note = around.gpu_note or ("its GPUs are SIMULATED" if around.gpus and not real else "")
        raise spec.error(
            "hardware.processes",
            f"is {spec.hardware.processes}, this node has {len(real)} usable GPUs" + (f" ({note})" if note else ""),
            "Ask for fewer, or choose another node.",
        )
    if not force and (around.gpu_age_s is None or around.gpu_age_s > FRESH_S):
        raise Refusal(
            "the GPU figures of this node are old: NVML does not answer",
            "Check the driver, or force.",
            {"kind": STALE_GPUS},
        )
    free = [gpu for gpu in real if force or not busy(gpu, around.taken)]
    if len(free) < spec.hardware.processes:
        raise Refusal(
            f"{spec.hardware.processes} GPUs wanted, {len(free)} free: " + "; ".join(occupied(real, around.taken)),
            "Wait, kill what holds them, or force it.",
            {"kind": BUSY_GPUS},
        )
    free.sort(key=lambda gpu: (busy(gpu, around.taken), gpu.memory_used_bytes or 0, gpu.index))
    chosen = sorted(free[: spec.hardware.processes], key=lambda gpu: gpu.index)
    return [gpu.uuid for gpu in chosen]


def busy(gpu: wire.Gpu, taken: frozenset[str]) -> bool:
    return gpu.uuid in taken or bool(gpu.processes) or (gpu.memory_used_bytes or 0) > BUSY_BYTES


def occupied(gpus: list[wire.Gpu], taken: frozenset[str]) -> list[str]:
    """Who holds which GPU, in words."""
    words = []
    for gpu in gpus:
        if gpu.uuid in taken:
            words.append(f"GPU {gpu.index} belongs to a run")
        elif gpu.processes:
            words.append(f"GPU {gpu.index} is used by pid " + ", ".join(str(p.pid) for p in gpu.processes[:4]))
        elif busy(gpu, taken):
            words.append(f"GPU {gpu.index} has {(gpu.memory_used_bytes or 0) / 2**30:.1f} GiB in use")
    return words


def check_disk(runs: Path, force: bool, wanted: int = FREE_BYTES) -> None:
    """Raises Refusal when the disk is nearly full. `wanted` in bytes."""
    try:
        free = shutil.disk_usage(runs).free
    except OSError as error:
        raise of_os_error(error, "cannot read the disk", runs) from error
    if free < wanted and not force:
        raise Refusal(
            f"the disk of {runs} is nearly full: {free / 2**20:.0f} MiB free, {wanted >> 20} MiB wanted",
            "Free some space (`df -h`), or force it.",
            {"kind": FULL_DISK},
        )


@dataclass(frozen=True, slots=True)
class Start:
    """All that has been decided about a run before its folder is made."""

    spec: Spec
    spec_text: str
    python: Interpreter
    gpus: list[str]
    order_id: str
    operator: str
    expected: Forecast | None = None

    def settings(self, folder: RunFolder) -> dict[str, Any]:
        """The part of run.json that may differ from one start of the same run to the next."""
        return {
            "python": self.python.path,
            "argv": launcher.argv(self.spec, folder, self.python.path),
            "world_size": self.spec.hardware.processes,
            "gpu_uuids": self.gpus,
            "environment": launcher.environment(self.spec, self.gpus),
        }


def make_folder(
    start: Start,
    state: StateFolder,
    furnish: Callable[[RunFolder, str], dict[str, Any]] = lambda _folder, _run: {},
) -> RunFolder:
    """The whole run folder, made aside and published by rename: it is there complete or not at all. Raises OSError.

    `furnish` puts more into the unpublished folder of the run of that id, and returns what run.json is to say of it.
    """
    name = run_folder.run_id(start.spec.name, time.time())
    folder = RunFolder.inside(state.runs, name)
    staging = RunFolder(state.runs / f".{name}.{secrets.token_hex(4)}.staging")
    record = {
        "run": name,
        "name": start.spec.name,
        "created_unix": time.time(),
        "spec_sha256": hashlib.sha256(start.spec_text.encode()).hexdigest(),
        **start.settings(folder),
        "launched_by": start.operator,
        "order": start.order_id,
        "model": start.spec.model,
        "method": start.spec.method,
        "forecast": start.expected.to_json() if start.expected else None,
    }
    try:
        staging.create()
        launcher.stage(staging, start.spec_text)
        durable.write_json(staging.record, {**record, **furnish(staging, name)})
        durable.sync_tree(staging.path)  # a resume after a power cut needs the run's own copy of the code
        staging.path.rename(folder.path)
        durable.sync_folder(state.runs)
    except BaseException:
        shutil.rmtree(staging.path, ignore_errors=True)
        raise
    return folder
