"""torch.distributed: three generations of the watchdog, the store, gloo and collective fingerprints."""

from __future__ import annotations

from collections.abc import Iterator

from agent.formats.event import Event, match, pattern
from agent.formats.line import Line

PATTERNS = (
    pattern(
        "c10d.timeout",
        "Watchdog caught collective operation timeout",
        r"(?:\[|PG \S+ (?:PG GUID \S+ )?)Rank (?P<rank>\d+)\] Watchdog caught collective operation timeout"
        r"(?:: Work\w+\((?:SeqNum=(?P<seq>\d+), )?OpType=(?P<op>\w+)"
        r"(?:, NumelIn=(?P<numel>\d+))?(?:, NumelOut=(?P<numel_out>\d+))?(?:, TensorShape=(?P<shape>\[[^\]]*\]))?"
        r"(?:, Timeout\(ms\)=(?P<timeout_ms>\d+))?)?(?:.*?ran for (?P<ran_ms>\d+))?",
    ),
    pattern(
        "c10d.enqueued",
        "ast enqueued",
        r"Rank (?P<rank>\d+)\].*[Ll]ast enqueued(?: NCCL)? work: (?P<enqueued>-?\d+), "
        r"last completed(?: NCCL)? work: (?P<completed>-?\d+)",
    ),
    pattern("c10d.alive", "dump signal", r"Rank (?P<rank>\d+)\].*(?:Observed|Received).*dump signal"),
    pattern(
        "c10d.heartbeat",
        "eartbeat monitor timed out",
        r"Rank (?P<rank>\d+)\].*eartbeat monitor timed out",
    ),
    pattern(
        "c10d.heartbeat",
        "watchdog got stuck",
        r"Rank (?P<rank>\d+)\].*watchdog got stuck for (?P<stuck_s>\d+) seconds",
    ),
    pattern("c10d.gil", "Could not acquire GIL", r"Rank (?P<rank>\d+)\].*Could not acquire GIL"),
    pattern(
        "c10d.async",
        "raised the following async exception",
        r"Rank (?P<rank>\d+)\].*raised the following async exception: (?P<error>.*)",
    ),
    pattern(
        "c10d.store_lost",
        "recvValue",
        r"recvValue\w* failed on (?:.*remote=\[(?P<peer>[^\]]+)\])?",
    ),
    pattern("c10d.store_lost", "Connection was likely closed", r"Connection was likely closed"),
    pattern("c10d.store_lost", "sendBytes failed", r"sendBytes failed on (?:.*remote=\[(?P<peer>[^\]]+)\])?"),
    pattern("c10d.clients", "clients joined", r"(?P<joined>\d+)/(?P<expected>\d+) clients joined"),
    pattern("c10d.store_port", "server has started on port", r"server has started on port = (?P<port>\d+)"),
    pattern(
        "c10d.client_failed",
        "client socket has failed to connect to",
        r"connect to \[?(?:::ffff:)?(?P<peer>[^\]\s]+?)\]?:(?P<port>\d+) \(errno: (?P<errno>\d+)",
    ),
    pattern(
        "c10d.client_timeout",
        "client socket has timed out",
        r"timed out after (?P<after>\d+)(?:ms|s) while trying to connect to \((?P<peer>[^,]+), (?P<port>\d+)\)",
    ),
    pattern("c10d.client_timeout", "store has failed", r"connection to the C10d store has failed"),
    pattern(
        "c10d.fingerprint",
        "Detected mismatch between collectives",
        r"Rank (?P<rank>\d+) is running collective: (?P<print>.*?),? but Rank (?P<other>\d+) is running "
        r"collective: (?P<other_print>.*)",
    ),
    pattern(
        "c10d.fingerprint",
        "Detected mismatch between collectives",
        r"^(?!.* but Rank \d).*?Rank (?P<rank>\d+) is running collective: (?P<print>.*)",
    ),
    pattern(
        "c10d.barrier",
        "failed to pass monitoredBarrier",
        r"Ranks? (?P<ranks>\d+(?:, \d+)*) failed to pass monitoredBarrier in (?P<timeout_ms>\d+) ms",
    ),
    pattern(
        "c10d.gloo",
        "loo connectFullMesh failed",
        r"onnectFullMesh failed with"
        r"(?:.*remote=\[(?P<peer>[^\]]+)\](?::(?P<port>\d+)(?P<pair>\$\d+)?)?)?",
    ),
    pattern("c10d.gloo_reset", "onnection closed by peer", r"onnection closed by peer \[(?P<peer>[^\]]+)\]"),
    pattern("c10d.gloo_reset", "Read error [", r"Read error \[(?P<peer>[^\]]+)\]\S*: Connection reset"),
    pattern(
        "c10d.gloo_size",
        "op.preamble.length",
        r"op\.preamble\.length <= op\.nbytes\. (?P<got>\d+) vs "
        r"(?P<wanted>\d+)",
    ),
    pattern("c10d.gloo_size", "data size doesn't match", r"Received data size doesn't match expected size"),
    pattern(
        "c10d.frame",
        "distributed_c10d.py",
        r'distributed_c10d\.py", line \d+, in '
        r"(?P<op>all_\w+|barrier|broadcast\w*|reduce\w*|gather\w*|scatter\w*|send|recv)",
    ),
    pattern("c10d.gloo_timeout", "Timed out waiting", r"Timed out waiting (?P<waited_ms>\d+)ms for (?:recv|send)"),
    pattern(
        "c10d.unique_id",
        "retrieving ncclUniqueId",
        r"\[(?P<rank>\d+)\] is setting up NCCL communicator and retrieving ncclUniqueId from \[(?P<other>\d+)\]",
    ),
    pattern("c10d.world", "world size", r"(?i)\brank[: ]+(?P<rank>\d+)\b.*world size:? (?P<world>\d+)"),
    pattern("c10d.world", "world_size", r"(?i)\brank[:= ]+(?P<rank>\d+)\b.*(?<!local_)world_size[:=] ?(?P<world>\d+)"),
    pattern("c10d.world", "world_size", r"(?<!local_)world_size[:=] ?(?P<world>\d+)"),
    pattern("c10d.local_world", "local_world_size", r"local_world_size[:=] ?(?P<local_world>\d+)"),
)
LITERALS = tuple(dict.fromkeys(p.literal for p in PATTERNS))


def read(line: Line) -> Iterator[Event]:
    """The events in one line."""
    yield from match(PATTERNS, line, line.body)
