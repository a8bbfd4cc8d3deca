"""The folder of one run. Every path inside it is named here and nowhere else."""

from __future__ import annotations

import re
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from jobs.durable import FOLDER_MODE

RUN_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,95}")
ORDER_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def run_id(name: str, now_unix: float) -> str:
    """A new run id: slug of the name, UTC time, four random hex digits, for example ``faults-20261130-211500-3f2a``."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:64] or "run"
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now_unix))
    return f"{slug}-{stamp}-{secrets.token_hex(2)}"


@dataclass(frozen=True, slots=True)
class RunFolder:
    path: Path

    @classmethod
    def inside(cls, parent: Path, run: str) -> RunFolder:
        """The folder of `run` under `parent`. Raises ValueError for a name that could lead elsewhere."""
        if not RUN_ID.fullmatch(run):
            raise ValueError(f"{run!r} is not a run id; run ids hold only a-z, 0-9 and '-'")
        return cls(parent / run)

    def create(self) -> None:
        """Makes the folder and its parts, private to the user. Raises FileExistsError when it is already there."""
        self.path.mkdir(mode=FOLDER_MODE, parents=True)
        for part in (self.ranks, self.logs, self.orders, self.snapshots, self.flight):
            part.mkdir(mode=FOLDER_MODE)

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def spec(self) -> Path:
        return self.path / "spec.yaml"

    @property
    def record(self) -> Path:
        return self.path / "run.json"

    @property
    def script(self) -> Path:
        return self.path / "train.py"

    @property
    def export_script(self) -> Path:
        return self.path / "export.py"

    @property
    def state(self) -> Path:
        return self.path / "state.json"

    @property
    def resume(self) -> Path:
        """What the next start continues from: ``{"snapshot": NAME | "newest"}``; absent for a first start."""
        return self.path / "resume.json"

    @property
    def progress(self) -> Path:
        return self.path / "progress.jsonl"

    @property
    def ranks(self) -> Path:
        return self.path / "ranks"

    def rank(self, number: int) -> Path:
        return self.ranks / f"{number:d}.json"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def launcher_log(self) -> Path:
        return self.logs / "launcher.log"

    def rank_log(self, number: int) -> Path:
        return self.logs / f"rank-{number:d}.log"

    @property
    def flight(self) -> Path:
        """What ranks were doing when the run stood still."""
        return self.path / "flight"

    @property
    def flight_request(self) -> Path:
        return self.flight / "request.json"

    @property
    def flight_answers(self) -> Path:
        """The keeper's: who was asked, who answered, and what the kernel says about each."""
        return self.flight / "answers.json"

    def flight_dump(self, number: int) -> Path:
        return self.flight / f"rank-{number:d}.json"

    def flight_stacks(self, number: int) -> Path:
        return self.flight / f"rank-{number:d}.stacks"

    @property
    def orders(self) -> Path:
        return self.path / "orders"

    def order(self, order_id: str) -> Path:
        return self.orders / f"{_checked(order_id)}.json"

    def answer(self, order_id: str) -> Path:
        return self.orders / f"{_checked(order_id)}.result.json"

    @property
    def snapshots(self) -> Path:
        return self.path / "snapshots"

    @property
    def output(self) -> Path:
        return self.path / "output"


def _checked(order_id: str) -> str:
    if not ORDER_ID.fullmatch(order_id):
        raise ValueError(f"{order_id!r} is not an order id; they hold 1 to 64 letters, digits, '-' and '_'")
    return order_id
