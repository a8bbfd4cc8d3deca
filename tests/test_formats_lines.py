"""Prefixes, clocks and messages: what one line says, in every form in which tools write it."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from agent.formats import c10d, kernel, launcher, nccl, program
from agent.formats.clock import same_year, stamp
from agent.formats.line import clean, decode
from agent.formats.prefix import hosts_before_colon, peel, read_line, without_host
from agent.formats.read import events, node_of_name, split


@pytest.mark.parametrize(
    ("text", "body", "node", "rank"),
    [
        ("2025-10-14T09:12:03.009967943Z stdout F [1,3]<stderr>:oops", "oops", None, 3),
        ("[rank12]:[E1014 09:22:03.1 x.cpp:1] y", "[E1014 09:22:03.1 x.cpp:1] y", None, 12),
        ("[trainer1|1]:Traceback", "Traceback", None, 1),
        ("(RayWorkerWrapper pid=1890, ip=10.41.0.8) [rank8] Warning", "Warning", "10.41.0.8", 8),
        ("(EngineCore_0 pid=5100) [repeated 2x across cluster] INFO", "INFO", None, None),
        (
            " 9: torch.cuda.OutOfMemoryError: CUDA out of memory.",
            "torch.cuda.OutOfMemoryError: CUDA out of memory.",
            None,
            9,
        ),
        ("Oct 14 09:18:04 zz-09 kernel: NVRM: x", "NVRM: x", "zz-09", None),
        ("2025-10-14T09:18:04+0200 n1 kernel: NVRM: x", "NVRM: x", "n1", None),
        ("[Tue Oct 14 09:18:51 2025] NVRM: x", "NVRM: x", None, None),
        ("[184814.609848] NVRM: x", "NVRM: x", None, None),
        ("[2025-10-14 09:13:34 TP8] Load weight begin.", "Load weight begin.", None, 8),
        ("[pod/trainer-0/main] hello", "hello", "trainer-0", None),
        ("drv-1: Test CUDA failure common.cu:892 'x'", "Test CUDA failure common.cu:892 'x'", "drv-1", None),
    ],
)
def test_prefixes(text: str, body: str, node: str | None, rank: int | None) -> None:
    peeled = peel(text)
    assert (peeled.body, peeled.node, peeled.rank) == (body, node, rank)


@pytest.mark.parametrize("text", ["1: lo: <LOOPBACK,UP> mtu 65536", "0: mlx5_0: pd 99 cq 95 qp 130763 cm_id 1"])
def test_tables_are_not_slurm_prefixes(text: str) -> None:
    assert peel(text).rank is None


def test_hosts_of_a_parallel_shell() -> None:
    texts = [f"worker-{i % 2}: line {i}" for i in range(8)] + ["ValueError: x", "step-1: y"]
    hosts = hosts_before_colon(texts)
    assert hosts == {"worker-0", "worker-1"}
    line = without_host(read_line("f", 1, "worker-1: [rank3]: boom"), hosts)
    assert (line.node, line.rank, line.body) == ("worker-1", 3, "boom")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[2025-10-14 09:12:04] x", datetime(2025, 10, 14, 9, 12, 4)),
        ("2025-10-14T11:12:04.500000+0200 x", datetime(2025, 10, 14, 9, 12, 4, 500000)),
        ("time : 2025-10-14_09:22:03", datetime(2025, 10, 14, 9, 22, 3)),
        ("[Tue Oct 14 09:18:51 2025] x", datetime(2025, 10, 14, 9, 18, 51)),
        ("[E1014 09:22:03.25 x.cpp:1]", datetime(2000, 10, 14, 9, 22, 3, 250000)),
        ("SEL record 1a3: 10/14/2025 09:12:58 x", datetime(2025, 10, 14, 9, 12, 58)),
    ],
)
def test_clocks(text: str, expected: datetime) -> None:
    assert stamp(text) == pytest.approx(expected.replace(tzinfo=timezone.utc).timestamp())


def test_a_missing_year_is_taken_from_the_neighbours() -> None:
    near = datetime(2026, 1, 2, tzinfo=timezone.utc).timestamp()
    moved = same_year(datetime(2000, 12, 31, 23, tzinfo=timezone.utc).timestamp(), near)
    assert datetime.fromtimestamp(moved, timezone.utc) == datetime(2025, 12, 31, 23, tzinfo=timezone.utc)


@pytest.mark.parametrize("text", ["no clock: here", "99:99:99", "[E9999 99:99:99.1 x]", ""])
def test_what_is_no_clock(text: str) -> None:
    assert stamp(text) is None


def test_cleaning_and_decoding() -> None:
    assert clean("\x1b[32mgreen\x1b[0m\x07 a\u202eb\r") == "green ab"
    assert clean("10%\r 20%\r 30%") == " 30%"
    assert decode("显存不足".encode("gbk")) == decode("显存不足".encode()) == "显存不足"


def only(reader: object, text: str, kind: str) -> dict[str, str]:
    found = [e for e in reader(read_line("f", 1, text)) if e.kind == kind]  # type: ignore[operator]
    assert len(found) == 1, found
    return {**found[0].detail, "node": found[0].node or "", "rank": str(found[0].rank), "nic": found[0].nic or ""}


HEAD = "n1:7:8 [3] transport/net_ib.cc:99 NCCL WARN "


@pytest.mark.parametrize(
    ("text", "peer", "status", "nic"),
    [
        (HEAD + "NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 129", "", "12", ""),
        (HEAD + (
            "NET/IB : Got completion from peer 10.1.1.2<41> with error 12, opcode 1, len 2, "
            "vendor err 129 (Recv)"
), "10.1.1.2", "12", ""),
        (HEAD + (
            "NET/IB: Got completion from peer 10.1.1.2<41> with status=5 opcode=0 len=0 "
            "vendor err 249 (Send) hca mlx5_2"
), "10.1.1.2", "5", "mlx5_2"),
        (HEAD + (
            "NET/IB: Got completion from peer n2<41> with status=IBV_WC_RETRY_EXC_ERR(12) "
            "opcode=IBV_WC_SEND(0) reqSize=0 vendor_err=129 req_type=Send hca mlx5_0"
), "n2", "12", "mlx5_0"),
    ],
)  # fmt: skip
def test_completions_of_all_styles(text: str, peer: str, status: str, nic: str) -> None:
    said = only(nccl.read, text, "nccl.completion")
    assert (said.get("peer", ""), said["status"], said["nic"], said["node"]) == (peer, status, nic, "n1")


@pytest.mark.parametrize(
    "head",
    [
        "n1:7:8 [0] include/socket.h:311 WARN ",
        "n1:7:8 [0] misc/socket.cc:533 NCCL WARN ",
        "[2025-10-14 09:12:03] n1:7:8 [0] misc/socket.cc:533 NCCL WARN ",
        "[2025-10-14 09:12:03] n1:7:8 [0] misc/socket.cc:533 (socketConnect) NCCL WARN ",
        "n1:7:8 [0] get_ofi_provider:312 NCCL WARN ",
        "[1,2]<stdout>:n1:7:8 [0] NCCL WARN ",
    ],
)
def test_heads_of_warnings(head: str) -> None:
    assert only(nccl.read, head + "Something is wrong", "nccl.warn")["message"] == "Something is wrong"


@pytest.mark.parametrize(
    ("message", "peer", "error"),
    [
        ("Call to connect timeout : Connection refused", "", "Connection refused"),
        ("Net : Connect to 127.0.0.1<53817> failed : Connection refused", "127.0.0.1", "Connection refused"),
        (
            "socketPollConnect: Connect to 10.0.40.4<568> returned 113(No route to host) errno 115(x)",
            "10.0.40.4",
            "No route to host",
        ),
        ("Call to connect returned No route to host, retrying", "", "No route to host"),
    ],
)
def test_failed_connections(message: str, peer: str, error: str) -> None:
    said = only(nccl.read, HEAD + message, "nccl.connect")
    assert (said.get("peer", ""), said["error"]) == (peer, error)


@pytest.mark.parametrize(
    ("text", "rank", "seq"),
    [
        (
            "[E ProcessGroupNCCL.cpp:587] [Rank 4] Watchdog caught collective operation timeout: "
            "WorkNCCL(OpType=ALLREDUCE, TensorShape=[1], Timeout(ms)=1800000) ran for 1802710 ms", "4", ""),
        (
            "[E ProcessGroupNCCL.cpp:474] [Rank 1] Watchdog caught collective operation timeout: "
            "WorkNCCL(SeqNum=2, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran "
            "for 1800024 milliseconds", "1", "2"),
        (
            "[rank3]:[E1014 09:22:03.1 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught "
            "collective operation timeout: Wo", "3", ""),
    ],
)  # fmt: skip
def test_watchdogs_of_three_generations(text: str, rank: str, seq: str) -> None:
    said = only(c10d.read, text, "c10d.timeout")
    assert (said["rank"], said.get("seq", "")) == (rank, seq)


def test_kernel_messages() -> None:
    said = only(
        kernel.read, "NVRM: Xid (PCI:0000:5d:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen", "kernel.xid"
    )
    assert (said["bus"], said["xid"]) == ("0000:5d:00", "79")
    assert (
        only(kernel.read, "Memory cgroup out of memory: Killed process 77 (python3) total-vm:1kB", "kernel.oom")["pid"]
        == "77"
    )
    assert only(kernel.read, "infiniband mlx5_1: mlx5_ib: port 1 is down", "kernel.port")["nic"] == "mlx5_1"


@pytest.mark.parametrize(
    ("bus", "short"),
    [("0000:2a:00.0", "2a"), ("00000000:2A:00.0", "2a"), ("2a000", "2a"), ("0x07", "7"), ("0000:07:00", "7"),
     ("1000", "1"), ("0001:0f:00.0", "1:f"), ("10f000", "1:f")],
)  # fmt: skip
def test_bus_addresses_become_one_form(bus: str, short: str) -> None:
    assert kernel.short_bus(bus) == short


def test_task_lists() -> None:
    assert launcher.ranks_of("8,10-12") == [8, 10, 11, 12]
    assert launcher.ranks_of("x-y,3") == [3]


@pytest.mark.parametrize(
    ("text", "symptom"),
    [
        ("KeyError: '<|tool|>'", ""),
        ("torch.distributed.DistBackendError: NCCL error in: x", "yes"),
        ("requests.exceptions.ReadTimeout: HTTPSConnectionPool: Read timed out.", ""),
        ("RuntimeError: NCCL communicator was aborted: timed out", "yes"),
        ("BrokenPipeError: [Errno 32] Broken pipe", "yes"),
    ],
)
def test_own_exceptions_and_consequences(text: str, symptom: str) -> None:
    assert only(program.read, text, "app.exception")["symptom"] == symptom


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("dmesg_gpu-c08.txt", "gpu-c08"), ("gpu-c08.dmesg.txt", "gpu-c08"), ("01-gpu-c08-dmesg.log", "gpu-c08"),
        ("node4_iptables.txt", "node4"), ("worker-1.log", "worker-1"), ("systemctl_fm-01.txt", "fm-01"),
        ("job.log", None), ("rank12.log", None), ("slurm-88123.out", None), ("all_reduce_perf.txt", None),
        ("nccl_trace_rank_3", None), ("00_slurm-88123.log.txt", None),
    ],
)  # fmt: skip
def test_hosts_in_file_names(name: str, node: str | None) -> None:
    assert node_of_name(name) == node


def test_joined_files_are_taken_apart() -> None:
    texts = [
        "==> rank3.log <==",
        "KeyError: 'x'",
        "==> dmesg_n7.txt <==",
        "[ 1.000000] NVRM: Xid (PCI:0000:5d:00): 79, x",
    ]
    found = [e for d in split("all.txt", enumerate(texts, 1)) for e in events(d)]
    kinds = {e.kind: e for e in found}
    assert kinds["app.exception"].rank == 3
    assert kinds["kernel.xid"].node == "n7" and kinds["kernel.xid"].line.number == 4
