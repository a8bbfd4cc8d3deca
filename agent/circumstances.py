"""What the machine around a run says: kernel log, memory, disks, GPUs, RDMA ports, in the form of the usual tools."""

from __future__ import annotations

import fcntl
import re
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from pathlib import Path

from agent.formats.clock import stamp
from agent.host import disks
from agent.wire import Gpu

BEFORE_S, AFTER_S = 600.0, 120.0
"""Around a run: hardware complains before a job notices, and the kernel afterwards."""
KILL = re.compile(r"Out of memory|out of memory: Killed|oom-kill|oom_reaper|invoked oom-killer")
TOOL_S = 10.0
MOST_KERNEL_LINES = 4000
MEMORY = ("MemTotal", "MemFree", "MemAvailable", "SwapTotal", "SwapFree", "CommitLimit", "Committed_AS", "Shmem")
CGROUPS = Path("/sys/fs/cgroup")
INFINIBAND = Path("/sys/class/infiniband")
SIOCGIFADDR = 0x8915
"""netdevice(7); the address is that of a sockaddr_in after the name"""


def kernel_log(began_unix: float, ended_unix: float) -> tuple[str, str]:
    """(lines of the window, why there are none)."""
    since = datetime.fromtimestamp(began_unix - BEFORE_S, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    refused = []
    for command in (
        ["dmesg", "--time-format=iso"],
        ["journalctl", "-k", "-q", "-o", "short-iso", "--no-pager", "--since", since],
    ):
        text, why = tool(command)
        if not why:
            lines = window(text.splitlines(), began_unix - BEFORE_S, ended_unix + AFTER_S)
            return "\n".join(line for line in lines if not older_kill(line, began_unix)) + "\n", ""
        refused.append(f"{command[0]}: {why}")
    return "", "kernel log not readable (" + "; ".join(refused) + ")"


def tool(command: list[str]) -> tuple[str, str]:
    """(output, what went wrong)."""
    if shutil.which(command[0]) is None:
        return "", "not installed"
    try:
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=TOOL_S, check=False)
    except subprocess.TimeoutExpired:
        return "", f"no answer within {TOOL_S:.0f} s"
    except OSError as error:
        return "", str(error.strerror)
    if done.returncode != 0:
        return "", done.stderr.decode("utf-8", "replace").strip()[:200] or f"exit code {done.returncode}"
    return done.stdout.decode("utf-8", "replace"), ""


def window(lines: Iterable[str], first_unix: float, last_unix: float) -> list[str]:
    """Lines written between the two; those without a time go with the line before."""
    kept: list[str] = []
    inside = False
    for line in lines:
        at = stamp(line)
        inside = inside if at is None else first_unix <= at <= last_unix
        if inside:
            kept.append(line)
    return kept[-MOST_KERNEL_LINES:]


def older_kill(line: str, began_unix: float) -> bool:
    """A process that the kernel ended for memory before the run began was none of the run."""
    at = stamp(line)
    return at is not None and at < began_unix and KILL.search(line) is not None


def disk_table(extra: Iterable[Path]) -> str:
    """As `df -k`."""
    rows = ["Filesystem 1K-blocks Used Available Use% Mounted on"]
    for one in disks(extra):
        used = one.total_bytes - one.free_bytes
        percent = -(-100 * used // one.total_bytes)  # rounded up, as df does
        rows.append(f"disk {one.total_bytes >> 10} {used >> 10} {one.free_bytes >> 10} {percent}% {one.mount}")
    return "\n".join(rows) + "\n"


def memory() -> str:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return "\n".join(line for line in lines if line.partition(":")[0] in MEMORY) + "\n"


def group_events(pid: int | None) -> str:
    """memory.events of the process's cgroup (v2), or memory.oom_control (v1); empty where there is none."""
    try:
        lines = Path(f"/proc/{pid}/cgroup" if pid else "/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return ""
    for line in lines:
        number, names, path = [*line.split(":", 2), "", ""][:3]
        if number == "0":
            found = CGROUPS / path.lstrip("/") / "memory.events"
        elif "memory" in names.split(","):
            found = CGROUPS / "memory" / path.lstrip("/") / "memory.oom_control"
        else:
            continue
        try:
            return found.read_text()
        except OSError:
            continue
    return ""


def gpu_lines(gpus: Iterable[Gpu]) -> str:
    """One line a card; a lost one in NVML's own words."""
    return "".join(f"{line}\n" for one in gpus for line in gpu(one))


def gpu(one: Gpu) -> Iterator[str]:
    if one.pci_bus_id:
        yield f"card {one.index} {one.uuid} {one.pci_bus_id}"
    if one.lost:
        yield f"GPU {one.pci_bus_id}: {one.lost}"
        return
    used, total = one.memory_used_bytes, one.memory_total_bytes
    memory_words = f"{used >> 20} MiB of {total >> 20} MiB" if used is not None and total else "memory not known"
    yield (
        f"GPU index {one.index} {one.name} {one.uuid} {one.pci_bus_id}: {memory_words}, "
        f"utilisation {one.utilisation_percent} %, {one.temperature_c} C, {one.power_w} W, "
        f"uncorrected ECC {one.ecc_uncorrected}, throttle {', '.join(one.throttle) or 'none'}, "
        f"remapped rows {one.remapped_rows}, NVLinks down {one.nvlinks_down}, "
        f"PCIe gen {one.pcie_gen} x{one.pcie_width}, Xids {one.xids}"
    )
    for process in one.processes:
        yield f"  pid {process.pid} {process.name} {process.memory_bytes} bytes, run {process.run} rank {process.rank}"


def ports(root: Path = INFINIBAND) -> str:
    """State of all RDMA ports as `grep . /sys/class/infiniband/*/ports/*/…` prints it; empty without any."""
    found = (port / name for port in sorted(root.glob("*/ports/*")) for name in ("state", "phys_state", "rate"))
    return "".join(f"{INFINIBAND / path.relative_to(root)}:{one_word(path)}\n" for path in found)


def addresses() -> str:
    """The IPv4 address of each interface, as `ip -br addr` prints them."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        found = ((name, address(asking, name)) for _, name in socket.if_nameindex())
        return "".join(f"{name:<16} UNKNOWN {own}\n" for name, own in found if own)


def address(asking: socket.socket, interface: str) -> str:
    """Empty for one without."""
    try:
        answer = fcntl.ioctl(asking, SIOCGIFADDR, struct.pack("256s", interface.encode()))
    except OSError:
        return ""
    return socket.inet_ntoa(answer[20:24])


def one_word(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return "not readable"


def hostname() -> str:
    return socket.gethostname()
