"""Checks as an order: the node as it is now, looked at by the checks, one order after the other."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from agent import family, interpreters, kept, wire
from agent.checks.checker import Checker
from agent.checks.scene import Rank, Scene
from agent.codec import pack
from agent.node import Machine
from agent.reexec import RUN_MARK
from agent.refusal import Refusal
from agent.state import user_home
from jobs.identity import ProcessIdentity

ENDED_LOOKED_AT = 100
"""Newest ended runs whose recorded processes are looked for"""


class Checking:
    def __init__(self) -> None:
        self.checker, self.one_at_a_time = Checker(), asyncio.Lock()

    async def carry_out(self, body: wire.RunChecks, machine: Machine) -> dict[str, Any]:
        """Raises Refusal for a family that there is not."""
        heard = time.time()
        if machine.probe.read_at is None:  # a daemon this young has not seen its GPUs yet
            await machine.probe.refresh()
        async with self.one_at_a_time:  # two at once would measure each other's disk
            began = time.monotonic()
            checks = await asyncio.to_thread(self.look, body, machine, heard)
        return {"checks": pack(checks, tagged=False), "seconds": round(time.monotonic() - began, 1)}

    def look(self, body: wire.RunChecks, machine: Machine, heard_unix: float) -> list[wire.Check]:
        return self.checker.run(scene(body, machine, heard_unix), body.families)


def scene(body: wire.RunChecks, machine: Machine, heard_unix: float) -> Scene:
    state = wire.from_tree(machine.tree)
    return Scene(
        folder=machine.state.path,
        host=state.host,
        gpus=state.gpus or machine.attributed(machine.probe.sample.gpus),
        gpu_age_s=machine.probe.age_s,
        gpu_note=machine.probe.note,
        live_runs=tuple(sorted(name for name, one in list(machine.runs.followed.items()) if not one.closed)),
        ended_ranks=partial(ended_ranks, machine),
        heard_unix=heard_unix,
        console_unix=body.console_unix,
        python=body.python or ("" if body.quick else trainer()),
        asked=frozenset(body.families),
        quick=body.quick,
    )


def trainer() -> str:
    """The interpreter that a run would take; empty where there is none."""
    try:
        return interpreters.choose(None, user_home(os.environ)).path
    except Refusal:
        return ""


def ended_ranks(machine: Machine) -> Iterator[Rank]:
    """Processes of ended runs: those that wrote themselves down, and those that bear such a run's mark."""
    ended = {name: one for name, one in list(machine.runs.followed.items()) if one.closed}
    for name in sorted(ended, key=lambda name: ended[name].record.get("created_unix") or 0)[-ENDED_LOOKED_AT:]:
        yield from (Rank(name, who) for who in kept.recorded(ended[name].folder))
    for pid in family.own_processes():
        run = mark(pid)
        if run in ended and (who := ProcessIdentity.of(pid)) is not None:
            yield Rank(run, who)


def mark(pid: int) -> str:
    """The run whose process this was started as; empty for none."""
    try:
        variables = (family.PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    begin = f"{RUN_MARK}=".encode()
    return next((one[len(begin) :].decode("utf-8", "replace") for one in variables if one.startswith(begin)), "")
