"""How a run is started: its own copy of this code, the torchrun command line and what goes into the environment."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import configs
from jobs import durable
from jobs.run_folder import RunFolder
from jobs.spec import Spec

# a script puts its own folder first on sys.path, `-m` would put the working directory there
_SCRIPT = "from jobs.train.__main__ import main\n\nmain()\n"
_EXPORT_SCRIPT = (
    "from pathlib import Path\n\nfrom jobs.train.export import main\n\nmain(Path(__file__).resolve().parent)\n"
)
_SHUTDOWN_S = 20
_MOST_THREADS = 16
_RECORDED_COLLECTIVES = 2000


def stage(folder: RunFolder, spec_text: str) -> None:
    """Fills a created run folder: the spec byte for byte, the entry scripts, and its own copy of this code."""
    durable.write_bytes(folder.spec, spec_text.encode())
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    for package in (Path(__file__).resolve().parent, configs.FOLDER):
        shutil.copytree(package, folder.path / package.name, ignore=ignored)
    durable.write_bytes(folder.script, _SCRIPT.encode())
    durable.write_bytes(folder.export_script, _EXPORT_SCRIPT.encode())


def argv(spec: Spec, folder: RunFolder, python: str) -> list[str]:
    """The command of a run: torchrun with a rendezvous that only this machine can reach."""
    return [
        python,
        "-m",
        "torch.distributed.run",
        "--nnodes=1",
        f"--nproc-per-node={spec.hardware.processes}",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=127.0.0.1:0",
        "--local-addr=127.0.0.1",
        f"--rdzv-id={folder.name}",
        "--max-restarts=0",
        str(folder.script),
    ]


def environment(spec: Spec, gpu_uuids: Sequence[str]) -> dict[str, str]:
    """What is added to the environment of a run. Without GPUs they are hidden, so that a CPU run cannot land on one."""
    threads = max(1, len(os.sched_getaffinity(0)) // spec.hardware.processes)
    added = {
        "CUDA_VISIBLE_DEVICES": ",".join(gpu_uuids),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "OMP_NUM_THREADS": str(min(threads, _MOST_THREADS)),
        # threads that spin while they wait cost 3x the CPU time of a step when cores are shared (measured on 2 cores)
        "OMP_WAIT_POLICY": "PASSIVE",
        "PYTHONUNBUFFERED": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "TQDM_DISABLE": "1",
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(_SHUTDOWN_S),
        # all ranks are on this machine: neither a missing host name nor a firewall can get between them
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
        # the flight recorder; the second name is that of torch before 2.9
        "TORCH_FR_BUFFER_SIZE": str(_RECORDED_COLLECTIVES),
        "TORCH_NCCL_TRACE_BUFFER_SIZE": str(_RECORDED_COLLECTIVES),
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
    }
    if spec.model_folder(Path.home()) is not None:
        added |= {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    return added
