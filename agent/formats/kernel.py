"""The kernel log: Xid and SXid, the OOM killer, links going down, address translation faults."""

from __future__ import annotations

from collections.abc import Iterator

from agent.formats.event import Event, match, pattern
from agent.formats.line import Line

PATTERNS = (
    pattern(
        "kernel.xid",
        " Xid (",
        r"Xid \((?:PCI:)?(?P<bus>[0-9a-fA-F:.]+)\): (?P<xid>\d+)\b(?:, pid='?(?P<pid>\d+))?,? ?(?P<what>.*)",
    ),
    pattern("kernel.sxid", "SXid (", r"SXid \((?:PCI:)?(?P<bus>[0-9a-fA-F:.]+)\): (?P<sxid>\d+), (?P<what>.*)"),
    pattern(
        "kernel.oom",
        "ut of memory: Kill",
        r"(?P<scope>Memory cgroup o|O)ut of memory: Kill(?:ed)? process (?P<pid>\d+) \((?P<name>[^)]+)\)",
    ),
    pattern("kernel.oom_reaper", "oom_reaper: reaped", r"reaped process (?P<pid>\d+)"),
    pattern(
        "kernel.port",
        "port ",
        r"(?:infiniband )?(?P<nic>mlx\d_\w+|irdma\w+|bnxt_re\w+|rocep\w+|ib\w+_\d+): .*\bport "
        r"\d+ is (?P<state>down|up|DOWN|UP)",
    ),
    pattern(
        "kernel.port",
        "Port ",
        r"(?P<nic>mlx\d_\w+|irdma\w+|bnxt_re\w+): .*[Pp]ort:? ?\d+ (?:changed state to|is) "
        r"(?P<state>[Dd]own|[Uu]p|DOWN|ACTIVE)",
    ),
    pattern(
        "kernel.link",
        "Link ",
        r"(?P<bus>[0-9a-f]{4}:[0-9a-f:.]+)[: ]+(?P<iface>[\w@.-]+):? .*?Link (?:is )?(?P<state>[Dd]own|[Uu]p)",
    ),
    pattern("kernel.link", ": link ", r"(?P<iface>(?:ib|eth|en)\w+): link (?P<state>down|up)\b"),
    pattern(
        "kernel.gpu_lost", "GPU is lost", r"(?:GPU |handle for GPU ?\d*:? ?)(?P<bus>[0-9a-fA-F:.]{7,})?.*GPU is lost"
    ),
    pattern("kernel.verbs_limit", "limits exceeded", r"(?P<bus>[0-9a-f]{4}:[0-9a-f:.]+).*status limits exceeded"),
)
LITERALS = (" Xid (", "SXid (", "ut of memory: Kill", "oom_reaper", "port 1 is", "port 2 is", "Link down", "Link Down",
            "link down", "GPU is lost", "limits exceeded", "changed state to")  # fmt: skip


def read(line: Line) -> Iterator[Event]:
    """The events in one line."""
    yield from match(PATTERNS, line, line.body)


def short_bus(bus: str) -> str:
    """A PCI address in NCCL's short form without leading zeros: 0000:2a:00.0, 2a000 and 00000000:2A:00.0 → 2a.

    Only the domain (where not zero) and the bus are kept: one GPU sits on one bus.
    """
    text = bus.lower()
    if ":" not in text:
        digits = text.removeprefix("0x")
        if len(digits) <= 2:
            return digits.lstrip("0") or "0"
        value = int(digits, 16)
        return _joined(value >> 20, (value >> 12) & 0xFF)
    parts = text.split(".")[0].split(":")
    domain = int(parts[0], 16) if len(parts) == 3 else 0
    return _joined(domain, int(parts[-2], 16))


def _joined(domain: int, number: int) -> str:
    return f"{domain:x}:{number:x}" if domain else f"{number:x}"
