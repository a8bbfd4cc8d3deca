"""What became of a run."""

from __future__ import annotations

import os
import signal

from agent import kept
from jobs.run_folder import RunFolder


def of(folder: RunFolder, launcher_status: int | None, asked_to_end: bool) -> tuple[str, str]:
    """Reason and detail, from what the ranks wrote first, then from how the launcher ended."""
    ranks = kept.rank_records(folder)
    outcomes = {rank.outcome for rank in ranks}
    if ranks and outcomes <= {"completed"}:
        return "completed", ""
    if ranks and outcomes <= {"completed", "stopped"}:
        return "stopped", "at a step boundary, adapter saved"
    if asked_to_end:
        return "killed", "as asked"
    failed = sorted((rank for rank in ranks if rank.outcome == "failed"), key=lambda rank: rank.secondary)
    if failed:
        return "failed", f"rank {failed[0].rank}: {failed[0].error or 'failed without a word'}"
    if launcher_status is None:
        return "lost", "its processes are gone and left no word; the keeper or the machine was restarted meanwhile"
    code = os.waitstatus_to_exitcode(launcher_status)
    if code == 0 and not ranks:
        return "completed", ""
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return "failed", f"the launcher {how} and not all ranks left an end record; see the logs"
