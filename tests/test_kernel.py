"""The kernel log followed: Xids, kills for memory, links; once each, over restarts, whatever stands in it."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent import kept, wire
from agent.alerts import Alerts
from agent.complaints import Complaints
from agent.events import Events
from agent.journalctl import Journal
from agent.kernel import KernelLog, Source
from agent.kmsg import MOST, Kmsg
from agent.lessons import Lessons
from agent.runs import Runs
from agent.state import StateFolder
from agent.wire import Event, Gpu, NodeState
from agent.xid import meaning
from agent.xids import Xid
from jobs.identity import ProcessIdentity
from tests.fakes.node import Console, Node, until, variables
from tests.fakes.nvml import Driver, card, simulation

FELL = "NVRM: Xid (PCI:0000:2a:00): 79, pid=4211, name=python3, GPU has fallen off the bus."
FAULT = "NVRM: Xid (PCI:0000:2b:00): 31, pid=4212, name=python3, Ch 00000008, intr 10000000. MMU Fault"
KILLED = "Out of memory: Killed process {} (python3) total-vm:9GB, anon-rss:8388608kB, file-rss:0kB, UID:1000"
GPUS = {
    "GPU-a": Gpu("GPU-a", 3, "SIMULATED H100", "00000000:2A:00.0"),
    "GPU-b": Gpu("GPU-b", 4, "SIMULATED H100", "00000000:2B:00.0"),
}


class Box:
    """A machine whose kernel writes into a file of ours."""

    def __init__(self, folder: Path) -> None:
        self.state = StateFolder(folder / "home", "here")
        self.state.create()
        self.kmsg = folder / "kmsg"
        self.kmsg.touch()
        self.number = 0
        self.start()

    def start(self) -> None:
        """As a daemon that starts: nothing but the disk is known."""
        self.events = Events(self.state.events)
        self.runs = Runs(self.state.runs, self.events, Lessons(self.state))
        self.complaints = Complaints(
            self.state.path / "kernel.json", self.events, self.runs, KernelLog([Kmsg(self.kmsg)])
        )

    def say(self, *lines: str, ago_s: float = 0.0) -> None:
        with self.kmsg.open("a") as log:
            for line in lines:
                self.number += 1
                log.write(f"4,{self.number},{int((time.monotonic() - ago_s) * 1e6)},-;{line}\n SUBSYSTEM=pci\n")

    def look(self, gpus: dict[str, Gpu] = GPUS, heard: tuple[Xid, ...] = (), save: bool = True) -> dict[str, Gpu]:
        found = self.complaints.look(gpus, list(heard), False)
        self.events.flush()
        if save:
            self.complaints.save()
        return found

    def told(self, kind: str = "gpu.xid") -> list[Event]:
        return [event for event in self.events.kept if event.kind == kind]


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    made = Box(tmp_path)
    yield made
    made.complaints.log.close()


def test_an_xid_names_card_number_meaning_and_what_to_do(box: Box) -> None:
    box.look()
    box.say("something else", FELL, FAULT)
    box.look()
    fell, fault = box.told()
    assert fell.severity == "critical" and fault.severity == "warn"
    for part in ("GPU 3 (GPU-a)", "Xid 79, GPU has fallen off the bus", "pid 4211", "drain the node, power-cycle it"):
        assert part in fell.text
    assert "the GPU is not at fault" in fault.text and fault.data["xid"] == 31 and fault.data["bus"].endswith("2B:00.0")
    gpus = box.look()
    assert (gpus["GPU-a"].xid, gpus["GPU-a"].xids, gpus["GPU-a"].xids_hardware) == (79, 1, 1)
    assert (gpus["GPU-b"].xid, gpus["GPU-b"].xids, gpus["GPU-b"].xids_hardware) == (31, 1, 0)
    assert gpus["GPU-a"].xid_fault.startswith("Xid 79") and gpus["GPU-b"].xid_fault == ""


def test_nothing_is_told_twice_and_nothing_missed_over_restarts(box: Box) -> None:
    box.say(FELL)
    box.look()
    for _restart in range(2):
        box.start()
        box.look()
    assert len(box.told()) == 1
    box.say(FAULT, ago_s=7200)
    box.start()
    box.look(save=False)  # and dies before it could note how far it was
    assert "2.0 h ago" in box.told()[-1].text or "120 min ago" in box.told()[-1].text
    box.start()
    gpus = box.look()
    assert len(box.told()) == 2
    (box.state.path / "kernel.json").write_text("{broken")
    box.start()
    box.look()
    assert len(box.told()) == 2, "the journal of events alone is enough"
    assert gpus["GPU-a"].xids == 1, "the counter goes on where it was"


def test_old_lines_are_no_news_to_the_first_daemon(box: Box) -> None:
    box.say(FELL, ago_s=1e6)
    box.say(FELL, ago_s=900)
    box.say(FAULT, ago_s=300)
    box.look()
    assert [event.data["xid"] for event in box.told()] == [31]
    assert "(pid 4212), 5 min ago" in box.told()[0].text


def test_another_boot_begins_anew(box: Box) -> None:
    box.say("x", FELL)
    box.look()
    path = box.state.path / "kernel.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "boot": "earlier", "sequence": 10**6}))
    box.events.kept[-1].data["boot"] = "earlier"
    box.events.rewrite({})
    box.kmsg.write_text("")
    box.start()
    box.number = 0
    box.say(FAULT)
    gpus = box.look()
    assert [event.data["xid"] for event in box.told()] == [79, 31]
    assert gpus["GPU-a"].xids == 0


def test_the_same_xid_from_nvml_and_the_kernel_is_one(box: Box) -> None:
    box.look()
    box.say(FELL)
    box.look(heard=(Xid("GPU-a", 79),))
    assert box.look()["GPU-a"].xids == 1 and "pid 4211" in box.told()[0].text
    box.look(heard=(Xid("GPU-b", 48),))
    box.say("NVRM: Xid (PCI:0000:2b:00): 48, pid=1, name=x, DBE")
    box.look()
    assert box.look()["GPU-b"].xids == 1, "whichever comes first"
    box.look(heard=(Xid("GPU-b", 48), Xid("GPU-b", 48)))
    assert box.look()["GPU-b"].xids == 3, "one source alone tells each of its own"
    assert [event.data["xid"] for event in box.told()] == [79, 48]


def test_a_storm_is_told_once_and_counted(box: Box) -> None:
    box.look()
    log, now = box.complaints.xids, time.monotonic()
    for _one in range(500):
        log.take("GPU-b", 31, time.time(), "kernel")
    log.settle(lambda _pid, _uuid: None, time.time(), now)
    log.settle(lambda _pid, _uuid: None, time.time(), now + 59)
    box.events.flush()
    assert len(box.told()) == 1
    log.settle(lambda _pid, _uuid: None, time.time(), now + 61)
    log.settle(lambda _pid, _uuid: None, time.time(), now + 500)
    log.take("GPU-b", 31, time.time(), "kernel")
    log.settle(lambda _pid, _uuid: None, time.time(), now + 600)
    box.events.flush()
    assert [event.data.get("more") for event in box.told()] == [None, 499, None]
    assert box.look()["GPU-b"].xids == 501


def test_an_xid_waits_until_the_cards_are_known(box: Box) -> None:
    box.say(FELL)
    box.look({})
    assert not box.told() and not (box.state.path / "kernel.json").exists()
    box.look()
    assert box.told()[0].data["uuid"] == "GPU-a"
    box.complaints.xids.take("0000:99:00", 79, time.time() - 60, "kernel")
    box.look()
    assert box.told()[1].text.startswith("the GPU at PCI 0000:99:00")


def test_cards_of_a_virtual_machine_share_a_bus(box: Box) -> None:
    box.look({"GPU-a": replace(GPUS["GPU-a"], pci_bus_id="0:1D.0"), "GPU-b": Gpu("GPU-b", 1, "", "00000000:00:1E.0")})
    box.say("NVRM: Xid (PCI:0000:00:1e): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")
    box.look()
    assert box.told()[0].data["uuid"] == "GPU-b"


def test_a_lost_card_keeps_its_index(box: Box) -> None:
    box.look()
    gone = {"GPU-a": Gpu("GPU-a", 3, lost="GPU is lost")}
    box.say(FELL)
    box.look(gone)
    assert box.told()[0].text.startswith("GPU 3 (GPU-a)")


def test_the_rule_fires_once_for_the_cards_own_faults_also_when_it_is_lost(box: Box) -> None:
    alerts = Alerts(box.state, box.events)

    def tick(gpus: dict[str, Gpu]) -> list[str]:
        now = NodeState(gpus=box.look(gpus), gpu_age_s=0.0)
        fires = alerts.look(now, time.monotonic(), time.time())
        return [one.text for one in fires.values() if one.rule == "gpu-xid"]

    assert tick(GPUS) == []
    box.say(FAULT)
    assert [tick(GPUS) for _tick in range(3)] == [[], [], []], "a program's own fault is no fault of the card"
    box.say(FELL)
    lost = {**GPUS, "GPU-a": Gpu("GPU-a", 3, lost="GPU is lost")}
    fires = [tick(lost) for _tick in range(5)][-1]
    assert len(fires) == 1 and fires[0].startswith("GPU 3: Xid 79, GPU has fallen off the bus: drain the node")
    box.events.flush()
    raised = [event for event in box.told("alert.raised") if event.data["rule"] == "gpu-xid"]
    assert len(raised) == 1 and raised[0].severity == "critical"
    alerts.save()
    box.start()
    again = Alerts(box.state, box.events)
    for _tick in range(3):
        again.look(NodeState(gpus=box.look(lost), gpu_age_s=0.0), time.monotonic(), time.time())
    box.events.flush()
    assert len([event for event in box.told("alert.raised") if event.data["rule"] == "gpu-xid"]) == 1


def test_a_fault_from_before_the_first_look_at_the_cards_fires_too(box: Box) -> None:
    alerts = Alerts(box.state, box.events)
    box.say(FELL)
    fires: dict[str, wire.Alert] = {}
    for gpus in ({}, GPUS, GPUS, GPUS):
        fires = alerts.look(NodeState(gpus=box.look(gpus), gpu_age_s=0.0), time.monotonic(), time.time())
    assert [one.rule for one in fires.values()] == ["gpu-xid"]


def test_where_nobody_listens_the_count_is_unknown(tmp_path: Path) -> None:
    box = Box(tmp_path)
    box.kmsg.unlink()
    assert box.look()["GPU-a"].xids is None
    assert "kernel log not readable" in box.told("agent.kernel")[0].text
    assert box.complaints.look(GPUS, [], True)["GPU-a"].xids == 0, "NVML tells them"


def test_who_was_killed_for_memory(node: Node) -> None:
    folder = node.start("obedient", ranks=2)
    box = Box(node.folder / "box")
    box.state, box.runs = node.state, Runs(node.state.runs, box.events, Lessons(node.state))
    box.complaints.runs = box.runs
    box.runs.refresh()
    box.look()
    who = kept.rank_records(folder)[1].identity
    assert who is not None
    group = KILLED.replace("Out", "Memory cgroup out").format(999999)
    box.say(KILLED.format(who.pid), group, *([KILLED.format(7)] * 5), FELL.replace("4211", str(who.pid)))
    box.look()
    rank, other = box.told("host.oom")
    assert (rank.run, rank.data["rank"], rank.severity) == (folder.name, 1, "critical")
    assert f"python3 (pid {who.pid}, run {folder.name} rank 1)" in rank.text and "anon-rss:8388608kB" in rank.text
    assert (other.run, other.severity) == (None, "warn") and "its cgroup's memory was full" in other.text
    assert box.told()[0].run == folder.name and box.told()[0].data["rank"] == 1


def test_switches_and_links(box: Box) -> None:
    box.look()
    box.say(
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error",
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
        "mlx5_core 0000:31:00.0 eth2: Link down",
        "mlx5_core 0000:31:00.0 eth2: Link up",
        "bnxt_en 0000:19:00.0 enp25s0f0np0: NIC Link is Down",
        "pcieport 0000:00:01.0: pciehp: Slot(0): Link Down",
        "port 7 is a harbour",
        "mlx5_core 0000:31:00.0 eth2: Link down",
    )
    box.look()
    mild, fatal = box.told("nvswitch.sxid")
    assert mild.severity == "warn" and fatal.severity == "critical" and "fabric manager" in fatal.text
    assert [(event.text, event.severity) for event in box.told("host.link")] == [
        ("link of eth2 down", "warn"),
        ("link of eth2 up", "info"),
        ("link of enp25s0f0np0 down", "warn"),
        ("link of the PCIe slot at 0000:00:01.0 down", "warn"),
    ]


def test_a_process_cannot_bear_the_name_of_a_fault(box: Box) -> None:
    box.look()
    box.say(
        "x Xid (1): 79[4]: segfault at 0 ip 0 sp 0 error 4 in a.out",
        "SXid (1): 9, a[4]: segfault at 0",
        "python3[1]: Out of memory: Killed process 4 (init)",
        KILLED.format(4).replace("python3", "x Xid (1): 79"),
    )
    box.look()
    assert [event.kind for event in box.events.kept] == ["host.oom"]


def test_whatever_stands_in_the_log_is_survived(box: Box) -> None:
    box.look()
    rng = random.Random(3)
    heads = [b"4,7,8,-;", b"4,99999999999999999,999999999999999999,-;", b"4,-1,x,-;", b"4,1,;", b",,,;", b"", b" "]
    texts = [
        FELL,
        FAULT,
        KILLED,
        KILLED.format("9" * 40),
        "NVRM: Xid (PCI:::::): 79, x",
        f"NVRM: Xid (PCI:{'f' * 90}): 1",
    ]
    texts += [f"NVRM: Xid (PCI:0000:2a:00): {'7' * 5000}, x", "NVRM: Xid (0): 0", "NVRM: Xid (PCI:0000:2a:00): ٧٩, x"]
    with box.kmsg.open("ab") as log:
        for _line in range(3000):
            body = bytearray(rng.choice(heads) + rng.choice(texts).encode())
            for _change in range(rng.randrange(4)):
                body[rng.randrange(len(body))] = rng.randrange(256)
            log.write(bytes(body) + rng.choice([b"\n", b"\n", b"\x00", b"\r\n"]))
        log.write(b"\n" + b"A" * 300_000 + b"\n4,1,2,-;" + b"Xid (" * 50_000 + b"\n")
    for _look in range(20):
        box.look()
    box.kmsg.write_bytes(b"")
    os.truncate(box.kmsg, 0)
    box.start()
    box.look()
    assert box.events.last_seq < 2500, "bursts are held back"


def test_a_big_log_is_read_in_pieces_and_a_pipe_may_give_half_a_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    source = Kmsg(tmp_path / "pipe")
    assert source.open(0.0) and source.read() == ([], True)
    writer = os.open(tmp_path / "pipe", os.O_WRONLY)
    os.write(writer, b"4,1,2,-;ha")
    assert source.read() == ([], True)
    os.write(writer, b"lf\n4,2,3,-;whole\n")
    assert [record.text for record in source.read()[0]] == ["half", "whole"]
    os.close(writer)
    assert source.read() == ([], True), "nobody writes: nothing to wait for"
    source.close()
    (tmp_path / "file").write_bytes(b"4,1,2,-;x\n" * (MOST * 8))
    source = Kmsg(tmp_path / "file")
    source.open(0.0)
    records, all_of_it = source.read()
    assert records and not all_of_it
    source.close()


def entry(text: object, **more: object) -> str:
    now = {
        "__REALTIME_TIMESTAMP": str(int(time.time() * 1e6)),
        "_SOURCE_MONOTONIC_TIMESTAMP": str(int(time.monotonic() * 1e6)),
    }
    return json.dumps({"MESSAGE": text, **now, **more})


def test_the_journal_is_followed_by_a_child_that_is_ended(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    lines = tmp_path / "lines"
    (tmp_path / "journal" / "abc").mkdir(parents=True)
    (tmp_path / "journal" / "abc" / "system.journal").touch()
    odd = [entry(list(FAULT.encode())), entry(None), "[1]", "{}", '{"MESSAGE": [-1], "__REALTIME_TIMESTAMP": 1}', "\0"]
    lines.write_text("\n".join([entry(FELL), *odd]) + "\n")
    journal = Journal(["sh", "-c", f"cat {lines}; exec sleep 600"], [tmp_path / "journal"])
    box = Box(tmp_path)
    request.addfinalizer(journal.close)
    sources: list[Source] = [Kmsg(tmp_path / "none"), journal]
    box.complaints = Complaints(box.complaints.path, box.events, box.runs, KernelLog(sources))
    until(lambda: box.look() and len(box.told()) == 2)
    assert journal.child is not None
    who = ProcessIdentity.of(journal.child.pid)
    assert who is not None and box.complaints.log.note == ""
    box.complaints.log.close()
    assert who.state() == "gone" and not journal.alive
    box.start()
    box.complaints.log.sources = (journal,)
    until(lambda: box.look() and box.complaints.log.mark.at_us and not box.complaints.xids.pending)
    assert len(box.told()) == 2, "told already"
    box.complaints.log.close()


def test_a_journal_that_ends_or_may_not_be_read_is_told_in_words(tmp_path: Path) -> None:
    assert not Journal(folders=[tmp_path]).open(0.0)
    assert not Journal(["no-such-tool"]).open(0.0)
    (tmp_path / "abc").mkdir()
    (tmp_path / "abc" / "system.journal").touch()
    journal = Journal(["sh", "-c", "exit 1"], [tmp_path])
    log = KernelLog([Kmsg(tmp_path / "none"), journal])
    until(lambda: log.look() == [] and not journal.alive)
    assert "none: No such file or directory; sh ended" in log.note and "member of adm" in log.note


@pytest.mark.parametrize("code", [7, 13, 31, 43, 45, 48, 63, 74, 79, 94, 119, 154, 9999])
def test_every_xid_has_something_to_do(code: int) -> None:
    assert meaning(code).words(2).partition(": ")[2] and "<gpu>" not in meaning(code).words(2)
    assert meaning(code).hardware == (code in (48, 74, 79, 94, 119))


@pytest.fixture
def listening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Node, Path]]:
    gpus = simulation(tmp_path / "nvml", Driver((card(1), card(2))))
    for name, value in {**variables(tmp_path), **gpus.environment}.items():
        monkeypatch.setenv(name, value)
    kmsg = tmp_path / "kmsg"
    kmsg.touch()
    program = Path(__file__).with_name("fakes") / "listening.py"
    node = Node(tmp_path)
    daemon = subprocess.Popen([sys.executable, str(program), str(kmsg)], cwd="/")
    until(lambda: node.door.socket.exists())
    yield node, kmsg
    node.close()
    daemon.wait()


def test_a_console_sees_it(listening: tuple[Node, Path], tmp_path: Path) -> None:
    node, kmsg = listening
    console: Console = node.console()
    until(lambda: console.tree and len(console.state().gpus) == 2)
    with kmsg.open("a") as log:
        log.write(f"4,1,{int(time.monotonic() * 1e6)},-;{FELL.replace('2a', '12')}\n")
    told = until(lambda: next((one for one in console.numbered() if one.kind == "gpu.xid"), None))
    assert told.text.startswith("GPU 1 (GPU-00000000-0000-0000-0000-000000000002)") and told.severity == "critical"
    until(lambda: console.state().gpus[told.data["uuid"]].xid == 79)
    alert = until(lambda: next((one for one in console.state().alerts.values() if one.rule == "gpu-xid"), None))
    assert alert.subject == told.data["uuid"] and "Xid 79" in alert.text
    Driver((card(1, xids=((1, 48),)), card(2))).write(tmp_path / "nvml" / "nvml.state")
    told = until(lambda: next((one for one in console.numbered() if one.data.get("xid") == 48), None))
    assert told.data["source"] == "nvml" and told.text.startswith(f"GPU 0 ({card(1).uuid}): Xid 48")
