"""Alert rules at work over states made here: when they fire, when they clear, and what outlives a restart."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from agent.alerts import Alerts
from agent.events import Events
from agent.measures import ram_left
from agent.refusal import Refusal
from agent.rules import load, parsed, shipped
from agent.state import StateFolder
from agent.wire import Alert, Disk, Gpu, Host, NodeState, RunState
from jobs.run_folder import RunFolder
from jobs.section import SpecError

GIB = 1 << 30
T0 = 1_800_000_000.0


class Watchman:
    """The engine with a clock of its own, one tick a second."""

    def __init__(self, folder: Path) -> None:
        self.state = StateFolder(folder / "home", "here")
        self.state.create()
        self.now = 0.0
        self.wake()

    def wake(self) -> None:
        """As a daemon that starts: nothing but the disk is known."""
        self.events = Events(self.state.events)
        self.alerts = Alerts(self.state, self.events)

    def see(self, state: NodeState, seconds: float = 1.0) -> dict[str, Alert]:
        fires: dict[str, Alert] = {}
        for _second in range(max(1, round(seconds))):
            self.now += 1.0
            fires = self.alerts.look(state, self.now, T0 + self.now)
            self.events.flush()
            self.alerts.save()
        return fires

    def told(self) -> list[str]:
        return [f"{event.kind} {event.data.get('id')}" for event in self.events.kept if event.kind != "alert.action"]


@pytest.fixture
def man(tmp_path: Path) -> Watchman:
    return Watchman(tmp_path)


def machine(*gpus: Gpu, runs: tuple[RunState, ...] = (), age_s: float | None = 0.5, **host: object) -> NodeState:
    known = Host(hostname="gpu01", **host)  # type: ignore[arg-type]
    return NodeState(known, {gpu.uuid: gpu for gpu in gpus}, {run.run: run for run in runs}, age_s)


def card(used: float = 0.5, **more: object) -> Gpu:
    return Gpu("GPU-1", 0, "SIMULATED H100", "", 80 * GIB, int(used * 80 * GIB), **more)  # type: ignore[arg-type]


def training(**more: object) -> RunState:
    return RunState("faults-1", "faults", "training", step=1, **more)  # type: ignore[arg-type]


def test_a_flat_97_percent_is_no_alarm(man: Watchman) -> None:
    assert man.see(machine(card(0.97, utilisation_percent=90.0)), 900) == {}


def test_memory_fires_after_its_time_and_clears_below_its_hysteresis(man: Watchman) -> None:
    assert man.see(machine(card(0.98)), 59) == {}
    fires = man.see(machine(card(0.98)), 3)
    assert list(fires) == ["gpu-memory-warn@GPU-1"]
    one = fires["gpu-memory-warn@GPU-1"]
    assert one.text == "GPU 0 memory is 98 % full" and one.severity == "warn" and one.value == "98 %"
    assert man.see(machine(card(0.97)), 30), "between threshold and clear it goes on"
    assert man.see(machine(card(0.90)), 10) == {}
    assert man.told() == ["alert.raised gpu-memory-warn@GPU-1", "alert.cleared gpu-memory-warn@GPU-1"]


def test_a_restart_tells_nothing_twice_and_forgets_nothing(man: Watchman) -> None:
    man.see(machine(card(0.999)), 70)
    man.alerts.acknowledge("gpu-memory-warn@GPU-1", "ann@desk")
    man.alerts.mute("gpu-memory-critical@GPU-1", 3600, "ann@desk", T0 + man.now)
    man.events.flush()
    for _restart in range(2):
        man.wake()
        fires = man.see(machine(age_s=None), 3)  # GPUs not looked for yet
        assert set(fires) == {"gpu-memory-warn@GPU-1", "gpu-memory-critical@GPU-1"}
        assert fires["gpu-memory-warn@GPU-1"].acked_by == "ann@desk"
        assert fires["gpu-memory-critical@GPU-1"].muted_until_unix
        man.see(machine(card(0.999)), 70)
    assert sum("raised" in line for line in man.told()) == 2
    man.alerts.path.unlink()
    man.wake()
    assert len(man.see(machine(card(0.999)), 70)) == 2
    assert sum("raised" in line for line in man.told()) == 2, "the journal alone is enough"


def test_what_is_not_measured_neither_fires_nor_clears(man: Watchman) -> None:
    unknown = Gpu("GPU-1", 0)
    assert man.see(machine(unknown), 100) == {}
    assert {"gpu-memory-warn", "gpu-ecc", "run-stalled"} <= set(man.alerts.listing(10)["not_measured"])
    man.see(machine(card(0.999)), 70)
    assert len(man.see(machine(unknown), 300)) == 2
    assert man.see(machine(unknown), 400) == {}
    assert "not measured any more" in man.events.kept[-1].text


def test_old_figures_are_no_measurement_and_say_so(man: Watchman) -> None:
    assert list(man.see(machine(card(0.999), age_s=40.0), 70)) == ["gpu-figures-old"]


def test_errors_that_grow_fire_again_when_they_grow_after_an_acknowledgement(man: Watchman) -> None:
    assert man.see(machine(card(ecc_uncorrected=7)), 5) == {}
    fires = man.see(machine(card(ecc_uncorrected=9)), 5)
    assert fires["gpu-ecc@GPU-1"].text == "GPU 0: uncorrected memory errors grew by 2"
    man.alerts.acknowledge("gpu-ecc@GPU-1", "ann@desk")
    assert man.see(machine(card(ecc_uncorrected=9)), 5)["gpu-ecc@GPU-1"].acked_by == "ann@desk"
    again = man.see(machine(card(ecc_uncorrected=10)), 5)["gpu-ecc@GPU-1"]
    assert again.acked_by == "" and again.value == "by 3"
    assert sum("raised" in line for line in man.told()) == 2


def test_counters_are_remembered_while_the_daemon_is_down(man: Watchman) -> None:
    man.see(machine(card(ecc_uncorrected=7)), 3)
    man.wake()
    assert "gpu-ecc@GPU-1" in man.see(machine(card(ecc_uncorrected=8)), 3)


def test_heat_is_judged_against_the_card_itself(man: Watchman) -> None:
    fires = man.see(machine(card(temperature_c=87.0)), 40)
    assert fires["gpu-temperature-warn@GPU-1"].text == "GPU 0 is at 87 °C, 3 °C below where it slows itself down"


def test_nvlinks_are_judged_by_the_like_and_by_their_own_past(man: Watchman) -> None:
    def cards(*down: int) -> NodeState:
        return machine(
            *(replace(card(), uuid=f"g{n}", index=n, nvlinks=18, nvlinks_down=d) for n, d in enumerate(down))
        )

    assert man.see(cards(18, 18), 60) == {}, "no switch, no bridge: down by design"
    assert man.see(cards(0, 0), 60) == {}
    fires = man.see(cards(0, 2), 30)
    assert [alert.text for alert in fires.values()] == [
        "GPU 1: 2 of its 18 NVLinks down; all-reduce on this node is slow or fails"
    ]
    man.wake()
    assert len(man.see(cards(0, 2), 30)) == 1, "a restart does not take the links for healthy"
    assert man.see(cards(0, 0), 60) == {}


def test_pcie_is_judged_under_load_only(man: Watchman) -> None:
    def at(percent: float, gen: int, width: int = 16) -> NodeState:
        link = {"pcie_gen": gen, "pcie_gen_max": 5, "pcie_width": width, "pcie_width_max": 16}
        return machine(card(utilisation_percent=percent, **link))

    assert man.see(at(0.0, 1), 300) == {}, "at rest a link slows down by design"
    assert man.see(at(95.0, 5), 300) == {}
    fires = man.see(at(95.0, 5, 8), 62)
    assert [alert.text for alert in fires.values()] == ["GPU 0 works over PCIe gen 5 x8; gen 5 x16 is possible"]


def test_memory_rows_that_wait_or_failed(man: Watchman) -> None:
    assert man.see(machine(card(remap_pending=0, remap_failed=0, nvlink_errors=3))) == {}
    fires = man.see(machine(card(remap_pending=1, remap_failed=1, nvlink_errors=40, serial="165")))
    assert {alert.rule for alert in fires.values()} == {"gpu-rows-pending", "gpu-rows-failed", "gpu-nvlink-errors"}
    assert any("serial 165" in alert.text for alert in fires.values())


def test_a_container_at_its_own_limit_counts_beside_the_machine(tmp_path: Path) -> None:
    host = Host(ram_total_bytes=1000 * GIB, ram_used_bytes=100 * GIB)
    assert ram_left(host, tmp_path) == 90
    for name, text in {"memory.max": 32 * GIB, "memory.current": 31 * GIB, "memory.stat": "inactive_file 0"}.items():
        (tmp_path / name).write_text(str(text))
    assert ram_left(host, tmp_path) == pytest.approx(100 / 32)


def test_throttle_lost_disk_and_idle(man: Watchman) -> None:
    run = training(gpu_uuids=("GPU-1",))
    idle = card(throttle=("thermal (hardware)",), utilisation_percent=0.0)
    state = machine(idle, runs=(run,), disks=(Disk("/", 100 * GIB, 1 * GIB),))
    fires = man.see(state, 620)
    assert set(fires) == {"gpu-throttle@GPU-1", "gpu-idle-in-run@GPU-1", "disk-warn@/", "disk-critical@/"}
    assert fires["disk-critical@/"].text == "/: 1 % free (1 GiB); snapshots will fail"
    fires = man.see(machine(replace(card(), lost="GPU is lost"), runs=(run,)), 2)
    assert fires["gpu-lost@GPU-1"].text == "GPU 0 does not answer: GPU is lost"


def test_a_loss_that_is_nan_or_leaps(man: Watchman) -> None:
    for step in range(1, 30):
        assert man.see(machine(runs=(replace(training(), step=step, loss=2.0),))) == {}
    fires = man.see(machine(runs=(replace(training(), step=30, loss=20.0),)))
    assert fires["run-loss-spike@faults-1"].text == "faults: the loss is 20 at step 30, 10 times its usual"
    fires = man.see(machine(runs=(replace(training(), step=31, loss=math.nan),)))
    assert fires["run-loss-bad@faults-1"].run == "faults-1"
    assert man.see(machine(runs=(replace(training(), phase="ended"),))) == {}


def test_growth_is_foretold_in_time_and_steps(man: Watchman) -> None:
    fires: dict[str, Alert] = {}
    for second in range(600):
        used = int((40 + second * 0.05) * GIB)
        run = replace(training(gpu_uuids=("GPU-1",)), step=second, memory_bytes=(used,), step_time_s=2.0)
        fires = man.see(machine(replace(card(), memory_used_bytes=used, utilisation_percent=90.0), runs=(run,)))
        if fires:
            break
    assert list(fires) == ["run-oom-forecast@faults-1"] and second < 240
    text = fires["run-oom-forecast@faults-1"].text
    assert text.startswith("faults will run out of memory in ") and " steps: its peak grows by 3 GiB a minute" in text


def test_a_rule_acts_only_where_its_author_said_so_and_once(man: Watchman) -> None:
    folder = RunFolder(man.state.runs / "faults-1")
    folder.create()
    (man.state.home / "alerts.yaml").write_text("rules:\n  run-loss-bad: {action: [snapshot, pause]}\n")
    man.wake()
    bad = machine(runs=(replace(training(), loss=math.nan),))
    man.see(bad, 5)
    verbs = sorted(path.read_text().split('"verb":"')[1].split('"')[0] for path in folder.orders.iterdir())
    assert verbs == ["pause", "snapshot"]
    man.wake()
    man.see(bad, 5)
    assert len(list(folder.orders.iterdir())) == 2
    trail = man.state.audit.read_text()
    assert '"operator":"alert rule run-loss-bad","verb":"snapshot","run":"faults-1"' in trail


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("rules:\n  a: {metric: gpu.memory_used_precent, above: 3}\n", 2, "not measured"),
        ("rules:\n  a: {metric: gpu.power_w, above: 3, below: 2}\n", 2, "stands beside above"),
        ("rules:\n  gpu-lost:\n    severity: loud\n", 3, "is 'loud'"),
        ("rules:\n  gpu-lost:\n    colour: red\n", 3, "is not a setting"),
        ("rules:\n  disk-warn:\n    clear: 1\n", 3, "alarming side"),
        ("rules:\n  a: {metric: gpu.power_w, above: 3, action: [reboot]}\n", 2, "is 'reboot'"),
        ("rules:\n  a: {metric: gpu.power_w, above: 3, text: '{value'}\n", 2, "brace"),
        ("rules:\n  A B: {metric: gpu.power_w, above: 3}\n", 2, "no name for a rule"),
        ("rules: [1, 2]\n", 1, "not a mapping"),
        ("rules:\n  a: [\n", 3, "not YAML"),
    ],
)
def test_a_bad_file_is_one_error_with_its_line(text: str, line: int, said: str) -> None:
    with pytest.raises(SpecError) as wrong:
        parsed(text, "alerts.yaml", shipped())
    assert wrong.value.line == line and said in str(wrong.value)


def test_a_bad_file_on_the_node_is_an_alert_and_the_shipped_rules_hold(man: Watchman) -> None:
    (man.state.home / "alerts.yaml").write_text("rules:\n  gpu-lost: {severity: loud}\n")
    fires = man.see(machine(replace(card(), lost="gone")), 3)
    assert set(fires) == {"alert-rules", "gpu-lost@GPU-1"} and "alerts.yaml:2" in fires["alert-rules"].text
    (man.state.home / "alerts.yaml").write_text(
        "rules:\n  gpu-lost: {enabled: false}\n"
        "  mine: {metric: host.load_1, above: 5, text: 'load {value}, {nothing}'}\n"
    )
    fires = man.see(replace(machine(replace(card(), lost="gone")), host=Host(load_1=9.0)), 5)
    assert [one.text for one in fires.values()] == ["load 9, {nothing}"]
    assert load(man.state.home)["gpu-lost"].metric == "gpu.lost"


def test_only_what_fires_can_be_acknowledged_and_only_what_is_known_muted(man: Watchman) -> None:
    with pytest.raises(Refusal):
        man.alerts.acknowledge("gpu-lost@GPU-9", "ann")
    with pytest.raises(Refusal):
        man.alerts.mute("nonsense", 60, "ann", T0)
    man.alerts.mute("gpu-lost@GPU-1", 60, "ann", T0)
    fires = man.see(machine(replace(card(), lost="gone")), 2)
    assert fires["gpu-lost@GPU-1"].muted_until_unix == T0 + 60
    assert man.see(machine(replace(card(), lost="gone")), 70)["gpu-lost@GPU-1"].muted_until_unix is None
