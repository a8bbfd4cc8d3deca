"""What a node knows about itself: the content of a Level. `None` means not available; units stand in the names."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Disk:
    mount: str
    total_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface that leaves the machine, InfiniBand's IP ones included."""

    name: str
    up: bool | None = None
    rx_bytes_s: float | None = None
    tx_bytes_s: float | None = None
    speed_bits_s: int | None = None
    mtu: int | None = None
    errors: int | None = None
    """Received and sent, dropped ones included, since boot"""


@dataclass(frozen=True, slots=True)
class Port:
    """One RDMA port as sysfs tells it."""

    device: str
    port: int
    state: str = ""
    """ACTIVE | DOWN | INIT | ARMED … as sysfs says; SILENT: it does not answer; GONE: its device is not there now"""
    physical: str = ""
    """LinkUp | Disabled | Polling …; of a port that is SILENT or GONE what that means"""
    link_layer: str = ""
    """InfiniBand | Ethernet"""
    rate_bits_s: int | None = None
    """While it is active"""
    interface: str = ""
    """The network interface on it, where there is one"""
    rx_bytes_s: float | None = None
    tx_bytes_s: float | None = None
    down: int | None = None
    """0: active; 1: was so since the agent looks, and is not any more; None: never seen active, which may be meant"""
    link_downed: int | None = None
    """How often the link went down since the counter was cleared"""
    errors: int | None = None
    """Symbol errors, receive errors, discards, integrity errors, buffer overruns, link recoveries together"""
    congestion: int | None = None
    """ECN marks, CNPs and out-of-sequence packets together: signs of a crowded fabric, no faults by themselves"""


@dataclass(frozen=True, slots=True)
class Host:
    """The machine. Rates are per second over the last tick, those of disks and single interfaces over some seconds."""

    hostname: str = ""
    cpu_percent: float | None = None
    cpu_count: int | None = None
    cpu_steal_percent: float | None = None
    """What the hypervisor gave to others while this machine wanted it"""
    load_1: float | None = None
    ram_total_bytes: int | None = None
    ram_used_bytes: int | None = None
    swap_used_bytes: int | None = None
    net_rx_bytes_s: float | None = None
    net_tx_bytes_s: float | None = None
    disk_read_bytes_s: float | None = None
    disk_write_bytes_s: float | None = None
    shm_total_bytes: int | None = None
    shm_used_bytes: int | None = None
    """/dev/shm, through which loader workers and NCCL pass data"""
    uptime_s: float | None = None
    disks: tuple[Disk, ...] = ()
    interfaces: dict[str, Interface] = field(default_factory=dict)
    """By name: what changes is sent, not the whole list"""
    driver_version: str = ""
    cuda_version: str = ""
    """The newest that this driver serves"""
    cordon: str = ""
    """Who keeps new runs away, since when and why; empty: nobody"""
    gpu_note: str = ""
    """Why there are no GPU figures, in words: no driver, driver/library mismatch, probe not answering…

    Empty while there are none either: they have not been looked for yet.
    """


