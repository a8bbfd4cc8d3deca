"""The result of a run, or the state of one of its snapshots, as an ordinary folder that has been loaded and compared.

`python RUN/export.py [--snapshot NAME|newest] [--out FOLDER]`; the last line of its output is a JSON object.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from jobs import durable, snapshot
from jobs.failure import JobError
from jobs.run_folder import RunFolder
from jobs.section import SpecError
from jobs.snapshot import Snapshot
from jobs.spec import Spec

SUMS = "SHA256SUMS"
_CHECK_LIMIT_S = 1800


def main(run: Path | None = None) -> None:
    """`run` is given by the run folder's own script."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--run", type=Path, default=run, required=run is None, metavar="FOLDER")
    parser.add_argument("--snapshot", metavar="NAME", help="a snapshot's name or `newest`; without it the final result")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="default: RUN/exports/NAME")
    parser.add_argument("--check", type=Path, metavar="FOLDER", help="only load an export again and compare logits")
    given = parser.parse_args()
    folder = RunFolder(given.run.resolve())
    try:
        spec = Spec.parse(folder.spec.read_text(encoding="utf-8"))
        if given.check is not None:
            print(json.dumps({"difference": _reload(spec, given.check)}))
        else:
            print(json.dumps(export(folder, spec, given.snapshot, given.out)))
    except (JobError, SpecError) as wrong:
        sys.exit(f"error: {wrong.message}. {wrong.hint}")


def export(folder: RunFolder, spec: Spec, name: str | None, out: Path | None) -> dict[str, Any]:
    """Writes and proves the export. Returns folder, source, bytes and the largest difference of logits."""
    found = None if name is None else _chosen(folder, name)
    target = out or folder.path / "exports" / (found.name if found else "final")
    target.parent.mkdir(mode=durable.FOLDER_MODE, parents=True, exist_ok=True)
    if found is None:
        _copy_output(folder, target)
    else:
        _from_snapshot(spec, found, target)
    difference = _check(folder, target)
    total = _write_sums(target)
    source = found.name if found else "final"
    return {"folder": str(target), "source": source, "bytes": total, "difference": difference}


def _chosen(folder: RunFolder, name: str) -> Snapshot:
    if name != "newest":
        return snapshot.verify(folder, name)
    found, refused = snapshot.newest(folder)
    if found is None:
        reasons = "; ".join(one.message for one in refused) or "none was taken"
        raise JobError(f"this run has no snapshot to export: {reasons}", "Take one first.")
    return found


def _copy_output(folder: RunFolder, target: Path) -> None:
    from jobs.train.publish import replace, settle

    if not folder.output.is_dir():
        raise JobError("this run has no result yet", "Export a snapshot instead: --snapshot newest.")
    staging = target.parent / f".{target.name}.staging"
    shutil.rmtree(staging, ignore_errors=True)
    shutil.copytree(folder.output, staging)
    settle(staging)
    replace(staging, target)


def _from_snapshot(spec: Spec, found: Snapshot, target: Path) -> None:
    import torch

    from jobs.train import model, stored
    from jobs.train.publish import publish
    from jobs.train.state import copy_weights

    loaded = model.load(spec, Path.home())
    whole = stored.load(found, rank=0)
    copy_weights(loaded.model, whole.weights)
    halves = [value for name, value in whole.weights.items() if "lora_B" in name]
    if found.step and halves and not any(torch.any(value) for value in halves):
        raise JobError(f"all lora_B weights of {found.name} are zero: it holds no training", "Take another snapshot.")
    publish(loaded.model, loaded.tokenizer, target)


def _check(folder: RunFolder, target: Path) -> float:
    """In a process of its own, which knows nothing but the files."""
    command = [sys.executable, "-c", _FRESH, str(Path(__file__).resolve().parents[2]), str(folder.path), str(target)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_CHECK_LIMIT_S)
    if done.returncode != 0:
        reason = done.stderr.strip().splitlines()[-1:] or ["no output"]
        raise JobError(f"the export at {target} did not pass: {reason[0].removeprefix('error: ')}", "It was not used.")
    return float(json.loads(done.stdout.strip().splitlines()[-1])["difference"])


_FRESH = (
    "import sys; root, run, out = sys.argv[1:4]; sys.path.insert(0, root); "
    "sys.argv[1:] = ['--run', run, '--check', out]; from jobs.train.export import main; main()"
)


def _reload(spec: Spec, out: Path) -> float:
    from jobs.train import gate, model

    return gate.compare(model.load_result(spec, Path.home(), out), out)


def _write_sums(target: Path) -> int:
    """A file that `sha256sum -c` understands; returns the bytes of all files."""
    paths = sorted(path for path in target.iterdir() if path.is_file() and path.name != SUMS)
    lines = (f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in paths)
    durable.write_bytes(target / SUMS, "".join(lines).encode())
    return sum(path.stat().st_size for path in paths)


if __name__ == "__main__":
    main()
