"""Figures over time on a node's disk: what was written comes back, whatever died, jumped, filled up or was swapped."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent import history, ring, wire
from agent.events import Events
from agent.history import GPUS, HOSTS, PEAKS, History
from agent.refusal import Refusal
from agent.ring import SPANS, Layout, Ring, Track
from agent.wire import Gpu, Host, NodeState, ReadHistory
from tests.fakes.node import Node, until

T = 1_800_000_000
"""A multiple of every step"""
GIB = 1 << 30
CPU = "host/cpu_percent"


def card(index: int = 0, busy: float | None = 50.0, used: int | None = 40 * GIB, mark: str = "a") -> Gpu:
    uuid = f"GPU-{mark}{index:07d}-1111-2222-3333-444455556666"
    return Gpu(uuid, index, utilisation_percent=busy, memory_used_bytes=used, temperature_c=60.0, power_w=400.0)


def state(*gpus: Gpu, cpu: float | None = 10.0, age_s: float | None = 0.0) -> NodeState:
    return NodeState(Host(cpu_percent=cpu, ram_used_bytes=5 * GIB), {one.uuid: one for one in gpus}, {}, age_s)


def asked(kept: History, since_s: float, now: int, *series: str, points: int = 300) -> dict[str, list[float | None]]:
    return dict(kept.read(ReadHistory(since_s, series, points), now)["series"])


@pytest.fixture
def events(tmp_path: Path) -> Events:
    return Events(tmp_path / "events.jsonl")


@pytest.fixture
def kept(tmp_path: Path, events: Events) -> History:
    return History(tmp_path / "history", events)


def test_a_node_of_eight_gpus_stays_below_50_mb() -> None:
    machine, gpu = HOSTS.layout.size_bytes(), GPUS.layout.size_bytes()
    assert machine + 8 * gpu < 11e6
    assert history.FILES * max(machine, gpu) < 50e6, "all that were ever exchanged included"
    reach = {step: step * slots for step, slots in SPANS}
    assert reach[1] == 3600 and reach[10] == 86400 and reach[60] == 14 * 86400


def test_seconds_come_back_and_unknown_stays_unknown(kept: History) -> None:
    for i in range(100):
        known = i % 10 != 3
        kept.record(state(card(0, float(i) if known else None), cpu=float(i)), T + i)
    uuid = card().uuid
    found = asked(kept, 100, T + 99, CPU, f"{uuid}/utilisation_percent", f"{uuid}/sm_active_percent")
    assert found[CPU] == list(range(100))
    assert found[f"{uuid}/utilisation_percent"] == [i if i % 10 != 3 else None for i in range(100)]
    assert found[f"{uuid}/sm_active_percent"] == [None] * 100
    answer = kept.read(ReadHistory(100), T + 99)
    assert (answer["unix"], answer["step_s"], answer["note"]) == (T, 1, "")
    assert set(answer["series"]) == {
        *(f"host/{name}" for name in history.HOST_FIELDS),
        *(f"{uuid}/{name}" for name in history.GPU_FIELDS),
    }


def test_a_coarser_ring_has_the_mean_and_of_memory_the_largest(kept: History) -> None:
    uuid = card().uuid
    for i in range(7300):
        used = 70 * GIB if i == 4000 else 10 * GIB
        kept.record(state(card(0, 100.0 if i % 10 == 0 else None if i % 2 else 0.0, used)), T + i)
    found = asked(kept, 2 * 3600, T + 7199, f"{uuid}/utilisation_percent", f"{uuid}/memory_used_bytes", points=720)
    # of each ten seconds five are known, one of them at 100
    assert found[f"{uuid}/utilisation_percent"] == [20] * 720
    assert found[f"{uuid}/memory_used_bytes"] == [history.rounded((70 if i == 400 else 10) * GIB) for i in range(720)]
    by_minute = asked(kept, 2 * 86400, T + 7260, f"{uuid}/memory_used_bytes", points=2880)
    spikes = [value for value in by_minute[f"{uuid}/memory_used_bytes"] if value and value > 20 * GIB]
    assert len(spikes) == 1


def test_no_more_points_than_asked_for_and_a_usual_answer_is_small(kept: History) -> None:
    chance = random.Random(1)
    layouts = {card(i).uuid: GPUS for i in range(8)}
    kept.record(state(*(card(i) for i in range(8))), T)
    for uuid in layouts:
        for second in range(T - 3599, T + 1):
            kept.tracks[uuid].ring.put(0, second, tuple(chance.uniform(0, 8e10) for _ in history.GPU_FIELDS))
    series = [f"{uuid}/{name}" for uuid in layouts for name in ("utilisation_percent", "memory_used_bytes")]
    answer = kept.read(ReadHistory(3600, tuple(series), 300), T)
    assert {len(column) for column in answer["series"].values()} == {300} and answer["step_s"] == 12
    assert None not in answer["series"][series[0]]
    assert len(wire.encode(wire.Reply("o", True, answer))) < 64 * 1024
    for since in (0, -1.0, math.nan, math.inf, 61, 3599, 3601, 86401, 14 * 86400):
        for points in (-1, 0, 1, 7, 299, 10**9):
            answer = kept.read(ReadHistory(since, (CPU,), points), T)
            (column,) = answer["series"].values()
            assert 1 <= len(column) <= max(1, min(points, history.VALUES_LIMIT))
            newest = answer["unix"] + answer["step_s"] * len(column)
            assert T < newest <= T + answer["step_s"], "now lies in the last point"


def test_gaps_and_clocks_that_jump(kept: History) -> None:
    for second in [*range(T, T + 60), *range(T + 300, T + 360)]:  # suspended in between
        kept.record(state(cpu=1.0), second)
    found = asked(kept, 360, T + 359, CPU, points=360)[CPU]
    assert found == [1] * 60 + [None] * 240 + [1] * 60
    for second in range(T + 10**7, T + 10**7 + 30):  # a clock that was wrong for half a minute
        kept.record(state(cpu=77.0), second)
    for second in range(T + 360, T + 400):
        kept.record(state(cpu=2.0), second)
    assert asked(kept, 400, T + 399, CPU, points=400)[CPU] == [1] * 60 + [None] * 240 + [1] * 60 + [2] * 40
    for second in range(T + 370, T + 380):  # and back by half a minute: the newer word counts
        kept.record(state(cpu=3.0), second)
    assert asked(kept, 20, T + 379, CPU)[CPU] == [2] * 10 + [3] * 10
    for strange in (-5.0, 0.0, 2.0**33):
        kept.record(state(), strange)
    assert kept.trouble == ""


def test_a_tick_that_comes_a_hair_late_leaves_no_hole(kept: History) -> None:
    for i in range(200):
        kept.record(state(cpu=5.0), T + i * 1.01)
    assert asked(kept, 200, T + 200, CPU)[CPU] == [5] * 200


def test_figures_of_a_driver_that_hangs_are_not_kept(kept: History) -> None:
    for i in range(20):
        stale = i >= 10
        kept.record(state(card(), age_s=float(i) if stale else 0.0), T + i)
    found = asked(kept, 20, T + 19, f"{card().uuid}/power_w", CPU)
    assert found[f"{card().uuid}/power_w"] == [400] * 10 + [None] * 10
    assert found[CPU] == [10] * 20
    kept.record(state(replace(card(1), uuid="unknown-1", lost="GPU is lost"), age_s=None), T + 20)
    assert set(kept.tracks) == {"host", card().uuid}


def test_a_card_that_was_exchanged_leaves_its_past(kept: History, tmp_path: Path, events: Events) -> None:
    old, new = card(0, 30.0), card(0, 90.0, mark="b")
    for i in range(100):
        kept.record(state(old), T + i)
    again = History(tmp_path / "history", events)
    for i in range(100, 200):
        again.record(state(new), T + i)
    busy = "utilisation_percent"
    found = asked(again, 200, T + 199, f"{old.uuid}/{busy}", f"{new.uuid}/{busy}", f"{card(5).uuid}/{busy}")
    assert found[f"{old.uuid}/{busy}"] == [30] * 100 + [None] * 100
    assert found[f"{new.uuid}/{busy}"] == [None] * 100 + [90] * 100
    assert f"{card(5).uuid}/{busy}" not in found, "it was never here"


def test_files_of_cards_that_went_do_not_add_up(kept: History) -> None:
    for i in range(3 * history.FILES):
        kept.tracks.clear()
        kept.record(state(card(i)), T + i)
    files = kept.files()
    assert len(files) == history.FILES
    assert any(path.name.startswith(card(3 * history.FILES - 1).uuid) for path in files)
    assert not any(path.name.startswith(card(0).uuid) for path in files)
    kept.record(state(*(card(i, mark="c") for i in range(2 * history.FILES))), T + 500)
    assert len(kept.tracks) == history.FILES and len(kept.files()) == history.FILES


def test_another_layout_is_another_file_and_both_are_read(kept: History) -> None:
    kept.folder.mkdir()
    older = Layout(("load_1", "cpu_percent", "gone_since"))
    written = Track(Ring.made(kept.folder, "host", older), (False,) * 3, T)
    for i in range(50):
        written.add(T + i, (1.5, 33.0, 7.0))
    for i in range(50, 100):
        kept.record(state(cpu=44.0), T + i)
    found = asked(kept, 100, T + 99, CPU, "host/load_1", "host/ram_used_bytes")
    assert found[CPU] == [33] * 50 + [44] * 50
    assert found["host/load_1"] == [1.5] * 50 + [None] * 50
    assert found["host/ram_used_bytes"] == [None] * 50 + [history.rounded(5 * GIB)] * 50


def test_a_record_torn_anywhere_is_dropped_alone(tmp_path: Path) -> None:
    made = Ring.made(tmp_path, "host", HOSTS.layout)
    size, slots = made.record.size, SPANS[0][1]
    values = tuple(float(i) for i in range(len(history.HOST_FIELDS)))
    for second in range(T - slots, T):
        made.put(0, second, values)
    before = made.path.read_bytes()
    made.put(0, T, tuple(value + 1.5 for value in values))
    after, place = made.path.read_bytes(), made.starts[0] + T % slots * size
    for cut in range(1, size):
        torn = after[: place + cut] + before[place + cut :]
        made.path.write_bytes(torn)
        reader = Ring.of(made.path)
        assert reader is not None
        seconds = [int(one[0]) for one in reader.records(0, T - slots, T)]
        assert seconds == list(range(T - slots + 1, T + (torn == after))), cut
        reader.close()
    made.close()


def test_what_is_no_ring_is_passed_over_and_replaced(kept: History) -> None:
    chance = random.Random(2)
    kept.record(state(), T)
    (path,) = kept.files()
    sound = path.read_bytes()
    for _ in range(60):
        broken = bytearray(sound)
        for _place in range(chance.randrange(1, 40)):
            broken[chance.randrange(200)] = chance.randrange(256)
        path.write_bytes(bytes(broken)[: chance.randrange(len(sound))])
        assert asked(kept, 10, T, CPU)[CPU][-1] in (10, None)
        kept.tracks.clear()
        kept.record(state(cpu=20.0), T + 1)
        assert asked(kept, 10, T + 1, CPU)[CPU][-1] == 20
        path.write_bytes(sound)


WRITER = """
import sys
from pathlib import Path
from agent.history import HOSTS
from agent.ring import Ring, Track
from agent.wire import Host
folder, second = Path(sys.argv[1]), int(sys.argv[2])
track = Track(Ring.made(folder, "host", HOSTS.layout), HOSTS.peaks, second)
while True:
    second += 1
    track.add(second, HOSTS.values(Host(cpu_percent=float(second % 100))))
    print(second, flush=True)
