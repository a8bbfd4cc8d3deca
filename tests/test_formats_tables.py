"""Tables that tools print: benchmarks, ports, GPUs, PCIe, limits, RAS."""

from __future__ import annotations

from agent.formats.event import Event
from agent.formats.read import events, split


def found(text: str, kind: str, name: str = "x.txt") -> list[Event]:
    texts = enumerate(text.split("\n"), 1)
    return [e for d in split(name, texts) for e in events(d) if e.kind == kind]


def test_benchmarks_old_and_new() -> None:
    new = (
        "  1073741824     268435456     float     sum      -1   3942.05  272.38  476.67       "
        "0   3950.40  271.81  475.66       0"
    )
    old = (
        "  1073741824     268435456     float     sum   43405.2   24.74   46.38  0e+00   43860.9   24.48   45.90  0e+00"
    )
    assert [e.number("busbw") for e in found(f"{new}\n{old}", "bench.row")] == [476.67, 46.38]
    ranks = (
        "#  Rank  0 Group  0 Pid 17 on hp-a device  3 [0000:5d:00] NVIDIA H100\n#   Rank  8 "
        "Pid 18 on hp-b device  1 [0x16] A100"
    )
    assert [(e.rank, e.node, e.gpu, e.get("bus")) for e in found(ranks, "bench.rank")] == [
        (0, "hp-a", 3, "0000:5d:00"),
        (8, "hp-b", 1, "0x16"),
    ]


def test_pairs_as_matrix_and_as_rows() -> None:
    matrix = "          a-0     a-1     a-2\na-0         -   360.7   176.2\na-1     361.9       -   361.3"
    assert [(e.get("a"), e.get("b"), e.number("busbw")) for e in found(matrix, "pair")] == [
        ("a-0", "a-1", 360.7), ("a-0", "a-2", 176.2), ("a-1", "a-0", 361.9), ("a-1", "a-2", 361.3),
    ]  # fmt: skip
    assert [(e.get("a"), e.get("b")) for e in found("A,B,busbw\nfd-00,fd-01,367.8", "pair")] == [("fd-00", "fd-01")]


def test_perftest_in_both_units() -> None:
    text = (
        " Device         : mlx5_3\n #bytes #iterations BW peak[MiB/sec] BW average[MiB/sec] "
        "MsgRate[Mpps]\n 65536 5000 23000.0 23841.86 0.38"
    )
    row = found(text, "perftest.row")[0]
    assert row.nic == "mlx5_3" and round(row.number("gbps") or 0) == 200


IBSTAT = (
    "CA 'mlx5_5'\n\tCA type: MT4129\n\tPort 1:\n\t\tState: Down\n\t\tPhysical state: "
    "Polling\n\t\tRate: 10\n\t\tLink layer: InfiniBand"
)
DEVINFO = (
    "hca_id:\tmlx5_0\n\tfw_ver:\t28.39\n\t\tport:\t1\n\t\t\tstate:\t\tPORT_ACTIVE "
    "(4)\n\t\t\tactive_mtu:\t1024 (3)\n\t\t\tlink_layer:\tEthernet"
)


def test_ports_of_ibstat_and_ibv_devinfo() -> None:
    down = found(IBSTAT, "port", "ibstat_hh-b04.txt")[0]
    assert (down.nic, down.node, down.get("state"), down.line.number) == ("mlx5_5", "hh-b04", "Down", 5)
    other = found(DEVINFO, "port")[0]
    assert (other.nic, other.get("mtu"), other.get("state")) == ("mlx5_0", "1024 (3)", "PORT_ACTIVE (4)")


def test_counters_before_and_after() -> None:
    text = "# vol-02 before/after (hw_counters, 60 s)\nmlx5_0 out_of_sequence                    118233      9912044"
    event = found(text, "counter")[0]
    assert (event.node, event.nic, event.get("first"), event.get("last")) == ("vol-02", "mlx5_0", "118233", "9912044")


