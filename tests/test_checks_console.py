"""Checks in the console: results of several nodes together, the command over real SSH, the section and its keys."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from agent import wire
from agent.codec import pack
from console.checked import Checked, Group, grouped, read
from console.commands.check import lines, totals
from console.screens.checks import ChecksScreen
from tests.fakes.screen import app_of, console, painted, shows, told, until
from tests.fakes.sitting import Sitting, sitting
from tests.fakes.sound import Sound
from tests.test_cli import Desk

Spoil = Callable[[Sound], object]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, wire.Reply]:
    """What agents of a sound node and of two broken ones say."""
    made: dict[str, Spoil] = {
        "sound": lambda s: s,
        "nvlink": lambda s: s.spoil(6, nvlinks_down=2).spoil(1, power_limit_w=450.0),
        "firmware": lambda s: [s.write(f"sys/class/infiniband/mlx5_{n}/fw_ver", "28.35.1") for n in range(8)],
    }
    found = {}
    for name, spoil in made.items():
        sound = Sound(tmp_path_factory.mktemp("checks") / name)
        spoil(sound)
        found[name] = wire.Reply("o", True, {"checks": pack(sound.checks(), tagged=False)})
    return found


def headings(groups: list[Group]) -> list[tuple[str, str, list[str]]]:
    return [(one.check.health, f"{one.check.family}/{one.check.name}", one.nodes) for one in groups]


def test_equal_results_stand_together_and_the_odd_one_out_first(answers: dict[str, wire.Reply]) -> None:
    kinds = {"gpu1": "sound", "gpu2": "nvlink", "gpu3": "sound", "gpu4": "sound"}
    results = [read(node, answers[kind], 0.0) for node, kind in kinds.items()]
    groups = grouped(results)
    assert headings(groups)[:3] == [
        ("fault", "nvlink/links", ["gpu2"]),
        ("watch", "gpus/power-limits", ["gpu2"]),
        ("unknown", "kernel/acs", ["gpu1", "gpu2", "gpu3", "gpu4"]),
    ]
    good = headings(groups)[3:]
    assert {health for health, _name, _nodes in good} == {"good"}
    assert ("good", "nvlink/links", ["gpu1", "gpu3", "gpu4"]) in good
    assert "\n".join(lines(groups[0], 4)).splitlines()[:3] == [
        "FAULT    nvlink links  gpu2 (1 of 4)",
        "         NVLinks are down on GPU 6",
        "         GPU 6: 16 of 18 up; 18 on the others",
    ]
    assert "kernel acs  gpu[1-4] (4 of 4)" in lines(groups[2], 4)[0]
    assert totals(results).startswith("4 nodes checked: 1 fault, 1 to watch, 4 unknown, ")


def test_what_is_well_but_unlike_is_told(answers: dict[str, wire.Reply]) -> None:
    kinds = {"gpu1": "sound", "gpu2": "firmware", "gpu3": "sound"}
    (first, *_others) = grouped([read(node, answers[kind], 0.0) for node, kind in kinds.items()])
    assert (first.check.health, first.check.name, first.evidence) == (
        "watch",
        "firmware",
        {"gpu2": "28.35.1, 28.39.1002"},
    )
    assert first.check.reason == "differs from node to node (most: 28.39.1002)"
    two = grouped([read(node, answers[kind], 0.0) for node, kind in (("a", "sound"), ("b", "firmware"))])
    assert (two[0].nodes, two[0].check.reason) == (["a", "b"], "differs from node to node")


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (wire.Reply("o", False, error="not finished", hint="Ask again."), "not finished"),
        (wire.Reply("o", True, {}), "holds no checks"),
        (wire.Reply("o", True, {"checks": ["x"]}), "holds no checks"),
    ],
)
def test_an_answer_that_is_none(reply: wire.Reply, words: str) -> None:
    found = read("gpu1", reply, 0.0)
    assert words in found.trouble and found.worst == "" and grouped([found]) == []


def test_a_health_that_is_not_known_here_is_unknown() -> None:
    raw = {"family": "gpus", "name": "aura", "health": "splendid", "reason": 5, "new": 1}
    found = read("gpu1", wire.Reply("o", True, {"checks": [raw]}), 0.0)
    assert found.checks == (wire.Check("gpus", "aura", "unknown", "5"),)
    assert Checked("gpu1", 0.0).worst == ""


# The section


def answering(sat: Sitting, **kinds: wire.Reply) -> None:
    for node, reply in kinds.items():
        sat.links[node].answers[wire.RunChecks] = reply
        sat.links[node].tell()


@pytest.mark.parametrize("size", [(80, 24), pytest.param((160, 50), marks=pytest.mark.slow)])
async def test_c_checks_the_node_under_the_cursor(size: tuple[int, int], answers: dict[str, wire.Reply]) -> None:
    sat = sitting("node1", "node2")
    async with console(sat, size) as pilot:
        answering(sat, node1=answers["nvlink"], node2=answers["sound"])
        await pilot.press("3")
        await until(pilot, lambda: isinstance(app_of(pilot).screen, ChecksScreen))
        await shows(pilot, "Not checked yet. c checks it.", "never")
        assert not [body for link in sat.links.values() for body in link.asked if isinstance(body, wire.RunChecks)]
        await pilot.press("1", "c")
        await shows(pilot, "NVLinks are down on GPU 6", "GPU 6: 16 of 18 up", "Reset the cards or reboot")
        lines = painted(app_of(pilot)).splitlines()
        at = [next(n for n, line in enumerate(lines) if word in line) for word in ("NVLinks are", "GPU 1 may", "(ACS)")]
        assert at == sorted(at), "most pressing first"
        (asked,) = [body for body in sat.links["node1"].asked if isinstance(body, wire.RunChecks)]
        assert asked.console_unix is not None and asked.families == ()
        await pilot.press("down", "c")
        await shows(pilot, "the driver answers", "? PCIe access control")
        assert "NVLinks are down" not in painted(app_of(pilot))
        screen = app_of(pilot).screen
        assert isinstance(screen, ChecksScreen) and screen.checks.index == 0
        await pilot.press("tab", "down", "down")
        await until(pilot, lambda: screen.checks.index == 2)
        screen.nodes.focus()
        await pilot.press("up")
        await until(pilot, lambda: screen.checks.cursor == "nvlink/links")


async def test_all_that_answer_are_checked_and_the_others_say_why(answers: dict[str, wire.Reply]) -> None:
    sat = sitting("node1", "node2", "node3")
    async with console(sat, (100, 30)) as pilot:
        answering(sat, node1=answers["sound"], node3=wire.Reply("o", False, error="not finished within 60 s"))
        sat.links["node2"].live("down", why="connection refused")
        await pilot.press("3", "C")
        await shows(pilot, "the driver answers")
        assert [bool(link.asked) for link in sat.links.values()] == [True, False, True]
        await pilot.press("down", "c")
        await until(pilot, lambda: "node2 does not answer: connection refused" in told(app_of(pilot)))
        await pilot.press("down")
        await shows(pilot, "It could not be checked.", "not finished within 60 s")


async def test_a_check_under_way_is_seen_and_not_asked_twice() -> None:
    sat = sitting("node1")
    async with console(sat, (100, 30)) as pilot:
        sat.links["node1"].silent = True
        sat.links["node1"].tell()
        await pilot.press("enter", "c")
        await shows(pilot, "checking…", "Checking; this takes some seconds.")
        await pilot.press("c")
        await until(pilot, lambda: "is being checked already" in told(app_of(pilot)))
        assert len([body for body in sat.links["node1"].asked if isinstance(body, wire.RunChecks)]) == 1


# The command


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    made = Desk(tmp_path_factory.mktemp("desk"))
    made.server._nodes["n1"]["NCCL_SOCKET_IFNAME"] = "bond7"
    yield made
    made.stop()


def test_the_command_over_ssh(desk: Desk) -> None:
    done = desk.call("--timeout", "90", "check", "n1", "--family", "network", "--family", "limits", "--all")
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("FAULT    network interface  n1\n") and "NCCL_SOCKET_IFNAME=bond7" in done.stdout
    assert "do: Unset it" in done.stdout and "GOOD     limits open-files  n1" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("1 node checked: 1 fault, ")
    done = desk.call("--timeout", "90", "check", "--json", "--family", "driver")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    (one,) = said["nodes"]["n1"]["checks"]
    assert (one["name"], one["health"]) == ("nvml", "unknown") and "no NVIDIA GPU" in one["reason"]
    assert said["summary"] == {"fault": 0, "watch": 0, "unknown": 1, "good": 0}
    done = desk.call("--timeout", "90", "check", "--family", "gpu")
    assert done.returncode == 1 and "no checks called gpu" in done.stderr and "Traceback" not in done.stderr
