"""NCCL's own messages, versions 2.2 to 2.29: the three WARN heads and the three completion-error styles become one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from agent.formats.event import Event, match, pattern
from agent.formats.line import Line

# host:pid:tid [dev] (file:line | function:line | file:line (function))? (NCCL)? LEVEL message
HEAD = re.compile(
    r"(?P<host>[\w.-]+):(?P<pid>\d+):(?P<tid>\d+) \[(?P<dev>\d+)\] (?:(?P<where>\S+(?: \(\w+\))?) )??"
    r"(?:NCCL )?(?P<level>INFO|WARN|TRACE|ERROR|VERSION)\b ?"
)
IFACE = r"(?:interface )?(?:\[\d+\])?(?P<iface>[\w.@-]+):(?P<addr>[0-9a-fA-F.:]+)(?:%\w+)?<\d+>"
PATTERNS = (
    pattern("nccl.bootstrap", "Using", r"(?:Bootstrap|NET) ?: Using " + IFACE),
    pattern("nccl.socket", "NET/Socket : Using ", r"NET/Socket : Using " + IFACE),
    pattern("nccl.ib", "NET/IB : Using [", r"NET/IB : Using (?P<hcas>\[0\][^;]*)"),
    pattern("nccl.no_ib", "NET/IB : No device found", r"NET/IB : No device found"),
    pattern("nccl.network", "Using network ", r"Using network (?P<network>\S.*)"),
    pattern(
        "nccl.init",
        " nranks ",
        r"\brank (?P<rank>\d+) nranks (?P<nranks>\d+)(?: cudaDev (?P<dev>\d+))?(?: nvmlDev \d+)?"
        r"(?: busId (?P<bus>[0-9a-f]+))?(?:.*Init (?P<phase>START|COMPLETE))?",
    ),
    pattern("nccl.connected", "Connected all ", r"Connected all (?:rings|trees)"),
    pattern("nccl.channel", " via NET/", r": (?P<from>\d+)\[\w+\] -> (?P<to>\d+)\[\w+\].* via (?P<via>NET/\S+)"),
    pattern("nccl.p2p", " via P2P/", r" via (?P<via>P2P/\S.*)"),
    pattern("nccl.env", "set by environment to ", r"(?P<name>NCCL_\w+) set by environment to (?P<value>\S.*?)\.?$"),
    pattern("nccl.ifname", "NCCL_SOCKET_IFNAME set to ", r"NCCL_SOCKET_IFNAME set to (?P<value>\S+)"),
    pattern(
        "nccl.completion",
        "Got completion",
        r"Got completion(?: from peer (?P<peer>[^\s<]+)<\d+>)? with (?:error |status=)(?:\w+\()?(?P<status>\d+)"
        r"(?:.*?vendor[ _]err[ =](?P<vendor>\d+))?(?:.*?\bhca (?P<nic>[\w-]+))?",
    ),
    pattern(
        "nccl.async",
        "async ",
        r"(?:(?P<nic>[\w-]+):\d+ )?(?:Got )?(?:non-fatal |fatal )?async (?:error |fatal )?event"
        r"(?: on \w+ \(\S+\))? ?: ?(?P<what>\S.*)",
    ),
    pattern(
        "nccl.verbs",
        "Call to ibv_",
        r"Call to (?P<call>ibv_\w+) failed(?: with (?:error )?(?:\d+ )?(?P<error>[^,]*))?"
        r"(?:.*?on dev (?P<nic>[\w-]+))?(?:.*?local GID index (?P<gid_index>\d+))?"
        r"(?:.*?local GID (?P<gid>[0-9a-f:.]*:[0-9a-f:.]+))?(?:.*?remote GID (?P<remote_gid>[0-9a-f:.]+))?",
    ),
    pattern("nccl.open_device", "Unable to open device ", r"Unable to open device (?P<nic>[\w-]+)"),
    pattern(
        "nccl.connect",
        "onnect",
        r"[Cc](?:all to c)?onnect(?:ing)?(?: to (?P<peer>[^\s<]+)<(?P<port>\d+)>)?,? "
        r"(?:timeout|failed|returned) ?:? ?(?:\d+ ?\(?)?(?P<error>[A-Z][a-z]+ [a-z ]*[a-z])(?P<retry>.*retrying)?",
    ),
    pattern("nccl.closed", "onnection closed by", r"onnection closed by (?:remote )?peer (?P<peer>[^\s<]+)"),
    pattern(
        "nccl.versions",
        "Mismatched NCCL version",
        r"rank (?P<rank>\d+) version (?P<version>\d+) rank (?P<other>\d+) version (?P<other_version>\d+)",
    ),
    pattern("nccl.truncated", "Message truncated", r"Message truncated : received (?P<got>\d+) bytes instead of"),
    pattern(
        "nccl.duplicate",
        "Duplicate GPU detected",
        r"rank (?P<rank>\d+) and rank (?P<other>\d+) both on CUDA device (?P<bus>[0-9a-f]+)",
    ),
    pattern("nccl.call", ": opCount ", r"(?P<op>\w+): opCount (?P<seq>[0-9a-f]+) .*?count (?P<count>\d+)"),
    pattern("nccl.around", "Mismatched collective", r"at and around rank (?P<rank>\d+)"),
    pattern(
        "nccl.gdr_off",
        "Direct RDMA Disabled",
        r"Disabled for (?:HCA \d+ '(?P<nic>[^']+)'|GPU)(?:.*distance (?P<distance>\d+))?",
    ),
    pattern("nccl.cuda", "Cuda failure", r"Cuda failure (?P<code>\d+ )?'?(?P<error>[^']+)"),
    pattern("nccl.alloc", "Failed to CUDA", r"Failed to CUDA (?:calloc|malloc|host alloc)\S* (?P<bytes>\d+)"),
)
BARE = (
    pattern(
        "nccl.version",
        "NCCL version ",
        r"^(?:\[[\d :-]+\] )?(?:(?P<host>[\w.-]+):(?P<pid>\d+):\d+ \[(?P<dev>\d+)\] NCCL INFO )?"
        r"NCCL version (?P<version>\d+\.\d+\.\d+)\+",
    ),
)
BROAD = ("Using", "onnect", "async ")  # literals that many other lines hold; the narrower ones below stand for them
LITERALS = (
    *(p.literal for p in PATTERNS + BARE if p.literal not in BROAD),
    *(" WARN ", "Bootstrap", "NET : Using", "Call to connect", "async event", "async error event", "async fatal event"),
)


def read(line: Line) -> Iterator[Event]:
    """The events in one line. WARN lines always give a `nccl.warn` event with the message as detail."""
    yield from match(BARE, line, line.body)
    if "INFO " not in line.body and "WARN" not in line.body and "ERROR" not in line.body:
        return
    head = HEAD.search(line.body)
    if head is None:
        return
    said = {k: v for k, v in head.groupdict().items() if v is not None}
    message = line.body[head.end() :]
    if said["level"] in ("WARN", "ERROR"):
        yield Event("nccl.warn", line, said["host"], line.rank, int(said["dev"]), None, {**said, "message": message})
    yield from match(PATTERNS, line, message, said)
