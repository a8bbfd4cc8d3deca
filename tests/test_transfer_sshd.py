"""An export over a real sshd whose connection is cut in the middle of a file: it goes on where it was."""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import Future
from pathlib import Path
from typing import ClassVar

from agent import exporting, wire
from console.commands.export import FromNode
from console.config import Config
from console.link import connector
from console.session import Session
from console.transfer import IN_FLIGHT, SLICE_BYTES, File, Pull
from jobs import durable
from jobs.run_folder import RunFolder
from tests.fakes.node import until
from tests.hosts.sshd import Sshd, running

SLICES = 24


def export_on(home: Path, node: str) -> Path:
    """An export of a run as it lies on the node."""
    folder = RunFolder(home / ".tunedeck" / "nodes" / node / "runs" / "run-1")
    folder.create()
    durable.write_json(folder.record, {"run": "run-1"})
    made = folder.path / "exports" / "final"
    made.mkdir(parents=True)
    weights = made / "adapter_model.safetensors"
    weights.write_bytes(os.urandom(SLICES * SLICE_BYTES + 4321))
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    (made / "SHA256SUMS").write_text(f"{digest}  {weights.name}\n")
    return made


class Counted(FromNode):
    """`asked_for`: path and first byte of each slice."""

    asked_for: ClassVar[list[tuple[str, int]]] = []

    def ask(self, path: str, offset: int, limit_bytes: int) -> Future[wire.Reply]:
        self.asked_for.append((path, offset))
        return FromNode.ask(self, path, offset, limit_bytes)


def test_a_connection_cut_in_the_middle_of_a_file_costs_nothing_but_time(tmp_path: Path) -> None:
    with running(Sshd(tmp_path / "node")) as node:
        session = Session(["node"], connector(Config((node.target(),), tmp_path / "config", tmp_path / "state")))
        session.start()
        try:
            there = session.fleet.nodes["node"]
            until(lambda: session.pump() and there.level_at is not None and there.welcome)
            assert there.welcome is not None
            made = export_on(node.home, there.welcome.node)
            cut: list[int] = []
            asked = Counted.asked_for

            def tell(done: int, total: int) -> None:
                if not cut and done > total // 3:
                    cut.append(done)
                    node.kill(node.sessions())

            files = [File.listed(entry) for entry in exporting.files(made)]
            here = tmp_path / "here"
            fetched = Pull(Counted(session, "node", "run-1", "final"), files, here, tell).run()
        finally:
            session.close()
    assert cut and cut[0] < fetched
    assert fetched == sum(file.size_bytes for file in files)
    assert {p.name: p.read_bytes() for p in here.iterdir()} == {p.name: p.read_bytes() for p in made.iterdir()}
    again = [offset for path, offset in asked if asked.count((path, offset)) > 1]
    assert all(offset >= cut[0] - SLICE_BYTES for offset in again), "what had arrived is not asked for again"
    assert len(set(again)) <= IN_FLIGHT
