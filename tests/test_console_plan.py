"""The plan screen by its keys, and its lines by themselves."""

from __future__ import annotations

import pytest

from agent import wire
from console.fleet import Fleet
from console.plan import sheet
from console.plan.board import KNOBS, Board, places
from console.widgets.paint import cells
from jobs.plan.refusal import PlanError
from tests.fakes.screen import app_of, console, painted, shows, told, until
from tests.fakes.sitting import sitting

NOBODY = Fleet()


def text(lines: list[tuple[tuple[str, str], ...]]) -> str:
    return "\n".join("".join(part for part, _role in line) for line in lines)


async def test_keys_turn_knobs_and_the_answer_follows() -> None:
    sat = sitting("node1")
    async with console(sat, (160, 50)) as pilot:
        await pilot.press("5")
        await shows(
            pilot, "Llama-3.1-8B", "node1: 4 × H100", "these cards are not real", "✓", "Speed", "[a seller's guide"
        )
        await pilot.press("j", "j", "j", "left")
        await shows(pilot, "✕", "short", "▶", "full fine-tuning")
        await pilot.press("f")
        await shows(pilot, "Changed so that it fits, least harmful first", "✓")
        await pilot.press("1")
        await until(pilot, lambda: app_of(pilot).current_mode == "fleet")
        await pilot.press("5")
        await shows(pilot, "Changed so that it fits")


async def test_values_are_typed_and_mistakes_said() -> None:
    async with console(sitting("node1"), (100, 30)) as pilot:
        await pilot.press("5", "enter", *"Qwen2.5-0.5B", "enter")
        await shows(pilot, "Qwen2.5-0.5B · 4 ×")
        await pilot.press("enter", *"nonsense", "enter")
        await until(pilot, lambda: "'nonsense' is not known" in told(app_of(pilot)))
        await pilot.press("escape", "j", "enter", *"RTX4090", "enter")
        await shows(pilot, "· 4 × RTX 4090")
        assert "not real" not in painted(app_of(pilot)), "these are no longer the node's"
        await pilot.press("j", "enter", *"0", "enter")
        await shows(pilot, "cards is 0")


async def test_a_claim_is_held_against_arithmetic() -> None:
    async with console(sitting("node1"), (160, 50)) as pilot:
        await pilot.press("5", "a", *"70B LoRA on 4 x RTX 3090", "enter")
        await shows(pilot, "Claim", "contradicted by", "weights 141 GB")
        await pilot.press("a", *"cheap and good", "enter")
        await until(pilot, lambda: "nothing to compute" in told(app_of(pilot)))


async def test_the_answer_is_seen_whole_in_a_small_terminal() -> None:
    async with console(sitting("node1"), (80, 24)) as pilot:
        await pilot.press("5")
        await shows(pilot, "SIMULATED", "✓ H100", " h (", "device", "band", "weights", "small ones", "make it fit")


def test_every_knob_turns_both_ways_and_stops_at_its_ends() -> None:
    board = Board.of(NOBODY)
    for knob in KNOBS:
        for step in (1, -1):
            turned = board
            for _ in range(40):
                turned = turned.turn(knob, step, NOBODY)
            assert turned.turn(knob, step, NOBODY) == turned
            assert sheet.answer(turned, 40, 20)
        assert turned.shown(knob)


def test_cards_bring_their_sharding() -> None:
    board = Board.of(NOBODY).turn("cards", 1, NOBODY)
    assert (board.shown("cards"), board.shown("sharding")) == ("2", "ddp")
    full = Board.of(NOBODY).turn("method", -1, NOBODY).turn("cards", 1, NOBODY)
    assert full.shown("sharding") == "zero3"
    assert full.typed("offload", "all").counted(1).shown("sharding") == "none"


def test_a_contradiction_is_shown_until_another_knob_resolves_it() -> None:
    board = Board.of(NOBODY).turn("offload", 1, NOBODY)
    assert "offload needs zero2" in text(sheet.answer(board, 60, 20)) and sheet.around(board, 60, 20) == []
    with pytest.raises(PlanError, match="without sharding"):
        board.fitted()
    assert "fits" in text(sheet.answer(board.turn("offload", -1, NOBODY), 60, 20))


def test_a_nodes_own_cards_come_first_with_their_real_memory() -> None:
    sat = sitting("node1")
    fleet = sat.session.fleet
    total = 79 << 30
    fleet.nodes["node1"].state = wire.NodeState(
        gpus={"GPU-1": wire.Gpu("GPU-1", 0, "NVIDIA H100 80GB HBM3", memory_total_bytes=total)}
    )
    first = places(fleet)[0]
    assert (first.label, first.count, first.card.memory_bytes) == ("node1: 1 × H100 SXM 80GB", 1, total)
    assert not first.simulated
    sat.session.close()


@pytest.mark.parametrize("width", [12, 30, 47, 100])
@pytest.mark.parametrize("shares", [(0.0, 0.0, 0.1), (0.2, 0.5, 0.7), (0.8, 0.95, 1.2), (1.5, 2.0, 9.0)])
def test_bands_fill_their_width_and_mark_what_is_over_the_edge(shares: tuple[float, float, float], width: int) -> None:
    line = sheet.band(*shares, width, "ok")
    assert cells(line) == width
    assert ("▶" in text([line])) == (shares[2] > 1)
