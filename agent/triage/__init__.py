"""Evidence → cause, culprit, remedy. Works on a folder and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import IO

from agent.triage.catalogue import load
from agent.triage.gather import gather
from agent.triage.judge import judge
from agent.triage.verdict import Verdict


def triage(paths: list[Path], own_faults: Path | None = None, stdin: IO[bytes] | None = None) -> Verdict:
    """The verdict on everything below `paths` and, where given, on `stdin`.

    Raises SourceError for a path that is not there and CatalogueError for an unusable faults file.
    """
    catalogue = load(own_faults)
    return judge(gather(paths, catalogue, stdin), catalogue)
