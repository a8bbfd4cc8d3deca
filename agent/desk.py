"""Carries out orders. Each is safe to carry out again: what was done before is found, not repeated."""

from __future__ import annotations

import asyncio
import time
from signal import SIGTERM, SIGUSR1
from typing import Any

from agent import (
    audit,
    checking,
    cordon,
    evidence,
    excerpt,
    exporting,
    family,
    judging,
    kept,
    killing,
    launch,
    resuming,
    rules,
    snapshots,
    steering,
    wire,
)
from agent.codec import pack
from agent.judging import Memory
from agent.launch import Surroundings
from agent.node import Machine
from agent.preflight import Versions
from agent.refusal import FULL, Refusal
from agent.snapshots import ReadSpeed
from jobs.identity import ProcessIdentity
from jobs.run_folder import RunFolder

POLL_S = 0.1
KILL_EXTRA_S = 60.0
"""After the grace: SIGTERM, SIGKILL, and what a keeper that is being replaced needs."""
MEMORY_S = 10.0
"""How long a driver may take to show that a killed process holds nothing."""


class Desk:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.launching, self.verifying, self.exporting = asyncio.Lock(), asyncio.Lock(), asyncio.Lock()
        self.memory = Memory(Versions(), ReadSpeed())
        self.checking = checking.Checking()

    async def carry_out(self, order: wire.Order, operator: str) -> dict[str, Any]:
        """The result. Raises Refusal or SpecError."""
        body = order.body
        if isinstance(body, wire.Launch):
            return await self.launch(body, order.id, operator)
        if isinstance(body, wire.Kill):
            return await self.kill(body, order.id)
        if isinstance(body, wire.Steer):
            return await steering.steer(self.folder(body.run), body, order.id)
        if isinstance(body, wire.Resume):
            return await self.resume(body, order.id, operator)
        if isinstance(body, wire.Pin):
            return await self.pin(body)
        if isinstance(body, wire.Export):
            return await self.export(body)
        if isinstance(body, wire.Cordon):
            return await self.cordon(body, operator)
        if isinstance(body, (wire.Acknowledge, wire.Mute, wire.SetRules)):
            return await asyncio.to_thread(self.alerting, body, operator)
        return await self.read(body)

    async def read(self, body: wire.Body) -> dict[str, Any]:
        """Of those that change nothing."""
        if isinstance(body, wire.ReadAudit):
            return {"entries": await asyncio.to_thread(audit.newest, self.machine.state, body.limit)}
        if isinstance(body, wire.ReadHistory):
            return await asyncio.to_thread(self.machine.history.read, body, time.time())
        if isinstance(body, wire.ListAlerts):
            return self.machine.alerts.listing(body.limit)
        if isinstance(body, wire.RunChecks):
            return await self.checking.carry_out(body, self.machine)
        if isinstance(body, wire.ListSnapshots):
            return await self.snapshots(body)
        if isinstance(body, wire.Evidence):
            return await self.evidence(body)
        if isinstance(body, wire.ReadExport):
            return await asyncio.to_thread(exporting.read, self.folder(body.run), body)
        if isinstance(body, wire.Logs):
            return await asyncio.to_thread(excerpt.log, self.folder(body.run), body)
        if isinstance(body, wire.Progress):
            return await asyncio.to_thread(excerpt.records, self.folder(body.run), body)
        if isinstance(body, wire.ReadSpec):
            return {"spec_text": await asyncio.to_thread(self.folder(body.run).spec.read_text, "utf-8")}
        assert isinstance(body, wire.ListRuns)
        views = self.machine.runs.all(max(0, body.limit))
        return {"runs": pack(views, tagged=False)}

    def folder(self, run: str) -> RunFolder:
        try:
            folder = RunFolder.inside(self.machine.state.runs, run)
        except ValueError as error:
            raise Refusal(str(error)) from error
        if not folder.record.is_file():
            raise Refusal(f"there is no run {run} on this node", "`tunedeck ps` lists the runs of every node.")
        return folder

    async def launch(self, body: wire.Launch, order_id: str, operator: str) -> dict[str, Any]:
        async with self.launching:  # two launches at once must not choose the same GPU
            around = await self.around()
            run = await asyncio.to_thread(launch.launch, body, order_id, operator, around)
            followed = await asyncio.to_thread(self.machine.runs.follow, run)
        forecast = (followed.record.get("forecast") or {}) if followed is not None else {}
        return {"run": run, "forecast": forecast.get("text") or ""}

    async def kill(self, body: wire.Kill, order_id: str) -> dict[str, Any]:
        """Ends a run and proves it: every process that was of it is looked for again afterwards."""
        folder, began = self.folder(body.run), time.monotonic()
        before = kept.read(folder)
        if before is not None and before.phase == "ended":
            return {"reason": before.reason, "gone": [], "alive": [], "seconds": 0.0, "already": True}
        self.refuse_foreign(body.run, before)
        members = await asyncio.to_thread(lambda: family.members(body.run, kept.recorded(folder)))
        request = killing.KillRequest(order_id, max(0.0, min(body.grace_s, 3600.0)), body.hard, time.time())
        await asyncio.to_thread(ask_keeper, folder, request, before)
        ended = await self.ending(folder, request)
        found = killing.result(folder)
        gone = {one.pid for one in members if one.state() == "gone"} | set(found.gone if found else ())
        alive = [one.pid for one in members if one.state() != "gone"]
        if alive:
            raise Refusal(f"pids {alive} of {body.run} are still alive", "See `dmesg`: they wait in the kernel.")
        return {
            "reason": ended.reason,
            "gone": sorted(gone),
            "alive": [],
            "seconds": round(time.monotonic() - began, 2),
            "gpu_pids_left": await self.still_on_gpus(gone),
        }

    def refuse_foreign(self, run: str, before: kept.Kept | None) -> None:
        if before is not None and any(
            one is not None and one.state() == "unknown" for one in (before.keeper, before.launcher)
        ):
            raise Refusal(
                f"{run} runs in another container (pid namespace): from here it can be neither seen nor ended",
                "Kill it from the container it was launched in, or stop that container.",
            )

    async def ending(self, folder: RunFolder, request: killing.KillRequest) -> kept.Kept:
        """Waits for the keeper's final word. Raises Refusal when processes would not die."""
        limit = time.monotonic() + request.grace_s + KILL_EXTRA_S
        while True:
            now = kept.read(folder)
            if now is not None and now.phase == "ended":
                return now
            found = killing.result(folder)
            if found is not None and found.alive and found.ended_unix >= request.asked_unix:
                raise Refusal(
                    f"pids {list(found.alive)} of {folder.name} do not die: they wait in the kernel (GPU driver?)",
                    "Their keeper goes on trying; a GPU reset or a reboot ends them.",
                )
            if time.monotonic() > limit:
                raise Refusal(f"{folder.name} has not ended {KILL_EXTRA_S:.0f} s after its grace", "Kill it hard.")
            await asyncio.sleep(POLL_S)

    async def still_on_gpus(self, gone: set[int]) -> list[int] | None:
        """Killed pids that a driver still counts memory for; None where no driver tells."""
        deadline = time.monotonic() + MEMORY_S
        while True:
            for _ in range(2):  # the process list is read at every second look
                await self.machine.probe.refresh()
            gpus = self.machine.probe.sample.gpus
            if not gpus or self.machine.probe.age_s != 0.0:
                return None
            left = sorted(gone & {one.pid for gpu in gpus.values() for one in gpu.processes})
            if not left or time.monotonic() > deadline:
                return left
            await asyncio.sleep(POLL_S)

    async def resume(self, body: wire.Resume, order_id: str, operator: str) -> dict[str, Any]:
        folder = self.folder(body.run)
        async with self.launching:
            around = await self.around()
            result = await asyncio.to_thread(resuming.resume, folder, body, order_id, operator, around, self.memory)
            if not body.check:
                opened = self.machine.runs.follow if body.fork else self.machine.runs.reopen
                await asyncio.to_thread(opened, str(result["run"]))
        return result

    async def cordon(self, body: wire.Cordon, operator: str) -> dict[str, Any]:
        result = await asyncio.to_thread(cordon.change, self.machine.state, body, operator)
        self.machine.show_cordon(str(result["cordon"]))
        return result

    def alerting(self, body: wire.Acknowledge | wire.Mute | wire.SetRules, operator: str) -> dict[str, Any]:
        alerts = self.machine.alerts
        if isinstance(body, wire.Acknowledge):
            return alerts.acknowledge(body.alert, operator)
        if isinstance(body, wire.Mute):
            return alerts.mute(body.alert, body.seconds, operator, time.time())
        return {"rules": rules.replace_own(self.machine.state.home, body.text)}

    async def around(self) -> Surroundings:
        if self.machine.probe.read_at is None:  # a daemon this young would take every node for one without GPUs
            await self.machine.probe.refresh()
        return self.machine.surroundings()

    async def snapshots(self, body: wire.ListSnapshots) -> dict[str, Any]:
        folder, around = self.folder(body.run), self.machine.surroundings()

        def listing() -> dict[str, Any]:
            judge = judging.judge_of(folder, around, self.memory)
            return snapshots.listing(folder, body.verify, judge, self.memory.speed)

        if not body.verify:
            return await asyncio.to_thread(listing)
        async with self.verifying:  # one at a time: disks are no faster for two
            return await asyncio.to_thread(listing)

    async def evidence(self, body: wire.Evidence) -> dict[str, Any]:
        folder, gpus = self.folder(body.run), self.machine.probe.sample.gpus
        followed = self.machine.runs.followed.get(body.run)
        stalled = followed.stalled_s() if followed is not None else None
        return await asyncio.to_thread(evidence.gather, folder, gpus, stalled, body.limit_bytes, body.alias)

    async def pin(self, body: wire.Pin) -> dict[str, Any]:
        await asyncio.to_thread(snapshots.pin, self.folder(body.run), body.snapshot, body.pinned)
        return {}

    async def export(self, body: wire.Export) -> dict[str, Any]:
        folder = self.folder(body.run)
        async with self.exporting:  # each loads a whole model
            return await exporting.export(folder, body, self.machine.runs.taken_gpus())


def ask_keeper(folder: RunFolder, request: killing.KillRequest, before: kept.Kept | None) -> None:
    """By file; by signal when the disk is full, for that is when runs have to be ended. Raises OSError otherwise."""
    try:
        request.write(folder)
    except OSError as error:
        keeper: ProcessIdentity | None = before.keeper if before else None
        hard = request.hard or request.grace_s == 0
        if error.errno not in FULL or keeper is None or not keeper.send(SIGUSR1 if hard else SIGTERM):
            raise
