"""What a run that has just failed for want of memory is told: which rank, what the card was full of, what to change."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from agent import extract, kept, oom
from agent.events import Events
from agent.following import Followed
from agent.state import user_home
from agent.wire import RunState
from agent.wording import size
from jobs import durable
from jobs.plan.refusal import PlanError
from jobs.run_folder import RunFolder
from jobs.section import SpecError
from jobs.spec import Spec

KIND = "run.oom"
TAIL_BYTES = 1 << 16
RANKS_READ = 64
KNOBS = 4
KILLED = re.compile(r"rank\s*: (\d+) \(local_rank[^\n]*\n\s*exitcode\s*: -9\b|Signal 9 \(SIGKILL\) received")
"""torch.distributed.elastic.multiprocessing.errors"""


class Postmortem:
    """Looks at each failed run once; the answer lies beside it as oom.json."""

    def __init__(self, events: Events) -> None:
        self.events = events
        self.told = {(event.run, event.data.get("resumed")) for event in events.kept if event.kind == KIND}
        self.seen: dict[str, str] = {}
        """Run → what is said in short; empty: it was something else"""
        self.kills: dict[str, int] = {}
        """Live run → how many processes the kernel had killed for memory when it was first seen"""

    def look(self, runs: Iterable[Followed]) -> None:
        """Raises OSError when the disk takes nothing; the run is looked at again then."""
        for one in runs:
            if one.phase != "ended":
                self.seen.pop(one.name, None)
                self.kills.setdefault(one.name, killed_for_memory())
            elif one.name not in self.seen:
                failed = one.kept is not None and one.kept.reason == "failed"
                self.seen[one.name] = self.explained(one) if failed else ""

    def noted(self, runs: dict[str, RunState]) -> dict[str, RunState]:
        """The states with what was found where the reason stands."""
        said = self.seen
        return {name: replace(run, detail=said[name]) if said.get(name) else run for name, run in runs.items()}

    def explained(self, one: Followed) -> str:
        path = one.folder.path / "oom.json"
        known = durable.read_json(path) if path.exists() else None
        if known is not None and known.get("resumed") == one.resumed:
            return str(known.get("short") or "")
        found = found_in(one.folder) or self.by_kernel(one)
        if found is None:
            return ""
        rank, what = found
        knobs = advice(one, what)
        short = f"rank {rank}: {what.words()}" if rank is not None else what.words()
        text = f"{short}. " + (f"It would need less with: {'; '.join(knobs)}." if knobs else "")
        if (one.name, one.resumed) not in self.told:
            self.told.add((one.name, one.resumed))
            data = {"rank": rank, "knobs": knobs, "resumed": one.resumed}
            self.events.add(KIND, text.strip(), "critical", one.name, data)
        durable.write_json(path, {"short": short, "text": text, "knobs": knobs, "resumed": one.resumed})
        return short

    def by_kernel(self, one: Followed) -> tuple[int | None, oom.OutOfMemory] | None:
        """Ended by SIGKILL while the kernel's own count of such killings grew: that, and nothing less, is proof."""
        before = self.kills.get(one.name)
        ended = KILLED.search(tail(one.folder.launcher_log))
        if ended is None or before is None or killed_for_memory() <= before:
            return None
        return int(ended[1]) if ended[1] else None, oom.OutOfMemory(host=True, killed=True)


def found_in(folder: RunFolder) -> tuple[int | None, oom.OutOfMemory] | None:
    """Rank and figures; ranks that failed because of another come last.

    A log counts where the rank itself said nothing else: one that caught such an error and went on did not end of it.
    """
    ranks = sorted(kept.rank_records(folder)[:RANKS_READ], key=lambda one: (one.secondary, one.rank))
    for rank in ranks:
        own = oom.read(rank.error)
        if own is not None and own.wanted is not None:
            return rank.rank, own
        if own is not None or (not rank.error and rank.outcome is None):
            what = oom.read(tail(folder.rank_log(rank.rank))) or own
            if what is not None:
                return rank.rank, what
    return None


def advice(one: Followed, what: oom.OutOfMemory) -> list[str]:
    """In the order to try them: what costs nothing first."""
    words: list[str] = []
    if what.others:
        held = sum(used for _pid, used in what.others)
        words.append(f"the other processes on that GPU ended (frees {size(held)})")
    if what.fragmented and what.unallocated:
        words.append(f"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (up to {size(what.unallocated)})")
    return words + planned(one.folder, bool(one.record.get("gpu_uuids")))


def planned(folder: RunFolder, cuda: bool) -> list[str]:
    from jobs.plan import relief  # the planner is loaded only where somebody needs it

    try:
        spec = Spec.parse(folder.spec.read_text(encoding="utf-8"))
        found = relief.of(spec, user_home(os.environ), cuda)
    except (SpecError, PlanError, OSError, UnicodeDecodeError):
        return []
    return [f"{one.setting} (saves {size(one.saved_bytes)} with those before it)" for one in found[:KNOBS]]


def tail(path: Path) -> str:
    try:
        return extract.tail(path, TAIL_BYTES).decode(errors="replace")
    except OSError:
        return ""


def killed_for_memory(path: Path = Path("/proc/vmstat")) -> int:
    """How many processes the kernel has ended for want of memory since it started; also those of cgroups (4.13+)."""
    try:
        counts = dict(line.split() for line in path.read_text().splitlines())
        return int(counts.get("oom_kill", 0))
    except (OSError, ValueError):
        return 0
