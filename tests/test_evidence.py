"""What a node hands over about one run: small, without secrets, and good for the same verdict elsewhere."""

from __future__ import annotations

import base64
import io
import json
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from agent import circumstances, evidence, wire
from agent.kept import Kept
from agent.triage import triage
from agent.triage.alias import Alias, word
from jobs import durable
from jobs.run_folder import RunFolder
from tests.fakes.node import Node

SECRET = "hf_" + "Qz7" * 10
ERROR = 123_456
"""The line of rank 1's log where it goes wrong"""


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A run of two ranks of which the second failed, far inside a log of 10 MB."""
    made = RunFolder.inside(tmp_path, "failed-run")
    made.create()
    made.spec.write_text(f"model: ~/m\n# {SECRET}\n")
    made.script.write_text("main()\n")
    now = time.time()
    record = {"argv": ["python"], "world_size": 2, "gpu_uuids": [], "environment": {"HF_TOKEN": SECRET[3:]}}
    durable.write_json(made.record, record)
    Kept("ended", started_unix=now - 60, ended_unix=now, reason="failed", detail="rank 1: ValueError").write(made)
    for rank in (0, 1):
        error = {"message": "lost another rank", "secondary": True} if rank == 0 else {"message": "ValueError: bad row"}
        durable.write_json(
            made.rank(rank),
            {"rank": rank, "identity": None, "outcome": "failed", "error": error, "ended_unix": now - 1 + rank / 10},
        )
    lines = [f"{{'loss': 1.{n % 10}, 'grad_norm': 0.5}} and figures that say nothing" for n in range(200_000)]
    lines[ERROR - 1] = "ValueError: bad row"
    made.rank_log(1).write_text("\n".join(lines) + "\n")
    made.rank_log(0).write_text(f"login with {SECRET}\nRuntimeError: Connection closed by peer [127.0.0.1]:4711\n")
    made.progress.write_text('{"kind":"error","rank":1,"message":"ValueError: bad row","secondary":false}\n')
    return made


def unpacked(result: dict[str, Any]) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(result["archive"]))) as tar:
        return {one.name: tar.extractfile(one).read() for one in tar.getmembers()}  # type: ignore[union-attr]


def test_small_without_secrets_and_on_the_same_lines(folder: RunFolder, tmp_path: Path) -> None:
    result = evidence.gather(folder, {}, None, 2 << 20)
    files = unpacked(result)
    assert len(result["archive"]) < 200_000 and result["files"] == len(files)
    assert not [name for name, content in files.items() if SECRET[3:].encode() in content]
    log = files["failed-run/logs/rank-1.log"].split(b"\n")
    assert log[ERROR - 1] == b"ValueError: bad row" and log[ERROR + 1000] == b""
    assert {f"failed-run/{one}" for one in ("state.json", "run.json", "ranks/1.json", "node/disks.txt")} <= set(files)
    archive = tmp_path / "elsewhere.tar.gz"
    archive.write_bytes(base64.b64decode(result["archive"]))
    there, here = triage([archive]).faults[0], triage([folder.path]).faults[0]
    assert there.kind == here.kind == "app.exception-one-rank"
    assert there.culprit.ranks == here.culprit.ranks == (1,)
    assert any(quote.line == ERROR for quote in there.evidence)


@pytest.mark.parametrize("hostname", ["localhost", "vm7.rack2.example", "10.3.0.7"])
def test_the_node_is_called_what_its_user_calls_it(
    hostname: str, folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(circumstances, "hostname", lambda: hostname)
    durable.write_json(folder.rank(1), {"rank": 1, "identity": None, "outcome": None, "error": None})
    folder.rank_log(1).write_text("training\n")
    folder.launcher_log.write_text(
        "  time      : 2026-11-29_10:00:00\n  host      : localhost\n  rank      : 1 (local_rank: 1)\n"
        "  exitcode  : -9 (pid: 4711)\n"
    )
    archive = tmp_path / "elsewhere.tar.gz"
    result = evidence.gather(folder, {}, None, 2 << 20, "big-box")
    archive.write_bytes(base64.b64decode(result["archive"]))
    fault = triage([archive]).faults[0]
    assert (fault.culprit.nodes, fault.culprit.ranks) == (("big-box",), (1,)) and "on big-box, rank 1" in fault.cause


def test_localhost_is_the_node_that_says_so_and_no_other() -> None:
    here, there = Alias("a/", "vm1", "one"), Alias("b/", "vm2", "two")
    names = [("localhost", "b/logs/launcher.log"), ("vm1", "b/logs/rank-0.log"), ("vm2.rack", "a/x"), ("vm12", "a/x")]
    assert [word([here, there], name, file) for name, file in names] == ["two", "one", "two", "vm12"]
    mixed = [Alias(None, "vm1", "one"), Alias(None, "vm2", "two")]
    assert [word(mixed, name, file) for name, file in names] == ["localhost", "one", "two", "vm12"]


def test_little_room_keeps_what_matters_most(folder: RunFolder) -> None:
    folder.launcher_log.write_bytes(b"".join(b"%d %d\n" % (n, hash((n, "x"))) for n in range(8000)))
    result = evidence.gather(folder, {}, None, 0)
    assert len(base64.b64decode(result["archive"])) < 3 * evidence.LEAST_BYTES
    files = unpacked(result)
    assert "failed-run/state.json" in files and "failed-run/ranks/1.json" in files
    assert any(said.startswith("logs/launcher.log") for said in result["left_out"])


def test_what_a_lost_card_and_ports_look_like(tmp_path: Path) -> None:
    gone = wire.Gpu("GPU-1", 0, pci_bus_id="00000000:2A:00.0", lost="GPU is lost")
    (tmp_path / "gpus.txt").write_text(circumstances.gpu_lines([gone, wire.Gpu("GPU-2", 1, "H200")]))
    port = tmp_path / "sys" / "mlx5_3" / "ports" / "1"
    port.mkdir(parents=True)
    (port / "state").write_text("1: DOWN\n")
    told = circumstances.ports(tmp_path / "sys").splitlines()
    assert told[:2] == [
        "/sys/class/infiniband/mlx5_3/ports/1/state:1: DOWN",
        "/sys/class/infiniband/mlx5_3/ports/1/phys_state:not readable",
    ]
    assert triage([tmp_path / "gpus.txt"]).faults[0].kind == "gpu.fell-off-bus"


def test_kernel_lines_of_the_window_only() -> None:
    lines = [
        "2026-01-01T10:00:00,000000+00:00 long before",
        "2026-01-01T12:00:00,000000+00:00 NVRM: Xid (PCI:0000:2a:00): 79, pid=1, GPU has fallen off the bus.",
        "  continued without a time",
        "2026-01-01T15:00:00,000000+00:00 long after",
    ]
    noon = 1767268800.0
    assert circumstances.window(lines, noon - 60, noon + 60) == lines[1:3]


def test_over_the_wire_also_read_only(node: Node) -> None:
    run = node.start("short")
    console = node.console("--read-only")
    console.welcome()
    reply = console.ask(wire.Evidence(run.name))
    assert reply.ok, reply.error
    files = unpacked(reply.result)
    assert json.loads(files[f"{run.name}/node/node.json"])["tunedeck"] == "node"
    assert f"{run.name}/progress.jsonl" in files and f"{run.name}/ranks/1.json" in files


def test_the_card_of_an_xid_is_that_of_its_bus_and_the_rank_that_had_it(folder: RunFolder, tmp_path: Path) -> None:
    """Without a line of NCCL's, and with a card of somebody else's between those of the run."""
    cards = [wire.Gpu(f"GPU-{n}", n, "H200", f"00000000:{bus}:00.0") for n, bus in enumerate(("1B", "43", "52"))]
    record = durable.read_json(folder.record) or {}
    durable.write_json(folder.record, record | {"gpu_uuids": ["GPU-0", "GPU-2"]})
    result = evidence.gather(folder, {one.uuid: one for one in cards}, None, 2 << 20, "big-box")
    made = tmp_path / "made"
    for name, content in unpacked(result).items():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_bytes(content)
    xid = "NVRM: Xid (PCI:0000:52:00): 79, pid=77, GPU has fallen off the bus.\n"
    (made / "failed-run" / "node" / "dmesg_vm.txt").write_text(f"[  100.5] {xid}")
    fault = triage([made]).faults[0]
    assert fault.kind == "gpu.fell-off-bus"
    assert (fault.culprit.nodes, fault.culprit.gpus, fault.culprit.ranks) == (("big-box",), (2,), (1,))
