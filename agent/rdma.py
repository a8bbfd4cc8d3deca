"""RDMA ports from /sys/class/infiniband. Each file may wait for a card's firmware, so each card is asked aside."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from agent.aside import Aside
from agent.growth import Growth
from agent.wire import Port

EVERY_S = 5.0
RATES_S = 10.0
"""Those of eight busy ports tremble all the time, and each is news to every console."""
WHY = {"SILENT": "does not answer", "GONE": "its device is not there any more"}
SILENT_S = 15.0
"""Well cards answer within milliseconds; after this one of them is as good as down."""
WORD_BYTES = 4
"""port_rcv_data and port_xmit_data are octets divided by 4, for RoCE too
(Documentation/ABI/stable/sysfs-class-infiniband; drivers/infiniband/hw/mlx5/mad.c shifts its octets by 2)."""
STUCK = (1 << 32) - 1
"""Where a 32-bit counter stays once it is there (InfiniBand's PortCounters); 17 GB fill one of words."""
TRAFFIC = (("port_rcv_data", "rx_bytes"), ("port_xmit_data", "tx_bytes"))
"""In counters/, and in hw_counters/ where a card has only those (EFA, bnxt_re)"""
ERRORS = (
    "symbol_error",
    "port_rcv_errors",
    "port_xmit_discards",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "link_error_recovery",
)
CONGESTION = ("np_cnp_sent", "rp_cnp_handled", "np_ecn_marked_roce_packets", "out_of_sequence")
"""mlx5's; other cards have none of these names"""


class Rdma:
    """Read once a tick. `root` holds its sys; `clock` tells monotonic seconds."""

    def __init__(self, root: Path = Path("/"), clock: Callable[[], float] = time.monotonic) -> None:
        self.folder, self.clock = root / "sys/class/infiniband", clock
        self.cards: dict[str, Card] = {}

    def read(self) -> dict[str, Port]:
        """By device/port."""
        there = listed(self.folder)
        for name in there:
            if name not in self.cards:
                self.cards[name] = Card(self.folder / name, self.clock)
        self.cards = {name: card for name, card in self.cards.items() if name in there or card.was_active}
        shown = (card.look() if name in there else card.gone() for name, card in self.cards.items())
        return {f"{port.device}/{port.port}": port for ports in shown for port in ports}


class Card:
    """One device; what it says is put together on the thread that asks it."""

    def __init__(self, folder: Path, clock: Callable[[], float]) -> None:
        self.folder, self.name, self.clock = folder, folder.name, clock
        self.growth = Growth(RATES_S)
        self.counted: dict[Path, tuple[str, ...]] = {}
        self.was_active: frozenset[int] = frozenset()
        self.aside: Aside[tuple[Port, ...]] = Aside(self.ask, (), EVERY_S)

    def look(self) -> tuple[Port, ...]:
        now_s = self.clock()
        ports = self.aside.look(now_s)
        if self.aside.silent_s(now_s) < SILENT_S:
            return ports
        return self.without_figures(ports or (Port(self.name, 1),), "SILENT")

    def gone(self) -> tuple[Port, ...]:
        """A card that falls off its bus takes its folder along; whoever used it wants to know."""
        return self.without_figures((one for one in self.aside.answer if one.port in self.was_active), "GONE")

    def without_figures(self, ports: Iterable[Port], state: str) -> tuple[Port, ...]:
        return tuple(
            Port(
                self.name,
                one.port,
                state,
                WHY[state],
                one.link_layer,
                None,
                one.interface,
                down=self.down(one.port, state),
            )
            for one in ports
        )

    def down(self, port: int, state: str) -> int | None:
        """None for one that nobody has seen active: it may be meant so."""
        return 0 if state.startswith("ACTIVE") else 1 if port in self.was_active else None

    def ask(self) -> tuple[Port, ...]:
        folders = [self.folder / "ports" / name for name in listed(self.folder / "ports") if name.isdecimal()]
        sources = {folder: [source(folder, names) for names in TRAFFIC] for folder in folders}
        known = [one for pair in sources.values() for one in pair if one is not None]
        self.growth.look(self.clock(), lambda: {str(path): (value,) for path, value in known})
        return tuple(self.port(folder, *(self.pace(one) for one in sources[folder])) for folder in folders)

    def pace(self, found: tuple[Path, int] | None) -> float | None:
        return self.growth.of(str(found[0])) if found is not None else None

    def port(self, folder: Path, rx: float | None, tx: float | None) -> Port:
        n = int(folder.name)
        state = named(folder / "state")
        if state.startswith("ACTIVE"):
            self.was_active |= {n}
        one = Port(
            self.name,
            n,
            state,
            named(folder / "phys_state"),
            word(folder / "link_layer"),
            interface=interface(folder),
            rx_bytes_s=rx,
            tx_bytes_s=tx,
            down=self.down(n, state),
            link_downed=whole(folder / "counters/link_downed"),
            errors=self.summed(folder / "counters", ERRORS),
            congestion=calm(self.summed(folder / "hw_counters", CONGESTION)),
        )
        if not state:
            return self.without_figures((one,), "SILENT")[0]
        return replace(one, rate_bits_s=bits(word(folder / "rate"))) if one.down == 0 else one

    def summed(self, folder: Path, names: tuple[str, ...]) -> int | None:
        """Of those that this card has. One of them missing once makes the sum unknown, not smaller."""
        mine = self.counted.get(folder)
        values = {name: whole(folder / name) for name in mine or names}
        found = {name: value for name, value in values.items() if value is not None}
        if mine is None and found:
            self.counted[folder] = tuple(found)
        return sum(found.values()) if found and len(found) == len(mine or found) else None


def source(folder: Path, names: tuple[str, str]) -> tuple[Path, int] | None:
    """The counter of a port's traffic and its bytes; None where there is none, or where it is stuck at its end."""
    words, octets = folder / "counters" / names[0], folder / "hw_counters" / names[1]
    value = whole(words)
    if value is not None:
        return (words, value * WORD_BYTES) if value != STUCK else None
    value = whole(octets)
    return (octets, value) if value is not None else None


def interface(folder: Path) -> str:
    """Of RoCE as its first address names it, of InfiniBand the IP one of the same card and port (dev_port from 0)."""
    name = word(folder / "gid_attrs/ndevs/0")
    nets = folder.parent.parent / "device/net"
    if name:
        return name
    found = listed(nets)
    same = [one for one in found if whole(nets / one / "dev_port") == int(folder.name) - 1]
    return (same or (found if len(found) == 1 else [""]))[0]


def bits(rate: str) -> int | None:
    """Of `400 Gb/sec (4X NDR)`, `2.5 Gb/sec (1X SDR)`."""
    value, _, unit = rate.partition(" ")
    try:
        return int(float(value) * 1e9) if unit.startswith("Gb/sec") else None
    except ValueError:
        return None


def calm(count: int | None) -> int | None:
    """Three digits: under load these grow all the time."""
    return int(float(f"{count:.2e}")) if count is not None else None


def listed(folder: Path) -> list[str]:
    try:
        return sorted(one.name for one in folder.iterdir())
    except OSError:
        return []


def named(path: Path) -> str:
    """ACTIVE of `4: ACTIVE`."""
    return word(path).partition(": ")[2]


def word(path: Path) -> str:
    """Empty where it cannot be read: an error is how a card says that it has no such thing."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def whole(path: Path) -> int | None:
    """None also for `N/A (no PMA)`."""
    text = word(path)
    return int(text) if text.isdecimal() else None
