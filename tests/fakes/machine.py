"""A root folder with the proc and sys of a made-up machine: real files, as a kernel would show them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

DISKSTATS = "   8 {n} {name} 100 0 {read} 10 50 0 {written} 20 0 30 30 0 0 0 0 0 0\n"
NET_HEAD = (
    "Inter-|   Receive        |  Transmit\n face |bytes    packets errs drop fifo frame compressed multicast|bytes …\n"
)
CALM_ERRORS = ("symbol_error", "port_rcv_errors", "port_xmit_discards", "local_link_integrity_errors")


@dataclass(frozen=True)
class FakeMachine:
    root: Path

    @classmethod
    def made(cls, root: Path) -> FakeMachine:
        machine = cls(root)
        machine.write(
            "proc/meminfo", "MemTotal: 1000000 kB\nMemAvailable: 600000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"
        )
        machine.write("proc/self/mounts", "/dev/nvme0n1p2 / ext4 rw 0 0\ntmpfs /dev/shm tmpfs rw 0 0\n")
        machine.processors()
        machine.network({})
        (root / "dev/shm").mkdir(parents=True)
        return machine

    def write(self, name: str, text: object) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n" if not isinstance(text, str) else text)
        return path

    def processors(self, user: int = 0, idle: int = 0, steal: int = 0) -> None:
        self.write("proc/stat", f"cpu  {user} 0 0 {idle} 0 0 0 {steal} 0 0\ncpu0 {user} 0 0 {idle} 0 0 0 {steal} 0 0\n")

    def drives(self, sectors: dict[str, tuple[int, int]]) -> None:
        """Sectors read and written by name; with a device behind those of which a kernel has one."""
        rows = (DISKSTATS.format(n=n, name=name, read=r, written=w) for n, (name, (r, w)) in enumerate(sectors.items()))
        self.write("proc/diskstats", "".join(rows))
        for name in sectors:
            whole = not name.startswith("nvme") or "p" not in name
            folder = self.root / "sys/block" / name / ("queue" if name.startswith(("dm", "loop", "md")) else "device")
            if whole:
                folder.mkdir(parents=True, exist_ok=True)

    def network(self, rows: dict[str, tuple[int, int, int]]) -> None:
        """Bytes received and sent, and drops, by name."""
        table = "".join(
            f"{name:>6}: {rx} 1 0 {lost} 0 0 0 0 {tx} 1 0 0 0 0 0 0\n" for name, (rx, tx, lost) in rows.items()
        )
        self.write("proc/net/dev", NET_HEAD + table)

    def interface(self, name: str, real: bool = True, state: str = "up", speed: int | None = 100_000) -> None:
        place = f"sys/class/net/{name}"
        self.write(f"{place}/operstate", f"{state}\n")
        self.write(f"{place}/mtu", 9000)
        if speed is not None:
            self.write(f"{place}/speed", speed)
        if real:
            (self.root / place / "device").mkdir(exist_ok=True)

    def port(self, card: str, state: str = "4: ACTIVE", layer: str = "InfiniBand", **counters: object) -> Path:
        """A ConnectX's first port, everything at nought but for `counters`; those of congestion only for Ethernet."""
        place = f"sys/class/infiniband/{card}/ports/1"
        up = state == "4: ACTIVE"
        self.write(f"{place}/state", f"{state}\n")
        self.write(f"{place}/phys_state", "5: LinkUp\n" if up else "3: Disabled\n")
        self.write(f"{place}/link_layer", f"{layer}\n")
        self.write(f"{place}/rate", "400 Gb/sec (4X NDR)\n" if up else "10 Gb/sec (4X SDR)\n")
        for name in ("link_downed", "port_rcv_data", "port_xmit_data", *CALM_ERRORS):
            self.write(f"{place}/counters/{name}", counters.get(name, 0))
        for name in ("np_cnp_sent", "out_of_sequence") if layer == "Ethernet" else ():
            self.write(f"{place}/hw_counters/{name}", counters.get(name, 0))
        if layer == "Ethernet":
            self.write(f"{place}/gid_attrs/ndevs/0", f"{card}np0\n")
        return self.root / place

    def unplug(self, card: str) -> None:
        shutil.rmtree(self.root / "sys/class/infiniband" / card)
