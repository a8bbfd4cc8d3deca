"""A document → events: every reader over every line, table readers over the document."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain

from agent.formats import bench, c10d, devices, fabric, host, kernel, launcher, nccl, program, ras, run
from agent.formats.event import Event
from agent.formats.line import Document, Line, clean
from agent.formats.prefix import hosts_before_colon, read_line, without_host

BY_LINE = (nccl.read, c10d.read, kernel.read, launcher.read, program.read, bench.read, ras.read)
BY_DOCUMENT = (
    bench.perftest,
    bench.pairs,
    fabric.read,
    devices.read,
    host.read,
    launcher.failures,
    run.cards,
    run.stacks,
)
LITERALS = tuple(
    dict.fromkeys(
        chain(
            nccl.LITERALS, c10d.LITERALS, kernel.LITERALS, launcher.LITERALS, program.LITERALS, bench.LITERALS,
            ras.LITERALS, fabric.LITERALS, devices.LITERALS, host.LITERALS, run.LITERALS,
        )
    )
)  # fmt: skip
# `tail -n +1 *`, `head *` and `more *` write these between the files they join.
JOINED = re.compile(r"^(?:==> (?P<tail>\S.*?) <==|:{10,14})$")
RANK_FILE = re.compile(r"(?:^|[^a-z])rank[_.-]?(?P<rank>\d+)(?:\D|$)")
TOOL_WORDS = frozenset(
    """job jobs log logs out err txt csv json train training trainer slurm dmesg kern kernel journal journalctl messages
    syslog ibstat ibstatus ibv devinfo ibv_devinfo ibdev2netdev nvidia smi nvidia-smi topo nvlink clocks gpu gpus bmc
    sel ipmi ss netstat systemctl status service lspci acs lnk pcie hosts hostfile hostlist addr addrs ip link iptables
    nft firewall pods pod ls dev infiniband hw counters hw_counters
    rates rate gids show show_gids df shm free ulimit limits
    cmdline proc version modules lsmod rdma res mpirun single all reduce perf bench nccl tests sendrecv ncclras ras fr
    trace frtrace rank node worker stdout stderr merged cluster pdsh clush ray k8s kubectl others main matrix pair pairs
    bindings binding config env fm fabricmanager fabric manager s sg pyspy py spy stack stacks report summary run launch
    allreduce all_reduce_perf all-reduce alltoall incident master console host info q a m v l t before after first
    second local remote events event describe deployment yaml sysfs state ports port stats ethtool ping mtu netdev
    mpi torchrun torchelastic deepspeed accelerate app vllm sglang megatron llama dump dumps error errors tail head part
    slow fast ok good bad hang crash dead new old final output""".split()  # noqa: SIM905
)

JOB_WORDS = frozenset(["slurm", "job", "run", "step", "task", "rank", "part", "attempt", "pid", "id"])
HOST_WORDS = frozenset(["node", "worker", "master", "pod", "host", "gpu", "console", "app"])


def node_of_name(name: str, known: Iterable[str] = ()) -> str | None:
    """The host a file name speaks of: a known host in it, else what is left beside the words of tools.

    `dmesg_gpu-17.txt` → gpu-17; `all_reduce_perf.txt`, `rank0.log` and `slurm-88123.out` → None.
    """
    stem = re.sub(r"(?:\.(?:log|txt|csv|json|out|err|yaml|gz|zst|xml|md|\d{1,3}))+$", "", name.rpartition("/")[2])
    found = [
        k
        for k in known
        if re.search(rf"(?<![\w.-]){re.escape(k)}(?![\w])|_{re.escape(k)}(?:_|$)|^{re.escape(k)}_", stem)
    ]
    if found:
        return max(found, key=len)
    parts = [q for p in re.split(r"[_\s]+", stem) if (q := _trimmed(p))]
    named = [p for i, p in enumerate(parts) if not _about_a_tool(p, first=i == 0)]
    if len(named) != 1 or not re.fullmatch(r"[A-Za-z][\w.-]*", named[0]):
        return None
    hostlike = any(c.isdigit() for c in named[0]) or (len(parts) > 1 and "-" in named[0])
    return named[0] if hostlike else None


def _trimmed(part: str) -> str:
    """A part without words of tools at its ends: `01-gpu-17-dmesg` and `dmesg.gpu-17` → gpu-17."""
    while True:
        m = re.match(r"(?P<word>[A-Za-z]+|\d+)[-.](?P<rest>.+)", part)
        if m and _plain_tool(m["word"]) and re.search(r"[A-Za-z]", m["rest"]):
            part = m["rest"]
            continue
        m = re.match(r"(?P<rest>.+)[-.](?P<word>[A-Za-z]+)$", part)
        if m is None or not _plain_tool(m["word"]):
            return part
        part = m["rest"]


def _plain_tool(word: str) -> bool:
    return word.isdecimal() or (len(word) > 2 and word.lower() in TOOL_WORDS and word.lower() not in HOST_WORDS)


def _about_a_tool(part: str, first: bool) -> bool:
    """Words of tools, with or without a number; but `worker-1`, and `sw-03` after a tool's word, are hosts."""
    words = [w for w in re.split(r"[-.]+", part.lower()) if w]
    numbered = len(words) > 1 and any(w.isdecimal() for w in words)
    if numbered and words[0] not in JOB_WORDS and (not first or words[0] in HOST_WORDS):
        return False
    if re.fullmatch(r"(?:node|host|worker|master|gpu|srv|server|nid)\d+", part.lower()):
        return False
    return all(w.rstrip("0123456789") in TOOL_WORDS or w.isdecimal() for w in words)


def split(name: str, texts: Iterable[tuple[int, str]]) -> Iterator[Document]:
    """Documents of one file: one, or several where a tool joined files and left their names between."""
    part, lines = name, []  # type: tuple[str, list[tuple[int, str]]]
    for number, raw in texts:
        text = clean(raw)
        m = JOINED.match(text)
        if m is not None and m["tail"]:
            yield from _document(name, part, lines)
            part, lines = m["tail"], []
        else:
            lines.append((number, text))
    yield from _document(name, part, lines)


def _document(name: str, part: str, texts: list[tuple[int, str]]) -> Iterator[Document]:
    if not texts:
        return
    m = RANK_FILE.search(part.rpartition("/")[2])
    rank = int(m["rank"]) if m else None
    lines = [_ranked(read_line(name, number, text), rank) for number, text in texts]
    hosts = hosts_before_colon(line.body for line in lines if not line.kernel)
    if hosts:
        lines = [without_host(line, hosts) for line in lines]
    yield Document(name, tuple(lines), node_of_name(part))


def _ranked(line: Line, rank: int | None) -> Line:
    if rank is None or line.rank is not None:
        return line
    return Line(line.file, line.number, line.text, line.body, line.node, rank, line.kernel)


def events(document: Document) -> Iterator[Event]:
    """Every event of a document; those without a place of their own get the document's host."""
    if document.name.endswith(run.PROGRESS):
        for line in document.lines:
            yield from run.read(line)
        return
    for line in document.lines:
        readers = () if not line.body else (program.read,) if program.STEP_LINE.fullmatch(line.body) else BY_LINE
        for reader in readers:
            for event in reader(line):
                yield event if event.node else event.at(document.node)
    for table in BY_DOCUMENT:
        for event in table(document):
            yield event if event.node else event.at(document.node)
