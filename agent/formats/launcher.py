"""Launchers and schedulers: torchelastic, DeepSpeed, MPI, Slurm, Kubernetes, and what they say about an exit."""

from __future__ import annotations

from collections.abc import Iterator

from agent.formats.event import Event, match, pattern
from agent.formats.line import Document, Line

PATTERNS = (
    pattern(
        "exit.elastic",
        "failed (exitcode:",
        r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<local_rank>\d+) \(pid: (?P<pid>\d+)\)",
    ),
    pattern("exit.sigterm", "closing signal SIGTERM", r"Sending process (?P<pid>\d+) closing signal"),
    pattern("exit.deepspeed", "exits with return code", r"exits with return code = (?P<code>-?\d+)"),
    pattern(
        "exit.slurm",
        "task",
        r"error: (?P<host>[\w.-]+): tasks? (?P<tasks>[\d,-]+): (?P<what>.+)",
    ),
    pattern(
        "exit.mpi",
        "mpirun noticed that process rank",
        r"process rank (?P<rank>\d+)(?: with PID (?P<pid>\d+))?(?: on node (?P<host>[\w.-]+))? "
        r"exited on signal (?P<signal>\d+)",
    ),
    pattern("exit.killed", "oom_kill ", r"^oom_kill [1-9]"),
    pattern("exit.killed", "OOMKilled", r"OOMKilled"),
    pattern(
        "exit.killed",
        "oom",
        r"(?i)(?P<what>(?:detected \d+ )?oom[-_ ]kill(?:ed|er)? event\S*.*|cgroup out-of-memory handler)",
    ),
    pattern("exit.killed", "out-of-memory handler", r"cgroup out-of-memory handler"),
    pattern(
        "exit.ray_oom",
        "memory on the node",
        r"(?i)workers? (?:killed|were killed) due to (?:the node running low on )?memory",
    ),
    pattern("exit.nodefail", "NODE", r"(?i)CANCELLED AT \S+ DUE TO NODE FAILURE|NODE_FAIL"),
    pattern("exit.notready", "NotReady", r"\bNotReady\b"),
    pattern("exit.segv", "egmentation fault", r"[Ss]egmentation fault"),
    pattern("exit.nodes", "--node_rank", r"--node_rank[= ](?P<node_rank>\d+)"),
    pattern("exit.nproc", "--nproc", r"--nproc[-_]per[-_]node[= ](?P<nproc>\d+)"),
)
LITERALS = ("failed (exitcode:", "closing signal SIGTERM", "exits with return code", "error: ", "mpirun noticed",
            "OOMKilled", "oom_kill event", "oom-kill event", "out-of-memory handler", "NODE FAILURE", "NODE_FAIL",
            "egmentation fault", "--node_rank", "--nproc",
            "  host      : ", "  rank      : ", "  exitcode  : ")  # fmt: skip


def read(line: Line) -> Iterator[Event]:
    """The events in one line."""
    yield from match(PATTERNS, line, line.body)


def failures(document: Document) -> Iterator[Event]:
    """torchelastic's failure table, one `exit.report` per entry: host, rank, local rank, exit code, pid."""
    said: dict[str, str] = {}
    for line in document.lines:
        name, _, value = line.body.partition(" : ")
        name = name.strip()
        if name not in ("host", "rank", "exitcode"):
            continue
        said.update(_entry(name, value))
        if name == "exitcode" and "rank" in said:
            yield Event("exit.report", line, said.get("host"), int(said["rank"]), None, None, dict(said))
            said = {}


def _entry(name: str, value: str) -> dict[str, str]:
    words = value.replace("(", " ").replace(")", " ").split()
    if not words:
        return {}
    if name == "host":
        return {"host": words[0]}
    if name == "rank":
        local = {"local_rank": words[2]} if len(words) > 2 else {}
        return {"rank": words[0], **local} if words[0].isdecimal() else {}
    return {"code": words[0], **({"pid": words[2]} if len(words) > 2 else {})}


def ranks_of(tasks: str) -> list[int]:
    """Slurm's task list: "8,10-12" → [8, 10, 11, 12]."""
    found: list[int] = []
    for part in tasks.split(","):
        low, _, high = part.partition("-")
        if low.isdecimal() and (not high or high.isdecimal()):
            found.extend(range(int(low), min(int(high or low), int(low) + 65536) + 1))
    return found
