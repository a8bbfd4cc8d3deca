"""Messages in forms that the corpus does not hold: each small incident has one right answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.triage import triage
from tests.triage_grading import write


def nccl(host: str, rank: int, nranks: int, dev: int, bus: str, iface: str = "eth0", addr: str = "") -> str:
    who = f"{host}:{1000 + rank}:{2000 + rank} [{dev}] NCCL INFO"
    return (
        f"{who} Bootstrap: Using {iface}:{addr or f'10.1.{sum(map(ord, host)) % 200}.9'}<0>\n"
        f"{who} ncclCommInitRank comm 0x55 rank {rank} nranks {nranks} cudaDev {dev} nvmlDev {dev} busId {bus}000 commId 0x1 - Init START\n"
        f"{who} ncclCommInitRank comm 0x55 rank {rank} nranks {nranks} cudaDev {dev} nvmlDev {dev} busId {bus}000 commId 0x1 - Init COMPLETE\n"
    )


def started(hosts: list[str], per: int = 4, hcas: str = "") -> str:
    buses = ["1a", "3d", "8b", "b3", "ba", "c1", "d0", "e5"]
    ranks = [(h, i * per + d, d) for i, h in enumerate(hosts) for d in range(per)]
    lines = "".join(nccl(h, r, len(ranks), d, buses[d]) for h, r, d in ranks)
    if hcas:
        lines += "".join(f"{h}:1:1 [0] NCCL INFO NET/IB : Using {hcas} [RO]; OOB eth0:10.1.1.1<0>\n" for h in hosts)
    return lines


def steps(n: int = 3) -> str:
    return "".join(f"{{'loss': 2.{i}, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.{i}}}\n" for i in range(n))


def late(ranks: list[int], seq: int = 500, op: str = "ALLREDUCE", numel: int = 4096) -> str:
    return "".join(
        f"[rank{r}]:[E1102 03:14:15.926535897 ProcessGroupNCCL.cpp:685] [Rank {r}] Watchdog caught collective operation "
        f"timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={numel}, NumelOut={numel}, Timeout(ms)=600000) ran for "
        "600031 milliseconds before timing out.\n"
        for r in ranks
    )


def first_generation(ranks: list[int]) -> str:
    return "".join(
        f"[E ProcessGroupNCCL.cpp:587] [Rank {r}] Watchdog caught collective operation timeout: "
        "WorkNCCL(OpType=ALLREDUCE, TensorShape=[1], Timeout(ms)=1800000) ran for 1802710 milliseconds before timing out.\n"
        for r in ranks
    )


IB8 = " ".join(f"[{i}]mlx5_{i}:1/IB" for i in range(4))
ALL8 = list(range(8))
CASES: dict[str, tuple[str, dict[str, Any], dict[str, str]]] = {
    "xid-79-bus-to-rank": (
        "gpu.fell-off-bus",
        {"node": ["b2"], "rank": [6], "gpu": [2]},
        {"run.log": started(["b1", "b2"]) + steps() + late(ALL8), "dmesg_b2.txt": "[ 9912.100000] NVRM: Xid (PCI:0000:8b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"},
    ),
    "xid-stale": (
        "undetermined",
        {},
        {
            "run.log": "2025-11-02T03:00:00 start\n" + started(["b1", "b2"]) + steps() + late(ALL8) + " [2025-11-02 03:04:00] iteration 3/ 10 | lm loss: 2.0 |\n",
            "dmesg_b2.txt": "[Mon Oct 20 01:00:00 2025] NVRM: Xid (PCI:0000:8b:00): 94, pid=7, name=python3, Contained: DRAM\n",
        },
    ),
    "xid-63-alone-is-no-fault": (
        "healthy",
        {},
        {"dmesg.txt": "[ 100.000000] NVRM: Xid (PCI:0000:8b:00): 63, pid=1, name=x, Row Remapper: New row marked for remapping\n"},
    ),
    "gpu-lost-by-smi": (
        "gpu.fell-off-bus",
        {"node": ["c7"], "gpu": [1]},
        {"run.log": started(["c7"]) + late([0, 2, 3]), "nvidia-smi_c7.txt": "Unable to determine the device handle for GPU0000:3D:00.0: GPU is lost.  Reboot the system to recover this GPU\n"},
    ),
    "nvlink5-xid": (
        "gpu.nvlink-error",
        {"node": ["c7"], "rank": [3]},
        {"run.log": started(["c7"]) + late([0, 1, 2]), "kern_c7.log": "Nov  2 03:10:00 c7 kernel: NVRM: Xid (PCI:0000:b3:00): 149, pid=1, name=python, NETIR_LINK_EVT Fatal XC0 i0 Link 17\n"},
    ),
    "completion-newest-form": (
        "rdma.peer-lost",
        {"node": ["n3"]},
        {
            "run.log": started(["n1", "n2", "n3"], 2, IB8)
            + steps()
            + "".join(
                f"[2025-11-02 03:14:15] {a}:9:9 [0] transport/net_ib.cc:2271 (ncclIbTest) NCCL WARN NET/IB: Got completion from peer {b}<3412> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) reqSize=0 vendor_err=129 req_type=Send localGid ::ffff:10.1.1.1 remoteGids::ffff:10.1.1.2 hca mlx5_1\n"
                for a, b in (("n1", "10.1.161.9"), ("n2", "10.1.161.9"), ("n1", "10.1.161.9"))
            )
        },
    ),
    "flush-is-secondary": (
        "rdma.port-flap",
        {"node": ["n2"], "nic": ["mlx5_3"]},
        {
            "run.log": started(["n1", "n2"], 2, IB8)
            + steps()
            + "n2:9:9 [1] transport/net_ib.cc:99 NCCL WARN NET/IB : mlx5_3:1 Got async event : port error\n"
            + "n2:9:9 [1] transport/net_ib.cc:99 NCCL WARN NET/IB : mlx5_3:1 Got async event : port active\n"
            + "n2:9:9 [1] transport/net_ib.cc:99 NCCL WARN NET/IB : mlx5_3:1 Got async event : port error\n"
            + "n1:9:9 [1] transport/net_ib.cc:1 NCCL WARN NET/IB : Got completion from peer 10.1.160.9<1> with status=5 opcode=0 len=0 vendor err 249 (Send)\n"
        },
    ),
    "unused-port-down": (
        "healthy",
        {},
        {"run.log": started(["n1", "n2"], 2, IB8) + steps(), "ibstat_n1.txt": "CA 'mlx5_9'\n\tCA type: MT4129\n\tPort 1:\n\t\tState: Down\n\t\tPhysical state: Disabled\n\t\tRate: 10\n"},
    ),
    "sysfs-port-down": (
        "rdma.port-down",
        {"node": ["n2"], "nic": ["mlx5_2"]},
        {
            "run.log": started(["n1"], 2, IB8) + "n2:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5_3:1/IB [RO]; OOB eth0:10.1.1.1<0>\n" + late([0, 1, 2, 3], 1),
            "sysfs.txt": "n1: /sys/class/infiniband/mlx5_2/ports/1/state: 4: ACTIVE\nn2: /sys/class/infiniband/mlx5_2/ports/1/state: 1: DOWN\n",
        },
    ),
    "gai": (
        "rdzv.hostname-resolution",
        {"node": ["w5"]},
        {"w5.log": "[W1102 03:14:15.926 socket.cpp:767] [c10d] The IPv6 network addresses of (head-0, 29500) cannot be retrieved (gai error: -2 - Name or service not known).\n[E socket.cpp:860] [c10d] The client socket has timed out after 60s while trying to connect to (head-0, 29500).\ntorch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to connect to (head-0, 29500).\n"},
    ),
    "clients-missing-2": (
        "rdzv.clients-missing",
        {},
        {"rank0.log": "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 3/4 clients joined.\n"},
    ),
    "first-generation-watchdog": (
        "app.rank-hung",
        {"rank": [2]},
        {"job.log": "rank: 0, local_rank: 0, world_size: 8, local_world_size: 8\n" + steps() + first_generation([0, 1, 3, 4, 5, 6, 7])},
    ),
    "heartbeat-one-rank": (
        "app.rank-hung",
        {"rank": [5]},
        {"job.log": steps() + "[rank5]:[F1102 03:10:00.1 ProcessGroupNCCL.cpp:1557] [PG ID 0 PG GUID 0(default_pg) Rank 5] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress\n" + late([0, 1, 2, 3, 4, 6, 7])},
    ),
    "oom-older-text": (
        "app.rank-oom",
        {"rank": [3], "gpu": [3]},
        {"job.log": steps() + "[default3]:RuntimeError: CUDA out of memory. Tried to allocate 1.17 GiB (GPU 3; 79.15 GiB total capacity; 75.01 GiB already allocated)\n" + late([0, 1, 2], 9)},
    ),
    "cgroup-oom": (
        "app.host-oom-kill",
        {"node": ["s4"]},
        {"slurm-77.out": steps() + "slurmstepd: error: Detected 1 oom_kill event in StepId=77.0. Some of the step tasks have been OOM Killed.\nsrun: error: s4: task 11: Out Of Memory\nsrun: error: s3: tasks 0-7: Terminated\n"},
    ),
    "kubernetes-oom": (
        "app.host-oom-kill",
        {},
        {"describe.txt": "    Last State:     Terminated\n      Reason:       OOMKilled\n      Exit Code:    137\n", "job.log": steps()},
    ),
    "sigkill-unknown": (
        "app.rank-dead",
        {"rank": [2]},
        {"job.log": steps() + "E1102 03:14:15.000000 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -9) local_rank: 2 (pid: 812) of binary: /usr/bin/python3\n"},
    ),
    "assertion-one-rank": (
        "app.exception-one-rank",
        {"rank": [7]},
        {"job.log": steps() + "[rank7]: Traceback (most recent call last):\n[rank7]:   File \"t.py\", line 1, in f\n[rank7]: AssertionError\n" + late([0, 1, 2, 3, 4, 5, 6])},
    ),
    "saving-checkpoint": (
        "app.rank0-long-work",
        {"rank": [0]},
        {"job.log": steps() + "[rank0]: Saving checkpoint shard 3/64 to /mnt/nfs/ckpt\n[rank0]: Saving checkpoint shard 9/64 to /mnt/nfs/ckpt\n" + late([1, 2, 3], 733, "BARRIER", 1)},
    ),
    "shm-2.20": (
        "shm.too-small",
        {"node": ["k2"]},
        {"job.log": "k2:77:99 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-5DdVwc to 33030532 bytes, error: No space left on device (28)\nk2:77:99 [0] misc/shmutils.cc:113 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-5DdVwc (size 33030528), error: No space left on device (28)\n"},
    ),
    "qp-rtr-newest": (
        "rdma.gid-index",
        {},
        {"job.log": "r1:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.1<0>\nr1:1:1 [0] misc/ibvwrap.cc:301 NCCL WARN Call to ibv_modify_qp failed with 22 Invalid argument, on dev mlx5_0:1, curr state INIT, next state RTR, local GID index 0, local GID fe80::1, remote GID fe80::2\n"},
    ),
    "nvls-401": (
        "nvswitch.nvls-multicast",
        {"node": ["h1"]},
        {"job.log": "h1:5:6 [3] transport/nvls.cc:247 NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401 'the operation cannot be performed in the present state'.\n"},
    ),
    "fm-802": (
        "nvswitch.fabric-manager-down",
        {"node": ["h9"]},
        {"h9.log": "RuntimeError: CUDA error: system not yet initialized\n", "systemctl_h9.txt": "× nvidia-fabricmanager.service - NVIDIA fabric manager service\n     Active: failed (Result: exit-code)\n"},
    ),
    "multiple-ranks-one-gpu": (
        "nccl.duplicate-gpu",
        {},
        {"job.log": "[rank1]: torch.distributed.DistBackendError: NCCL error: invalid usage\nncclInvalidUsage: Multiple ranks are using the same GPU, please check CUDA_VISIBLE_DEVICES\n"},
    ),
    "wrong-magic": (
        "net.stray-connection",
        {},
        {"job.log": started(["a1"]).split("COMPLETE")[0] + "\na1:5:6 [0] misc/socket.cc:720 NCCL WARN socketFinalizeAccept: wrong magic 47455420 != 9a1f9a1f\n"},
    ),
    "gloo-127": (
        "gloo.interface",
        {},
        {"job.log": "[rank1]: RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error, remote=[127.0.1.1]:5512\n"},
    ),
    "version-mismatch-three-nodes": (
        "nccl.version-mismatch",
        {"node": ["v3"]},
        {"job.log": "v1:1:1 [0] NCCL INFO NCCL version 2.27.5+cuda12.9\nv2:1:1 [0] NCCL INFO NCCL version 2.27.5+cuda12.9\nv3:1:1 [0] NCCL INFO NCCL version 2.26.2+cuda12.8\n[2025-11-02 03:14:15] v1:1:1 [0] init.cc:968 NCCL WARN Mismatched NCCL version detected : rank 2 version 22602 rank 0 version 22705\n"},
    ),
    "slow-node-csv": (
        "perf.node-slow",
        {"node": ["p2"]},
        {"pairs.csv": "A,B,busbw_GBps\np0,p1,360\np0,p2,170\np0,p3,361\np1,p2,172\np1,p3,359\np2,p3,171\n"},
    ),
    "idle-gen1": (
        "healthy",
        {},
        {"lspci.txt": "01:00.0 3D controller: NVIDIA Corporation GA100 [A100]\n\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16\n\t\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x16\n"},
    ),
    "iommu-amd": (
        "pcie.acs-iommu",
        {"node": ["q1"]},
        {
            "bench.txt": "# nThread 1 nGpus 2 minBytes 8 maxBytes 134217728 step: 2(factor)\n#  Rank  0 Group  0 Pid  1 on q1 device  0 [0000:01:00] NVIDIA RTX A6000\n#       size         count      type   redop    root     time   algbw   busbw #wrong\n",
            "dmesg_q1.txt": "[  77.000000] AMD-Vi: Event logged [IO_PAGE_FAULT device=01:00.0 domain=0x0014 address=0xf8000000 flags=0x0030]\n",
        },
    ),
    "ras-json": (
        "app.rank-hung",
        {"node": ["z4"], "rank": [13]},
        {"ras.json": '{"nccl_version": "2.28.3", "communicators": [{"hash": "0x1", "size": 16, "missing_ranks": [{"rank": 13, "host": "z4", "pid": 77, "cuda_dev": 5}]}]}\n', "job.log": steps()},
    ),
    "clients-missing-named": (
        "rdzv.clients-missing",
        {"rank": [3]},
        {
            "rank0.log": "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 3/4 clients joined.\n",
            "rank1.log": steps(),
            "rank2.log": steps(),
        },
    ),
    "prefix-match": (
        "rdma.hca-selection",
        {"node": ["n1"], "nic": ["mlx5_10"]},
        {
            "job.log": "n1:1:1 [0] NCCL INFO NCCL_IB_HCA set by environment to mlx5_1\n"
            "n1:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_1:1/IB [1]mlx5_10:1/IB [RO]; OOB eth0:10.1.1.1<0>\n" + late([0, 1], 1)
        },
    ),
    "environment-differs": (
        "nccl.config-mismatch",
        {"node": ["n3"]},
        {
            "job.log": "".join(
                f"{h}:1:1 [0] NCCL INFO Bootstrap: Using eth0:10.1.1.{i}<0>\n{h}:1:1 [0] NCCL INFO Using network {'Socket' if h == 'n3' else 'IB'}\n"
                f"{h}:1:1 [0] NCCL INFO ncclCommInitRank comm 0x5 rank {i} nranks 3 cudaDev 0 nvmlDev 0 busId 1000 - Init START\n"
                for i, h in enumerate(("n1", "n2", "n3"))
            )
            + late([0, 1, 2], 1)
        },
    ),
    "gdr-distance": (
        "topo.gpu-nic-distance",
        {},
        {"job.log": "n1:1:1 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for GPU 0[1a000] / HCA 0 (distance 6 > 4)\nn1:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0\n"},
    ),
    "peermem-by-modprobe": (
        "gdr.peermem-missing",
        {"node": ["n1"]},
        {
            "job.log": "n1:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0\n",
            "n1_modprobe.txt": "modprobe: FATAL: Module nvidia-peermem not found in directory /lib/modules/5.15\n",
        },
    ),
    "gdr-on-one-node-only": (
        "gdr.peermem-missing",
        {"node": ["n2"]},
        {
            "job.log": "n1:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA\n"
            "n2:1:1 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [send] via NET/IB/0\n"
        },
    ),
    "data-server-timeout-is-own": (
        "app.exception-one-rank",
        {"rank": [4]},
        {"job.log": steps() + "[rank4]: Traceback (most recent call last):\n[rank4]: requests.exceptions.ReadTimeout: HTTPSConnectionPool(host='data', port=443): Read timed out. (read timeout=10)\n" + late([0, 1, 2, 3, 5, 6, 7])},
    ),
    "node-by-node-bench": (
        "perf.node-slow",
        {"node": ["k3"]},
        {
            f"bench_{h}.txt": f"#  Rank  0 Group  0 Pid  1 on {h} device  0 [0000:01:00] NVIDIA L40S\n  1073741824     268435456     float     sum      -1   100.0   10.0   {bw}       0   100.0   10.0   {bw}       0\n"
            for h, bw in (("k1", 24.1), ("k2", 24.0), ("k3", 11.9), ("k4", 24.2))
        },
    ),
    "perftest-one-adapter": (
        "perf.nic-rate-asymmetric",
        {"nic": ["mlx5_2"]},
        {
            "perftest.txt": "".join(
                f" Device         : mlx5_{i}\n #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n 65536      5000             {bw}             {bw}             0.740000\n"
                for i, bw in enumerate((391.0, 390.5, 97.1, 391.2))
            )
        },
    ),
    "efa-by-lspci": (
        "efa.not-used",
        {},
        {
            "job.log": started(["i1", "i2"], 1) + "i1:1:1 [0] NCCL INFO Using network Socket\ni2:1:1 [0] NCCL INFO Using network Socket\n",
            "lspci_i1.txt": "00:1d.0 Ethernet controller: Amazon.com, Inc. Elastic Fabric Adapter (EFA)\n",
        },
    ),
    "node-logs-not-supplied": (
        "undetermined",
        {},
        {"job.log": "".join(x + "\n" for x in started([f"n{i}" for i in range(8)], 2).split("\n") if "n7" not in x) + late(list(range(14)))},
    ),
    "ecc-by-csv": (
        "gpu.ecc-uncorrectable",
        {"node": ["e1"], "gpu": [1]},
        {"smi_e1.csv": "index, name, ecc.errors.uncorrected.volatile.total, clocks.sm [MHz]\n0, NVIDIA A100, 0, 1410 MHz\n1, NVIDIA A100, 3, 1410 MHz\n"},
    ),
    "journal-export": (
        "gpu.fell-off-bus",
        {"node": ["x9"]},
        {"x9.export": "__REALTIME_TIMESTAMP=1762053255000000\n_HOSTNAME=x9\nSYSLOG_IDENTIFIER=kernel\nMESSAGE=NVRM: Xid (PCI:0000:3d:00): 79, GPU has fallen off the bus.\n\n"},
    ),
    "two-hardware-faults": (
        "gpu.fell-off-bus",
        {"node": ["b2"]},
        {
            "run.log": started(["b1", "b2"], 4, IB8) + steps() + late(ALL8),
            "dmesg_b2.txt": "[ 9912.100000] NVRM: Xid (PCI:0000:8b:00): 79, GPU has fallen off the bus.\n",
            "dmesg_b1.txt": "[ 9900.100000] infiniband mlx5_1: mlx5_ib: port 1 is down\n",
        },
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_form(name: str, tmp_path: Path) -> None:
    kind, culprit, files = CASES[name]
    verdict = triage([write({n: t.encode() for n, t in files.items()}, tmp_path / "incident")])
    if kind in ("healthy", "undetermined"):
        assert verdict.verdict == kind, verdict.faults
        assert not any(f.culprit for f in verdict.faults)
        return
    assert [f.kind for f in verdict.faults][:1] == [kind], (verdict.verdict, verdict.faults)
    first = verdict.as_json()["faults"][0]
    assert {k: first["culprit"][k] for k in culprit} == culprit
    assert first["evidence"] and first["remedy"] and first["owner"]
    assert all(e["line"] >= 1 and e["text"] for e in first["evidence"])