@dataclass(frozen=True, slots=True)
class GpuProcess:
    pid: int
    memory_bytes: int | None = None
    name: str = ""
    user: str = ""
    container: str = ""
    """Short id of the container it runs in, as its cgroup names it"""
    run: str | None = None
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class MigInstance:
    uuid: str
    profile: str = ""
    """As its name ends: 3g.40gb"""
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as NVML tells it; identity is `uuid`, never the index."""

    uuid: str
    index: int
    name: str = ""
    pci_bus_id: str = ""
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    """Held back by driver and firmware; part of total, of neither used nor free"""
    bar1_total_bytes: int | None = None
    bar1_used_bytes: int | None = None
    utilisation_percent: float | None = None
    """Share of the time in which any kernel ran: 100 while one block spins"""
    sm_active_percent: float | None = None
    """Share of the SMs with a warp on them, through GPM; Hopper and newer"""
    encoder_percent: float | None = None
    decoder_percent: float | None = None
    temperature_c: float | None = None
    temperature_memory_c: float | None = None
    temperature_slowdown_c: float | None = None
    """Where this card slows itself down"""
    power_w: float | None = None
    power_limit_w: float | None = None
    sm_clock_mhz: float | None = None
    sm_clock_max_mhz: float | None = None
    memory_clock_mhz: float | None = None
    throttle: tuple[str, ...] = ()
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    """Both over the card's life"""
    remapped_rows: int | None = None
    """For uncorrectable errors; cards before Ampere retire pages instead"""
    remap_pending: int | None = None
    """1: rows, or pages, that a reset will take out of use"""
    remap_failed: int | None = None
    """1: no spare row was left; the card is to be exchanged"""
    retired_pages: int | None = None
    pcie_gen: int | None = None
    pcie_gen_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    pcie_replays: int | None = None
    """Generation falls while a card idles; only one below its maximum under load is slow"""
    nvlinks: int | None = None
    """How many NVLinks the card has; 0 where it has none"""
    nvlinks_down: int | None = None
    nvlink_errors: int | None = None
    """Replays, recoveries and CRC errors of all links together"""
    mig: tuple[MigInstance, ...] = ()
    mig_mode: bool | None = None
    persistence: bool | None = None
    serial: str = ""
    vbios: str = ""
    xid: int | None = None
    """The newest Xid since the agent looks; None: none came, or nobody could tell"""
    xids: int | None = None
    """How many came"""
    xids_hardware: int | None = None
    """How many of them the card itself is to blame for, not the program on it"""
    xid_fault: str = ""
    """The newest of those in words, with what to do"""
    processes: tuple[GpuProcess, ...] = ()
    lost: str = ""
    """Non-empty when this card does not answer: NVML's own words."""

    @property
    def memory_free_bytes(self) -> int | None:
        """What a run can still have; what driver and firmware hold back is neither used nor free."""
        if self.memory_total_bytes is None or self.memory_used_bytes is None:
            return None
        return max(0, self.memory_total_bytes - self.memory_used_bytes - (self.memory_reserved_bytes or 0))

    @property
    def simulated(self) -> bool:
        """The driver itself calls this card simulated; every screen that shows it must say so."""
        return "SIMULATED" in self.name


@dataclass(frozen=True, slots=True)
class RunState:
    """One run, as short as a list needs it. Charts and logs are asked for by order."""

    run: str
    name: str
    phase: str
    """starting | loading | training | saving | stopping | ended | unknown"""
    reason: str | None = None
    """Once ended: completed | stopped | killed | failed | lost"""
    detail: str = ""
    step: int | None = None
    total_steps: int | None = None
    branch: int = 0
    loss: float | None = None
    learning_rate: float | None = None
    tokens_per_s: float | None = None
    step_time_s: float | None = None
    memory_bytes: tuple[int, ...] = ()
    world_size: int = 1
    model: str = ""
    method: str = ""
    gpu_uuids: tuple[str, ...] = ()
    started_unix: float | None = None
    ended_unix: float | None = None
    last_progress_unix: float | None = None
    snapshot_step: int | None = None
    stalled_s: float | None = None
    """Seconds beyond when the next step was due; None: not stalled, or not to be known in this phase"""


@dataclass(frozen=True, slots=True)
class Alert:
    """A rule that holds for a subject. `id` is the same for as long as it fires, and the next time too."""

    id: str
    rule: str
    severity: str
    """warn | critical"""
    text: str
    value: str = ""
    """With its unit"""
    subject: str = ""
    """UUID, run id or mount; empty for the machine itself"""
    run: str | None = None
    since_unix: float | None = None
    acked_by: str = ""
    muted_until_unix: float | None = None


@dataclass(frozen=True, slots=True)
class NodeState:
    host: Host = field(default_factory=Host)
    gpus: dict[str, Gpu] = field(default_factory=dict)
    """By UUID."""
    runs: dict[str, RunState] = field(default_factory=dict)
    """By run id."""
    gpu_age_s: float | None = None
    """Seconds since the GPU figures were read; grows while the probe is stuck."""
    alerts: dict[str, Alert] = field(default_factory=dict)
    """Those that fire, by id; acknowledged and muted ones included."""
    ports: dict[str, Port] = field(default_factory=dict)
    """RDMA ports, by device/port: mlx5_0/1."""


@dataclass(frozen=True, slots=True)
class SnapshotState:
    name: str
    branch: int
    step: int
    created_unix: float
    size_bytes: int
    loss: float | None = None
    pinned: bool = False
    verified: bool | None = None
    """None: not hashed since this was asked; the manifest itself is sound"""
    badge: str = "exact"
    """How a resume from it would be: exact | inexact | weights-only"""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """One check of a node: how it stands, why, what was seen, and what to do.

    `reason` is the same on nodes that are alike; what differs between them stands in `evidence`.
    """

    family: str
    name: str
    health: str
    """good | watch | fault | unknown"""
    reason: str
    evidence: str = ""
    action: str = ""
