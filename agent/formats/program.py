"""What the training program itself prints: exceptions, memory, progress, work that only one rank does."""

from __future__ import annotations

import re
from collections.abc import Iterator

from agent.formats.event import Event, Pattern, match, pattern
from agent.formats.line import Line

EXCEPTION = re.compile(
    r"^\s*(?:(?:[\w ]+: )?Scheduler hit an exception: )?"
    r"(?P<type>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Killed|Died|Timeout"
    r"|Expired))(?:: ?(?P<message>.*))?$"
)
# Exceptions that a healthy rank raises because another rank, or the network, failed first.
SYMPTOMS = re.compile(
    r"Dist(?:Backend|Store|Network|)Error|ChildFailedError|Rendezvous\w*Error|SignalException|ConnectionReset"
    r"|BrokenPipe|KeyboardInterrupt|SystemExit|EngineDead|EngineCore|ActorHandleNotFound|ActorDied|RayActorError"
    r"|UnknownError|CalledProcessError|NCCL error|ncclUnhandled|ncclRemoteError|ncclSystemError|ncclInternalError"
    r"|ncclInvalidUsage|unhandled (?:system|cuda) error|[Gg]loo|TCPStore|recvValue|socket has|Broken pipe"
    r"|(?i:nccl|store|socket|barrier|collective|rendezvous|rdzv|heartbeat|client).*(?i:timed? ?out)"
    r"|(?i:timed? ?out).*(?i:nccl|store|socket|barrier|collective|rendezvous|rdzv|client)|^TimeoutError: ?$"
    r"|Connection (?:reset|closed|refused) by peer|mismatch between collectives|server socket|Stop_?Iteration"
)
RAISED = re.compile(r"Error|Exception|Interrupt|Exit|Killed|Died|Timeout|Expired")
PATTERNS: tuple[Pattern, ...] = (
    pattern(
        "app.oom",
        "out of memory",
        r"CUDA out of memory\.?(?:.*?\bGPU (?P<gpu>\d+)\b)?(?:.*?Tried to allocate (?P<wanted>[\d.]+ \wiB))?",
    ),
    pattern("app.cuda", "CUDA error: ", r"CUDA error: (?P<error>[\w' -]+)"),
    pattern("app.cuda", "Cuda failure", r"^Cuda failure (?:\d+ )?'(?P<error>[^']+)'"),
    pattern(
        "app.bus_error",
        "killed by signal: ",
        r"\(pid\(?s?\)? ?(?P<pid>\d+)\) (?:is|are) killed by signal: (?P<signal>[\w ]+)",
    ),
    pattern(
        "app.bus_error", "exited unexpectedly", r"DataLoader worker \(pid\(s\) (?P<pid>\d+)[^)]*\) exited unexpectedly"
    ),
    pattern("app.step", "step ", r"\bstep (?P<step>\d+)\s?/\s?(?P<total>\d+)"),
    pattern("app.finished", "finished after", r"finished after (?P<steps>\d+) (?:steps|batches|iterations)"),
    pattern("app.keys", "logged keys", r"rank (?P<rank>\d+) logged keys (?P<keys>\[.*\])"),
    pattern("app.train", "iteration", r"\biteration +\d+ ?/ *\d+"),
    pattern("app.train", "loss", r"'loss': -?[\d.]+|\bloss[=:] ?-?[\d.]+"),
    pattern("app.train", "s/it", r"\d+/\d+ \[[\d:]+<[\d:]+, +[\d.]+s/it"),
    pattern("app.train", "it/s", r"\d+/\d+ \[[\d:]+<[\d:]+, +[\d.]+it/s"),
    pattern("app.train", "step=", r"\bstep=\d+, skipped="),
)
# A verb of preparation, saving or loading, then a figure of progress: work during which a rank joins no collective.
WORK = re.compile(
    r"(?i)(?:tokeniz|token(?:ise|ising)|pre-?process|index|split|cach|map|filter|pack|shuffl|build|generat|sav(?:e|ing)\b|writ"
    r"|checkpoint shards|load|download|upload|merg|convert|export|copy|compil|evaluat|validat|decod|unpack|extract|scan"
    r"|检查|预处理|分词|加载|保存|处理|编码|索引|下载|评估|构建|写入)"
)
FIGURE = re.compile(r"\d+ ?/ ?\d+|\d+(?:\.\d+)? ?%|\d+ (?:files|shards|examples|rows|samples|条|GB|GiB|MB)|examples/s")
BEGUN = re.compile(
    r"(?i)main process (?:is |first)|主进程|rank ?0 (?:only|is )|other (?:ranks|processes) wait|其它进程等待"
)
STEP = re.compile(r"NCCL|\bloss\b|frame #|Watchdog|grad_norm")
# A line that is nothing but a step's report; the commonest lines by far, so the other readers need not see them.
STEP_LINE = re.compile(
    r"\s*(?:\{'loss': [^{}]*\}|\[[\d :-]{19}\] iteration +\d+/ *\d+ \|[^\[\]]*\||\d+%\|[^|]*\| \d+/\d+ \[[^\]]*\])\s*"
)
LITERALS = ("Error", "Exception", "out of memory", "killed by signal", "exited unexpectedly", "finished after",
            "logged keys", "okeniz", "ndexing", "indexed", "Saving", "saving", "Load weight", "reprocess", "Evaluating",
            "Downloading", "Map (", "Filter (", "Generating", "examples/s", "checkpoint shards",
            "主进程", "分词", "预处理")  # fmt: skip


def read(line: Line) -> Iterator[Event]:
    """The events in one line."""
    yield from match(PATTERNS, line, line.body)
    if RAISED.search(line.body) is not None and (m := EXCEPTION.match(line.body)) is not None:
        yield Event("app.exception", line, line.node, line.rank, detail=_said(m))
    yield from _work(line)


def _said(m: re.Match[str]) -> dict[str, str]:
    said = {"type": m["type"].rpartition(".")[2], "message": m["message"] or ""}
    said["symptom"] = "yes" if SYMPTOMS.search(f"{said['type']}: {said['message']}") else ""
    return said


def _work(line: Line) -> Iterator[Event]:
    body = line.body
    if line.kernel or STEP.search(body) is not None:
        return
    if BEGUN.search(body) or (FIGURE.search(body) and WORK.search(body)):
        yield Event("app.work", line, line.node, line.rank, detail={"what": body.strip()})