"""


def killed_at_random(folder: Path, begin: int, lines: int) -> int:
    """The last second that a writer said it had written before it was killed."""
    argv = [sys.executable, "-c", WRITER, str(folder), str(begin)]
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    told = [next(child.stdout) for _ in range(lines)]
    child.send_signal(signal.SIGKILL)
    child.wait()
    told += child.stdout.readlines()
    child.stdout.close()
    return int([line for line in told if line.endswith("\n")][-1])


@pytest.mark.parametrize(
    "head",
    [
        b"[" * 4000,
        b'{"version": 1, "fields": ["a"], "spans": [[1e999, 1]]}',
        b'{"version": 1, "fields": ["a"], "spans": [[1, 999999999999]]}',
    ],
)
def test_a_head_that_claims_anything_is_no_ring(kept: History, head: bytes) -> None:
    kept.record(state(), T)
    strange = kept.folder / f"host.00{ring.SUFFIX}"
    strange.write_bytes(head)
    os.truncate(strange, 8 << 30)
    assert Ring.of(strange) is None and asked(kept, 60, T, CPU)[CPU][-1] == 10.0


def test_what_is_no_file_is_passed_over_and_never_waited_for(kept: History) -> None:
    kept.record(state(), T)
    os.mkfifo(kept.folder / f"host.00{ring.SUFFIX}")
    (kept.folder / f"host.01{ring.SUFFIX}").mkdir()
    (kept.folder / f"host.02{ring.SUFFIX}").symlink_to("/dev/zero")
    assert asked(kept, 60, T, CPU)[CPU][-1] == 10.0


def test_a_writer_killed_at_any_moment_loses_nothing(kept: History) -> None:
    kept.folder.mkdir()
    chance, now = random.Random(), T - 1
    for _ in range(8):
        now = killed_at_random(kept.folder, now, chance.randrange(1, 400))
    written = now - T + 1
    found = asked(kept, written, now, CPU, points=written)[CPU]
    expected = [(T + i) % 100 for i in range(written)]
    lost = [i for i, (a, b) in enumerate(zip(found[-3600:], expected[-3600:], strict=True)) if a != b]
    assert lost == []
    (path,) = kept.files()
    reader = Ring.of(path)
    assert reader is not None
    for span, (step, _slots) in enumerate(SPANS[1:], 1):
        steps = {int(one[0]): one[1] for one in reader.records(span, T, now)}
        # a step is closed by what follows it in the finer ring
        whole = range(T, now - 70, step)[:-1]
        assert steps.keys() >= set(whole), f"every whole step of {step} s is there"
        means = {start: sum((start + i) % 100 for i in range(step)) / step for start in whole}
        wrong = {start: (steps[start], mean) for start, mean in means.items() if abs(steps[start] - mean) > 1e-3}
        assert wrong == {}
    reader.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=0700", "tmpfs", str(place)], check=True)
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_on_a_full_disk_history_pauses_says_so_once_and_goes_on(small_disk: Path, events: Events) -> None:
    clock = [0.0]
    kept = History(small_disk / "history", events, lambda: clock[0])
    filling = small_disk / "filling"
    second = T
    for second in range(T, T + 100):
        kept.record(state(card()), second)
    filling.write_bytes(b"x" * 4096)
    with pytest.raises(OSError, match="No space"), filling.open("ab", 0) as file:
        while True:
            file.write(b"x" * 4096)
    for second in range(T + 100, T + 1000):
        clock[0] += 1.0
        kept.record(state(card()), second)
    assert [one.kind for one in events.queue] == ["history.paused"]
    assert "disk is full" in events.queue[0].text and events.queue[0].severity == "warn"
    told = kept.read(ReadHistory(1000, (CPU,), 1000), second)
    assert told["note"] == events.queue[0].text
    before = told["series"][CPU]
    assert before[:100] == [10] * 100 and before[-1] is None, "what was kept is still there"
    filling.unlink()
    for second in range(T + 1000, T + 1100):
        clock[0] += 1.0
        kept.record(state(card()), second)
    assert [one.kind for one in events.queue] == ["history.paused", "history.resumed"]
    assert asked(kept, 30, second, CPU)[CPU] == [10] * 30 and kept.trouble == ""


def test_a_read_only_disk_does_not_disturb(small_disk: Path, events: Events) -> None:
    kept = History(small_disk / "history", events)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    kept.record(state(card()), T)
    assert [one.kind for one in events.queue] == ["history.paused"] and "not allowed to write" in kept.trouble
    assert kept.read(ReadHistory(), T)["series"] == {}


@pytest.mark.parametrize("name", ["host/nonsense", "GPU-1", "../../etc/passwd", "host*/cpu_percent", "/", ""])
def test_what_is_no_series_is_refused(kept: History, name: str) -> None:
    kept.record(state(), T)
    with pytest.raises(Refusal, match="is no series"):
        kept.read(ReadHistory(60, (name,)), T)


def test_peaks_are_fields_that_are_kept() -> None:
    assert {*history.HOST_FIELDS, *history.GPU_FIELDS} >= PEAKS
    assert len(json.dumps(history.HOST_FIELDS)) + 200 < ring.HEAD_BYTES


def test_over_the_wire_also_read_only_and_after_the_daemon_was_killed(node: Node) -> None:
    console = node.console("--read-only")
    welcome = console.welcome()
    assert welcome.read_only

    def known() -> int:
        reply = console.ask(ReadHistory(600, (CPU, "host/ram_used_bytes"), 600))
        assert reply.ok and reply.result["note"] == "", reply
        columns = reply.result["series"]
        return sum(value is not None for value in columns.get("host/ram_used_bytes", ()))

    until(lambda: known() >= 3)
    refusal = console.ask(ReadHistory(600, ("host/x",)))
    assert not refusal.ok and "is no series" in refusal.error and "cpu_percent" in refusal.hint
    daemon, had = node.daemon(), known()
    daemon.send(signal.SIGKILL)
    until(lambda: daemon.state() == "gone")
    console = node.console("--read-only")
    assert known() >= had
    until(lambda: known() > had)
    modes = {path.stat().st_mode & 0o777 for path in node.state.history.iterdir()}
    assert modes == {0o600} and node.state.history.stat().st_mode & 0o777 == 0o700
    assert time.time() - console.ask(ReadHistory(60)).result["unix"] < 120