def test_rates_of_sysfs() -> None:
    event = found("hgx-24-75 /sys/class/infiniband/mlx5_0/ports/1/rate: 400 Gb/sec (4X NDR)", "port.sysfs")[0]
    assert (event.node, event.nic, event.get("name"), event.get("value")) == (
        "hgx-24-75",
        "mlx5_0",
        "rate",
        "400 Gb/sec (4X NDR)",
    )


def test_gpu_rows_by_their_header() -> None:
    text = "index, pci.bus_id, clocks.sm [MHz], power.draw [W]\n6, 00000000:BA:00.0, 765 MHz, 412.10 W"
    row = found(text, "gpu.row")[0]
    assert (row.gpu, row.number("clocks.sm"), row.number("power.draw")) == (6, 765.0, 412.1)


def test_topology_nvlink_and_pcie() -> None:
    topo = "\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\nGPU0\t X \tNV12\tSYS\tPIX\t0-47\nGPU1\tNV12\t X \tSYS\tSYS\t0-47"
    assert [(e.gpu, dict(e.detail)) for e in found(topo, "topo")] == [
        (0, {"NIC0": "SYS", "NIC1": "PIX"}),
        (1, {"NIC0": "SYS", "NIC1": "SYS"}),
    ]
    links = "GPU 3: Tesla V100 (UUID: GPU-a)\n\t Link 0: 25.781 GB/s\n\t Link 3: <inactive>"
    assert [(e.gpu, e.get("link"), e.get("state")) for e in found(links, "nvlink")][1] == (3, "3", "<inactive>")
    lspci = (
        "81:00.0 VGA compatible controller: NVIDIA Corporation\n\t\tLnkCap:\tPort #0, Speed "
        "16GT/s, Width x16\n\t\tLnkSta:\tSpeed 16GT/s, Width x4 (downgraded)"
    )
    assert found(lspci, "pcie.link")[0].get("cap_width") == "16"
    acs = (
        "16:00.0 PCI bridge: x\n\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ "
        "UpstreamFwd+ EgressCtrl- DirectTrans-"
    )
    assert found(acs, "pcie.acs")[0].get("on") == "yes"


def test_limits_modules_listings_services() -> None:
    assert found("$ ulimit -l\nunlimited", "limit.memlock")[0].get("value") == "unlimited"
    assert (
        found("$ mpirun bash -c 'ulimit -l' | sort | uniq -c\n      8 8192", "limit.memlock")[0].get("value") == "8192"
    )
    assert found("ib_core               442368  8 rdma_cm,ib_ipoib", "host.module")[0].get("module") == "ib_core"
    assert (
        found("$ ls /dev/infiniband\nrdma_cm  umad0  uverbs0", "host.listing")[0].get("names")
        == "rdma_cm  umad0  uverbs0"
    )
    unit = "○ nvidia-fabricmanager.service - NVIDIA\n     Loaded: loaded\n     Active: inactive (dead)"
    assert found(unit, "host.service", "systemctl_fm-01.txt")[0].node == "fm-01"
    assert found("shm              64M   62M  2.0M  97% /dev/shm", "host.shm")[0].get("used") == "97"


def test_ras_text() -> None:
    text = (
        "  Process 490910 on node 10.31.0.3 managing GPU 5\n  The missing rank: 21\n  15 "
        "ranks have launched up to operation 221"
    )
    assert found(text, "ras.process")[0].get("gpus") == "5"
    assert found(text, "ras.missing")[0].get("ranks") == "21"
    assert found(text, "ras.count")[0].get("count") == "15"


def test_torchelastic_report() -> None:
    text = (
        "[0]:\n  time      : 2025-10-14_09:22:03\n  host      : trn-n2\n  rank      : 5 "
        "(local_rank: 1)\n  exitcode  : -6 (pid: 636257)"
    )
    report = found(text, "exit.report")[0]
    assert (report.node, report.rank, report.get("code"), report.get("pid"), report.get("local_rank")) == (
        "trn-n2",
        5,
        "-6",
        "636257",
        "1",
    )
