"""What launchers, container runtimes and log collectors put before a line: peeled off, and what it says kept."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from agent.formats.line import Line

KUBERNETES = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d) (?:stdout|stderr) [FP] ")
KUBECTL = re.compile(r"\[pod/(?P<node>[\w.-]+)/[\w.-]+\] ")
JOURNAL = re.compile(
    r"(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?|\d{4}-\d\d-\d\dT[\d:.,]+(?:Z|[+-]\d\d:?\d\d)) "
    r"(?P<node>[\w.-]+) (?P<unit>kernel|[\w@./-]+(?:\[\d+\])?): "
)
DMESG = re.compile(
    r"(?:<\d+>)?(?:kern  ?:\w+ *: )?\[(?:[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d [\d:]{8} \d{4}| *\d+\.\d{3,6})\] "
)
MPI = re.compile(r"\[\d+,(?P<rank>\d+)\]<(?:stdout|stderr|stddiag)>: ?")
RANK = re.compile(r"\[(?:rank|default|trainer|worker|role)(?P<rank>\d+)(?:\|\d+)?\]:? ?")
RAY = re.compile(r"\([\w.:<>@-]+ pid=\d+(?:, ip=(?P<node>[\d.a-fA-F:]+))?\) ?(?:\[repeated \d+x across cluster\] ?)?")
SLURM = re.compile(r" {0,4}(?P<rank>\d{1,5}): (?![\w@.-]+: (?:<|(?:pd|qp|cq|mr) \d))")
COMPOSE = re.compile(r"(?P<node>[\w.-]+) +\| (?=\S)")
SGLANG = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?(?: DP\d+)? TP(?P<rank>\d+)(?: [A-Z]{2}\d+)*\] ")
STAMP = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?\] (?=\S+:\d+:\d+ \[)")
BENCH = re.compile(r"(?P<node>[\w.-]+): (?=Test (?:CUDA|NCCL) failure)")
HOST = re.compile(r"(?P<node>[A-Za-z][\w.-]*): ")
PLAIN = (KUBERNETES, KUBECTL, JOURNAL, DMESG, MPI, RANK, RAY, SLURM, SGLANG, STAMP, BENCH)
# Words that open a line before a colon and are not hosts.
NOT_HOSTS = frozenset(
    [
        "error",
        "warning",
        "info",
        "debug",
        "note",
        "usage",
        "traceback",
        "file",
        "runtimeerror",
        "valueerror",
        "keyerror",
        "failures",
        "notice",
        "fatal",
        "srun",
        "slurmstepd",
        "sbatch",
        "mpirun",
        "ls",
        "cat",
        "bash",
        "sh",
        "docker",
        "kubectl",
        "exception",
        "caused",
        "hint",
        "step",
        "epoch",
        "loss",
        "rank",
        "nvrm",
        "dmar",
        "iommu",
        "infiniband",
        "ib",
        "usb",
        "pci",
        "nfs",
        "audit",
        "nvme",
        "perf",
        "ipv6",
        "link",
        "state",
        "rate",
        "ok",
        "failed",
        "train",
        "eval",
    ]
)


@dataclass(frozen=True, slots=True)
class Peeled:
    """What is left of a line and what its prefixes said."""

    body: str
    node: str | None
    rank: int | None
    kernel: bool


def hosts_before_colon(lines: Iterable[str]) -> frozenset[str]:
    """Host names that a parallel shell (pdsh, clush, parallel-ssh) put before many lines of this document."""
    seen: Counter[str] = Counter()
    total = 0
    for text in lines:
        total += 1
        m = HOST.match(text)
        if m is not None and _hostlike(m["node"]):
            seen[m["node"]] += 1
    alike = Counter(_stem(host) for host, count in seen.items() if count >= 3)
    return frozenset(h for h, n in seen.items() if n >= 3 and (n * 20 >= total or alike[_stem(h)] > 1))


def _stem(host: str) -> str:
    return re.sub(r"\d+", "#", host)


def _hostlike(name: str) -> bool:
    plain = name.lower()
    return (
        plain not in NOT_HOSTS
        and any(c.isdigit() or c == "-" for c in name)
        and not plain.startswith(("nvidia-", "mlx", "libnccl", "gpu_", "link", "0x"))
        and not plain.endswith(("error", "exception", ".py", ".service"))
    )


def peel(text: str) -> Peeled:
    """Take known prefixes off, outermost first."""
    body, node, rank, kernel = text, None, None, False
    for _ in range(6):
        m = next((m for shape in PLAIN if (m := shape.match(body)) is not None), None)
        if m is None:
            break
        said = m.groupdict()
        node = said.get("node") or node
        rank = int(said["rank"]) if said.get("rank") else rank
        kernel = kernel or m.re is DMESG or said.get("unit") == "kernel"
        body = body[m.end() :]
        if m.re is SLURM and not body:
            break
    return Peeled(body, node, rank, kernel)


def read_line(file: str, number: int, text: str) -> Line:
    """A cleaned line with its prefixes peeled."""
    peeled = peel(text)
    return Line(file, number, text, peeled.body, peeled.node, peeled.rank, peeled.kernel)


def without_host(line: Line, hosts: frozenset[str]) -> Line:
    """The line with a parallel shell's host taken off too. `hosts`: from `hosts_before_colon`."""
    for shape in (HOST, COMPOSE):
        m = shape.match(line.body)
        if m is not None and m["node"] in hosts and not line.kernel:
            inner = peel(line.body[m.end() :])
            rank = line.rank if inner.rank is None else inner.rank
            return replace(line, body=inner.body, node=m["node"], rank=rank)
    return line
