"""The network interfaces through which the machine is reached: who they are, how busy, how fast they could be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from agent.aside import Aside
from agent.growth import Growth
from agent.wire import Interface

VIRTUAL = ("lo", "docker", "veth", "br-", "virbr", "cni", "flannel", "tunl", "ifb", "dummy", "bonding_masters")
"""Interfaces whose traffic is counted again on a real one, or never leaves the machine."""
SPAN_S = 5.0
FACTS_EVERY_S = 10.0
Row = tuple[int, int, int]
"""Bytes received and sent, and what went wrong in either direction"""


class Interfaces:
    """Read once a tick."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.folder, self.table = root / "sys/class/net", root / "proc/net/dev"
        self.now, self.lately = Growth(0.0), Growth(SPAN_S)
        self.speeds: Aside[dict[str, int]] = Aside(self.ask_speeds, {}, FACTS_EVERY_S)
        self.real: frozenset[str] = frozenset()
        self.facts: dict[str, tuple[bool | None, int | None]] = {}
        self.facts_due_s = 0.0
        self.told: dict[str, Interface] = {}

    def look(self, now_s: float) -> None:
        """`now_s`: monotonic seconds. Raises OSError where the kernel has no such table."""
        rows = dict(counted(self.table.read_text().splitlines()[2:]))
        if now_s >= self.facts_due_s:
            self.real = leaving(self.folder, rows)
            self.facts = {name: (up(self.folder / name), number(self.folder / name / "mtu")) for name in self.real}
            self.facts_due_s = now_s + FACTS_EVERY_S
        rows = {name: row for name, row in rows.items() if name in self.real}
        self.now.look(now_s, lambda: {name: row[:2] for name, row in rows.items()})
        speeds = self.speeds.look(now_s)
        if self.lately.look(now_s, lambda: {name: row[:2] for name, row in rows.items()}):
            self.told = {name: self.one(name, row[2], speeds.get(name)) for name, row in rows.items()}

    def one(self, name: str, errors: int, speed: int | None) -> Interface:
        at_work, mtu = self.facts.get(name, (None, None))
        return Interface(name, at_work, self.lately.of(name, 0), self.lately.of(name, 1), speed, mtu, errors)

    def ask_speeds(self) -> dict[str, int]:
        """Bits per second of those that are up and tell it.

        The kernel takes the lock of all its network for this, and asks the card: one that hangs lets nobody pass.
        """
        megabits = {name: number(self.folder / name / "speed") for name, (at_work, _) in self.facts.items() if at_work}
        return {name: value * 1_000_000 for name, value in megabits.items() if value is not None and value > 0}


def counted(lines: Iterable[str]) -> Iterator[tuple[str, Row]]:
    """Rows of /proc/net/dev; its columns are those of net/core/net-procfs.c, eight for each direction."""
    for line in lines:
        name, _, figures = line.partition(":")
        fields = figures.split()
        if len(fields) >= 12:
            lost = sum(int(fields[i]) for i in (2, 3, 10, 11))
            yield name.strip(), (int(fields[0]), int(fields[8]), lost)


def leaving(folder: Path, names: Iterable[str]) -> frozenset[str]:
    """Those with a device behind them: bonds, bridges and VLANs pass on what one of these carried.

    Where none has one (a container's end of a pair), all that are not virtual by their name.
    """
    real = frozenset(name for name in names if (folder / name / "device").exists())
    return real or frozenset(name for name in names if not name.startswith(VIRTUAL))


def up(folder: Path) -> bool | None:
    """As the kernel judges it; None where its driver does not tell."""
    try:
        said = (folder / "operstate").read_text().strip()
    except OSError:
        return None
    return None if said == "unknown" else said == "up"


def number(path: Path) -> int | None:
    """Of a file with one; -1 is how a driver says that it does not know."""
    try:
        value = int(path.read_text())
    except (OSError, ValueError):
        return None
    return value if 0 <= value < (1 << 32) - 1 else None
