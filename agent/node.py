"""The whole machine at one moment: what every console is shown, put together once a tick."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from agent import cordon
from agent.alerts import Alerts
from agent.complaints import Complaints
from agent.events import Events
from agent.history import History
from agent.host import HostReader
from agent.launch import Surroundings
from agent.lessons import Lessons
from agent.postmortem import Postmortem
from agent.probe import Probe
from agent.rdma import Rdma
from agent.runs import Runs
from agent.state import StateFolder
from agent.wire import Gpu, GpuProcess, NodeState, to_tree
from jobs.identity import ProcessIdentity


class Machine:
    """`tree` is replaced as a whole by each `read`; nobody changes it in place."""

    def __init__(self, state: StateFolder, events: Events, probe: Probe) -> None:
        self.state, self.events, self.probe = state, events, probe
        self.host, self.rdma = HostReader((state.home,)), Rdma()
        self.runs = Runs(state.runs, events, Lessons(state))
        self.tree: dict[str, Any] = to_tree(NodeState())
        self.lost: frozenset[str] = frozenset()
        self.alerts = Alerts(state, events)
        self.postmortem = Postmortem(events)
        self.complaints = Complaints(state.path / "kernel.json", events, self.runs)
        self.history = History(state.history, events)

    def read(self) -> None:
        """Reads the disk and /proc, so it belongs on a thread. Raises OSError; what was read before stays then."""
        runs = self.runs.refresh()
        self.postmortem.look(list(self.runs.followed.values()))
        runs = self.postmortem.noted(runs)
        gpus = self.attributed(self.probe.sample.gpus)
        self.tell_lost(gpus)
        cordoned = cordon.of(self.state)
        sample = self.probe.sample
        gpus = self.complaints.look(gpus, self.probe.taken_xids(), sample.tells_xids)
        host = replace(
            self.host.read(self.probe.note),
            cordon=cordoned.words if cordoned else "",
            driver_version=sample.driver_version,
            cuda_version=sample.cuda_version,
        )
        now = NodeState(host, gpus, runs, self.probe.age_s, ports=self.rdma.read())
        self.tree = to_tree(replace(now, alerts=self.alerts.look(now, time.monotonic(), time.time())))
        self.history.record(now, time.time())
        self.events.flush()
        self.alerts.save()
        self.complaints.save()

    def close(self) -> None:
        self.complaints.log.close()

    def show_cordon(self, words: str) -> None:
        """Without waiting for the next tick: whoever gave the order looks at once."""
        self.tree = {**self.tree, "host": {**self.tree["host"], "cordon": words}}

    def attributed(self, gpus: dict[str, Gpu]) -> dict[str, Gpu]:
        """GPU processes with the run and rank they are, by recorded pid and start time."""
        if not any(gpu.processes for gpu in gpus.values()):
            return gpus
        ranks = {who.pid: (who, place) for who, place in self.runs.ranks().items()}
        return {
            uuid: replace(gpu, processes=tuple(attribute(one, ranks) for one in gpu.processes))
            for uuid, gpu in gpus.items()
        }

    def tell_lost(self, gpus: dict[str, Gpu]) -> None:
        lost = {uuid: gpu.lost for uuid, gpu in gpus.items() if gpu.lost}
        for uuid in lost.keys() - self.lost:
            self.events.add(
                "gpu.lost", f"GPU {gpus[uuid].index} ({uuid}): {lost[uuid]}", "critical", None, {"uuid": uuid}
            )
        self.lost = frozenset(lost)

    def surroundings(self) -> Surroundings:
        return Surroundings(
            self.state, self.probe.sample.gpus, self.probe.age_s, self.probe.note, self.runs.taken_gpus()
        )


def attribute(process: GpuProcess, ranks: dict[int, tuple[ProcessIdentity, tuple[str, int]]]) -> GpuProcess:
    """An unnamed process is one whose pid may mean somebody else here (a container); it is never matched."""
    who, place = ranks.get(process.pid, (None, ("", 0)))
    if who is None or not process.name or who.state() != "alive":
        return process
    return replace(process, run=place[0], rank=place[1])
