"""Entry of every rank. Run by the run folder's own script, so that a run uses its own copy of this code."""

from __future__ import annotations

import gc
import sys
import time
import traceback
from pathlib import Path

from jobs import examples
from jobs.examples import Examples
from jobs.failure import JobError
from jobs.progress import Progress
from jobs.run_folder import RunFolder
from jobs.section import SpecError
from jobs.spec import BENCH, Spec
from jobs.train.flight import Flight
from jobs.train.rank import Rank


def main() -> None:
    """Trains. Leaves a record of its end whatever happens; exit status 1 when it failed."""
    folder = RunFolder(Path(sys.argv[0]).resolve().parent)
    rank = Rank.from_environment(folder)
    rank.enter()
    Flight(folder, rank.number, rank.world).start()
    try:
        spec, data = _given(rank)
        leave_out()
        gc.disable()  # what is loaded makes next to no garbage, and to look for it is a quarter of the time it takes
        outcome = _trained(rank, spec, data) if data is not None else _measured(rank, spec)
    except (JobError, SpecError) as wrong:
        _failed(rank, wrong.message, wrong.hint, secondary=False)
        raise SystemExit(1) from wrong
    except BaseException as wrong:
        from jobs.train.symptoms import explain

        failure = explain(wrong)
        traceback.print_exc()  # before the explanation, so that the log ends with what matters
        _failed(rank, failure.message, failure.hint, failure.secondary)
        raise SystemExit(1) from wrong
    rank.ended(outcome)


def _trained(rank: Rank, spec: Spec, data: Examples) -> str:
    from jobs.train.session import leave, prepare, run

    rank.imported_unix = time.time()
    session = prepare(rank, spec, data)
    gc.freeze()  # nor will it ever be garbage
    gc.enable()
    outcome = run(session)
    leave()
    return outcome


def _measured(rank: Rank, spec: Spec) -> str:
    from jobs.train.collective import bench

    rank.imported_unix = time.time()
    return bench(rank, spec)


def _given(rank: Rank) -> tuple[Spec, Examples | None]:
    """First of all: what is wrong is then said seconds before torch is even imported. No data where none is needed."""
    if rank.number == 0:
        progress = Progress(rank.folder.progress)
        progress.write("phase", phase="loading", detail="spec and data")
        progress.close()
    spec = Spec.parse(rank.folder.spec.read_text(encoding="utf-8"))
    spec.check_files(Path.home())
    if spec.kind == BENCH:
        return spec, None
    return spec, examples.read(spec.data_file(Path.home()), spec.data.format)


def leave_out() -> None:
    """transformers and peft import these wherever they are installed: not needed here, a third of the start."""
    for name in ("bitsandbytes", "datasets", "deepspeed"):
        sys.modules[name] = None  # type: ignore[assignment]


def _failed(rank: Rank, message: str, hint: str, secondary: bool) -> None:
    """`secondary`: this rank failed because another one did."""
    print(f"error: {message}. {hint}", file=sys.stderr, flush=True)
    error = {"message": message, "hint": hint, "secondary": secondary}
    rank.ended("failed", error)
    progress = Progress(rank.folder.progress)
    progress.write("error", rank=rank.number, **error)
    progress.close()


if __name__ == "__main__":
    main()
